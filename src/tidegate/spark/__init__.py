"""The Spark engine: a batch is a Spark job over exact ranges, fused or through DataFrames.

    session.py      opens a SparkSession; gateway.py starts its JVM, startup_cache.py speeds it up
    engine.py       implements Engine: one batch in, messages out; cancel, progress
    build.py        a graph as DataFrames: sources, transforms, message frames
    tasks.py        code that runs in the Python workers; worker_daemon.py forks them
    types.py        conversion between our types and Spark's
    errors.py       translates Spark's errors
    cluster.py      settings for tasks on other hosts
    deployment.py   generates what a cluster needs; executor.py is the entry point of its image

Nothing here knows the store or the batch protocol: pipeline/ calls the engine, the driver opens the
session.
"""
