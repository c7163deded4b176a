"""Commit record of a batch: which staged files become which final ones.

Written and read by the committer only. It also holds the source offsets of the batch. A record is
created completely and exclusively, and never changed. Version 1 is plain JSON; a newer version is
refused by name.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from tidegate.connectors.localfile.durable_io import list_names
from tidegate.connectors.localfile.sink_layout import SinkLayout
from tidegate.model.errors import TerminalError

VERSION = 1


class BadRecord(TerminalError):
    """A commit record that is damaged or of an unknown version."""

    condition = "bad-commit-record"


class CommitOffsetsDiffer(TerminalError):
    """The sink has this checkpoint, with rows of other offsets."""

    condition = "other-offsets"

    def __init__(self, path: str, checkpoint: int) -> None:
        super().__init__(
            f"the files of checkpoint {checkpoint} were already published with other source"
            f" offsets than this batch has (see {path}); restore from a checkpoint before it, or"
            " start fresh"
        )
        self.path = path
        self.checkpoint = checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file and its final name.

    `staged` is a name in the staging directory of its generation, `final` a path below the root.
    """

    staged: str
    final: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitRecord:
    """Contents of commits/<checkpoint>.json.

    `identity` is different for every record that was ever written.
    """

    lineage: str
    pipeline: int
    sink: str
    checkpoint: int
    generation: int
    identity: str
    offsets: Mapping[str, Any]
    files: tuple[StagedFile, ...]

    def encode(self) -> bytes:
        """Encode as JSON, the version first, the checksum last."""
        fields = {"version": VERSION, **asdict(self)}
        return json.dumps({**fields, "sha256": _digest(fields)}, separators=(",", ":")).encode()

    def same_offsets(self, offsets: Mapping[str, Any]) -> bool:
        """Compare with the offsets of the record, as JSON."""
        return json.dumps(self.offsets, sort_keys=True) == json.dumps(
            json.loads(json.dumps(offsets)), sort_keys=True
        )


@dataclass(frozen=True, slots=True)
class NoRecord:
    """The batch was never committed, or its record was pruned."""


def staged_files(messages: Sequence[Mapping[str, Any]]) -> tuple[StagedFile, ...]:
    """Collect the files of all writers.

    If two of them chose the same final name (one task index twice), the later one gets another.
    """
    files: list[StagedFile] = []
    taken: set[str] = set()
    for raw in (f for m in messages for f in m.get("files", ())):
        final = next(n for n in numbered_names(raw["final"], raw["suffix"]) if n not in taken)
        taken.add(final)
        files.append(
            StagedFile(staged=raw["staged"], final=final, rows=raw["rows"], bytes=raw["bytes"])
        )
    return tuple(files)


def numbered_names(final: str, suffix: str) -> Iterator[str]:
    """Yield this name, then variants with a number."""
    yield final
    for index in count(1):
        yield f"{final.removesuffix(suffix)}-{index}{suffix}"


def read_record(layout: SinkLayout, checkpoint: int) -> CommitRecord | NoRecord:
    """Read the record of a batch; BadRecord if it is damaged."""
    path = layout.record(checkpoint)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return NoRecord()
    try:
        raw = json.loads(data)
        version = raw["version"]
        if version == VERSION:
            if raw.pop("sha256") != _digest(raw):
                raise ValueError("it does not match its checksum")
            return CommitRecord(
                **{
                    **{k: v for k, v in raw.items() if k != "version"},
                    "files": tuple(StagedFile(**f) for f in raw["files"]),
                }
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRecord(f"the commit record {path} is damaged: {error}") from error
    raise BadRecord(
        f"the commit record {path} has version {version}; this version of Tidegate reads up to"
        f" {VERSION}"
    )


def _digest(fields: Mapping[str, Any]) -> str:
    """Compute the checksum of a record.

    One changed bit could change a file's name; then a rollback would miss the file.
    """
    return hashlib.sha256(
        json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def recorded_checkpoints(layout: SinkLayout) -> list[int]:
    """List the ids of all records, in order."""
    stems = (os.path.splitext(n) for n in list_names(layout.commits))
    return sorted(int(stem) for stem, suffix in stems if suffix == ".json" and stem.isdigit())
