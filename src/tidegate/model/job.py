"""What a job file contains (JobSpec), before any connector has validated it.

Made by config, read by the planner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.problem import Location, Problem

Path = tuple[str | int, ...]
"""The path of a value: keys and list indexes from the root of its document or block."""


class JobMode(StrEnum):
    """Whether a job ends by itself."""

    BATCH = "BATCH"
    STREAMING = "STREAMING"


class BlockKind(StrEnum):
    """The three kinds of plugin blocks."""

    SOURCE = "source"
    TRANSFORM = "transform"
    SINK = "sink"


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginBlock:
    """One block under source, transform or sink.

    `positions` are relative to the block; `options` holds all its keys as written, nested or flat.
    """

    kind: BlockKind
    index: int
    plugin: str
    options: Mapping[str, Any]
    positions: Mapping[Path, Location] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    output: str | None = None
    name: str | None = None
    parallelism: int | None = None
    at: Location = field(default_factory=lambda: Location(""))

    @property
    def path(self) -> str:
        """The path of the block in the file: `source[0]`."""
        return f"{self.kind}[{self.index}]"

    def locate(self, path: Path) -> Location:
        """Return the nearest known location of a value of this block."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, self.at)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnv:
    """The env block. None means not given: the engine's value applies."""

    job_name: str | None = None
    mode: JobMode = JobMode.BATCH
    parallelism: int = 1
    retry_times: int = 3
    retry_interval_s: float = 3
    checkpoint_interval_ms: int | None = None
    checkpoint_timeout_ms: int | None = None
    checkpoint_pause_ms_min: int | None = None
    retain_after_cancel: bool | None = None
    checkpoints_retained_max: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    batch_rows_max: int | None = None
    batch_bytes_max: int | None = None
    batch_files_max: int | None = None
    pipeline_concurrency: int | None = None
    jars: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    custom_parameters: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """A parsed job file: the structure is right, names and options are not yet checked.

    `notices` are warnings and notices found while parsing.
    """

    file: str
    env: JobEnv
    sources: tuple[PluginBlock, ...]
    transforms: tuple[PluginBlock, ...]
    sinks: tuple[PluginBlock, ...]
    notices: tuple[Problem, ...] = ()

    def blocks(self) -> tuple[PluginBlock, ...]:
        """Return all blocks: sources, transforms, sinks, each in file order."""
        return (*self.sources, *self.transforms, *self.sinks)
