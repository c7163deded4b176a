"""The driver process of one generation: Python, the Spark driver JVM and its workers, one session.

The runner starts it; users never do. It reads its DriverSpec from standard input and its plan from
the store, runs a batch loop for each pipeline, records the results in the store, and exits. It
first registers in the store, which rejects a superseded generation, and a second process of the
same generation, before either has done anything.

    main            spec, threads, exit code
    registration    its record in the store
    metrics         metrics of its pipelines, written asynchronously; also its heartbeat
    console         standard output, in a bounded file
    commands        commands from the store for a detached driver; detects that it was superseded
    log_retention   how long the sources keep the log that a restore needs
    resources       external resources that its operators create, recorded in the store
    spark, warm     the engine; warm drivers wait for their spec with a started JVM

A driver of `tidegate run` depends on its standard input: when that closes, the whole session ends
at once. A detached driver depends on no process: it continues while workers, servers and the store
restart. It exits when its pipelines have ended, when a command in the store says so, or when the
store shows that it was superseded.
"""
