"""The typed API: `/api/v1`, described by its own OpenAPI document (`/api/v1/openapi.json`).

    app        routes put together, errors as problem+json
    models     what is sent and what comes back: real numbers, ISO times, no secrets
    shapes     records -> models. Pure
    paging     cursors: a page begins after the last row of the one before, whatever has come or gone meanwhile
    jobs       jobs: list, one, its pipelines, checkpoints and failures; submit, stop
    cluster    workers, servers, queue of cleanups
    state      savepoints, restore plans, the checkpoint storage and its collector
    catalog    connectors with their options; a job file judged without starting it
    live       server-sent events: every change of a job, and a sign of life

It stands on the same desk as the reference's API beside it: the same picture, the same commands,
the same roles.
"""
