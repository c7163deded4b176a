"""One module per state, and one for the terminal states. Each has

    NAME        its status
    GOES_TO     its exits; the machine rejects any other
    DEADLINE    how long it may last; None for no limit
    decide      NoTransition (with the command that applies) or Transition, by what is observed

States that end in -ing wait for an effect; the others do not. Every state handles a requested stop,
and the one fact that takes precedence over it: that all pipelines have finished.
"""
