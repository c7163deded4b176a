"""How a driver says that it has ended, to whoever started it.

What became of its pipelines is in the store.
"""

from enum import IntEnum


class DriverExit(IntEnum):
    """Exit codes of a driver."""

    ENDED = 0  # every pipeline has ended; how is in the store
    NO_ORDER = 64  # its standard input ended before it was told what to do
    FENCED = 75  # another generation has taken over
    ENGINE_GONE = 70  # the engine died under it; a new driver can go on
