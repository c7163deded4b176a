"""The batch protocol: one pipeline is one loop, one turn of it is one batch over exact ranges, one
batch is one checkpoint.

    plan      every source: end = latest(start, limit). Nothing new anywhere: confirm, wait
    begin     store: pending = {n, start and end of every source}, conditioned on the generation      a stale one raises Fenced
    write     the engine: tasks read exactly (start, end], transform, stage into every sink; messages come back
    commit    every sink: data and record at once, keyed by (lineage, pipeline, sink, n)
    publish   checkpoint directory: state of every operator, the manifest last
    complete  store: latest = n, pending = none, ready-to-close set, counters, history

A restart repeats a pending batch with its recorded ranges, so that the sinks see the same rows and
recognise them. All sources ready to close: every sink finishes, then the completed point and
FINISHED in one transaction.

Who may be interrupted where: `begin` and `complete` are the only store writes of a batch; between
them everything is either staged under names that nobody else uses, or repeatable. The engine is
known only by pipeline/engine.py: Spark in production, a plain one in the test kit.
"""
