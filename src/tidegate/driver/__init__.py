"""The process of one generation: Python, the Spark driver JVM and its workers, in one session.
Started by the runner, never by hand.

It reads its order from standard input, takes its plan from the store, runs a loop for each
pipeline, writes facts into the store, and ends. Its first act is to put its name into the store: a
generation that has been overtaken is refused there, before it has done anything, and so is a second
process for the same one.

    main            the order, the threads, the exit code
    registration    its name in the store
    metrics         its figures, written behind; also its sign of life
    console         what it prints, in a bounded file
    watch           what a detached driver is told by the store: stop, interrupt, or that it has been overtaken
    spark, warm     the engine; warm ones wait with a started JVM for their order

A driver of `tidegate run` is held by its standard input: when that closes, the whole session ends
at once. A detached one belongs to nobody: it goes on while workers, servers and the store come and
go, and ends when its pipelines have ended, when the store tells it to, or when it is told there
that it was overtaken.
"""
