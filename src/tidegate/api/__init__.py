"""The REST API. Any server answers any request.

Reads are answered from the server's in-memory copy of the store (`ClusterCache`), writes go through
`coordinator.commands`.

    app            routes and error responses; the only module that knows all the others
    context        what handlers share: cache, commands, and how old the cache is
    auth           authentication, roles, audit log
    request_origin Host and Origin checks
    health         probes
    job_index      jobs sorted for listing
    running_jobs   cached JSON of each job, rebuilt only when its records change
    metrics        metrics for scrapers; job_metrics has those of each job
    connections    connection limits and timeouts
    seatunnel/     SeaTunnel's REST API, version 2
    v1/            the typed API

Nothing here makes decisions about a job: a command that was accepted is in the store, and the
leader carries it out. Nothing here lists the store for a request.
"""
