"""One file a state. Each has

    NAME        its status
    GOES_TO     its exits; the machine refuses any other
    DEADLINE    how long it may last; None for those that may last for ever
    decide      what shall be, by what is known: Stay (with the order that stands) or Go

States that end in -ing have work to do; the others are at rest. A wish to stop is looked at in
every state, and so is the one fact that is stronger than a wish: that all pipelines have finished.
"""
