"""The typed API: `/api/v1`, described by its own OpenAPI document (`/api/v1/openapi.json`).

    app          the application; errors as problem+json
    openapi      schema names of the OpenAPI document
    models       requests and responses: real numbers, ISO times, no secrets
    serializers  records -> models. Pure
    page_cache   cached JSON of listed jobs
    paging       cursors: a page begins after the last row of the previous one, even if jobs have
                 come or gone meanwhile
    jobs         list, details, checkpoints and failures; submit, stop
    changes      decisions about table changes that have stopped a job
    cluster      workers, servers, pending cleanups
    state        savepoints, restore plans, the checkpoint storage and its collector
    catalog      connectors and their options; validation of job files
    tokens       access tokens
    live         server-sent events
    roles        the role that a route needs

It shares the API context with SeaTunnel's API: the same cache, commands and roles.
"""
