"""The REST API: any server answers all of it. Reads come from the server's picture of the store,
wishes are written through `coordinator.commands`.

    app        routes, errors, limits: the only module that knows all the others
    desk       what the handlers share: picture, commands, and how old the picture is
    reads      GET: jobs, overview, health
    writes     POST: submit, stop; `many` has them as lists and uploads
    checkpoints, pending, logs, nodes, tools   what operators ask besides
    access     who may come in, and how far; the audit log
    job_text   a job that came as the body of a request -> Plan, or everything that is wrong with it
    shapes     records -> the reference's JSON: almost every scalar is a string, times are text. Pure
    fragments  the JSON text of each job, made again only where its records have changed
    prometheus figures for scrapers

Nothing here decides anything about a job: a wish that was accepted is in the store, and whoever
leads grants it. Nothing here lists the store for a request.
"""
