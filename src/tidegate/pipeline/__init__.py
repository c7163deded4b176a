"""The batch protocol: one loop per pipeline, each iteration one batch over exact ranges, each batch
one checkpoint.

    plan      every source: end = latest(start, limit). If there is nothing new: confirm, wait
    begin     store: pending = {n, start and end of every source}, conditioned on the generation;
              a stale generation raises Fenced
    write     engine: tasks read exactly (start, end], transform, stage into every sink, and return
              messages
    commit    every sink: data and record atomically, keyed by (lineage, pipeline, sink, n)
    publish   checkpoint directory: state of every operator, the manifest last
    complete  store: latest = n, pending = none, ready-to-close set, counters, history

A restart repeats a pending batch with its recorded ranges, so that the sinks see the same rows and
recognise them. When all sources are ready to close, every sink finishes; then the completed point
and FINISHED are written in one transaction.

Crash safety: `begin` and `complete` are the only store writes of a batch. Between them everything
is either staged under names that no other process uses, or repeatable. The protocol knows the
engine only by the interface in pipeline/engine.py: Spark in production, a plain one in the test
kit.
"""
