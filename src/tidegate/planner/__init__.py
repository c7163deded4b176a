"""Plans a job: resolves connectors and options, connects the blocks, forms pipelines.

    blocks.py           one block: its connector, options and capabilities
    wiring.py           names of datasets -> edges between blocks
    graph.py            cycles, topological order, connected components
    kinds.py            row kinds that a sink cannot write
    unions.py           whether the inputs of a union have the same columns
    plan.py             the entry point: `plan`
    drawing.py          the graph of a plan as text
    seatunnel_names.py  names that SeaTunnel has and Tidegate has not

Called by the CLI and the API. Nothing here reads a clock, a file or the network, except that a
connector's own `check` may test whether a path exists. No problem hides another: options and wiring
are always both validated.
"""
