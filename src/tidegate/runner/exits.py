"""Exit codes of a driver. The outcome of its pipelines is in the store."""

from enum import IntEnum


class DriverExit(IntEnum):
    ENDED = 0  # every pipeline has ended; the store has the outcomes
    NO_SPEC = 64  # its standard input ended before its spec was complete
    FENCED = 75  # another generation has taken over
    ENGINE_GONE = 70  # the engine died; a new driver can continue
