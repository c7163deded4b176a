"""JobSpec -> Plan: which connector each block is, what its options mean, how the blocks are wired,
which pipelines that makes.

    blocks.py    one block: its connector, its options, what it can do
    wiring.py    names of datasets -> who reads whom
    graph.py     circles, order, connected components
    unions.py    whether what flows together fits together
    plan.py      all of it, in order: the one door (`plan`)
    drawing.py   a plan's graph as text

Callers: cli, and later the API. Nothing here reads a clock, a file or the network (a connector's
own `check` may look whether a path exists). A problem never hides another: options and wiring are
both judged whatever the other says.
"""
