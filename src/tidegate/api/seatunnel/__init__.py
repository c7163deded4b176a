"""SeaTunnel's REST API, version 2: its routes, document formats and semantics.

queries, checkpoints, pending_jobs, logs, nodes   GET
commands, bulk                                    POST: submit and stop
tools                                             options of connectors, encryption of job files
serializers, volumes                              records -> JSON. Pure
job_source, restore_params                        parse job files and query parameters
openapi                                           the OpenAPI document
"""
