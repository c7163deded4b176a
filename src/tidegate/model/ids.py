"""The numbers that name things, as types of their own."""

from typing import NewType

JobId = NewType("JobId", int)
"""64 bits, positive; stays the same over restores."""
PipelineId = NewType("PipelineId", int)
"""A connected component of a job's graph, from 1."""
Generation = NewType("Generation", int)
"""One attempt to run an incarnation, from 1; only grows within a lineage."""
CheckpointId = NewType("CheckpointId", int)
"""From 1 for each pipeline; only grows within a lineage."""
Lineage = NewType("Lineage", str)
"""The chain of incarnations that continue one another by restore."""

DIGITS_MAX = 30  # zeros in front included
JOB_ID_MAX = 2**63 - 1


def whole_number(text: str, least: int, most: int) -> int | None:
    """Read plain digits within bounds, however long the text is; None for anything else.

    Python refuses to convert thousands of digits with an error that no caller expects, so the
    length is checked first.
    """
    if not text or len(text) > DIGITS_MAX or not text.isascii() or not text.isdigit():
        return None
    value = int(text)
    return value if least <= value <= most else None
