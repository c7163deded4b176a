"""The engine of the data path: a batch is a Spark job over exact ranges, fused in the Python
workers or through DataFrames.

    session.py        settings -> a started SparkSession; gateway.py starts its JVM, startup_cache.py makes the next start quicker
    engine.py         Engine: one batch in, messages out; cancel, progress
    build.py          a graph as DataFrames: sources, transforms, message frames
    tasks.py          what runs inside the Python workers; worker_daemon.py is what forks them
    types.py          our types as Spark's, and back
    errors.py         what Spark throws -> our errors
    cluster.py        what is different where tasks run on other hosts; deployment.py writes out what a cluster needs, executor.py starts its image

Nothing here knows the store or the protocol: pipeline/ calls the engine, the driver opens the
session.
"""
