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

JOB_ID_MAX = 2**63 - 1
