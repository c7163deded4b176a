"""Savepoints: copies of one checkpoint per pipeline of a job, kept until a user deletes them.

Below <root>/savepoint/<job-id>/<savepoint-id>/:

    <pipeline-id>/<operator>/state-data     copy of a checkpoint of each pipeline
    <pipeline-id>/_manifest.json            written last for its pipeline
    _savepoint.json                         written when all pipelines are complete
    _overtaken.json                         only if the sinks no longer hold its rows

Written by the driver (copy, seal), read by restore and the CLI. The id is the time of the request.
Every step can be repeated by any process: it writes the same bytes to the same path.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.manifest import Damaged, digest, encode_manifest, encode_state
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.failpoint import failpoint
from tidegate.model.document import NewerDocument, from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.records import CheckpointKind


class NoSavepoint(UserError):
    """The requested savepoint does not exist."""

    condition = "no-savepoint"


class SavepointExists(UserError):
    """An import found another savepoint with the same id."""

    condition = "savepoint-exists"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedPoint:
    """The part of one pipeline in a savepoint.

    `manifest` is the checksum of its manifest; `path` is relative to the root.
    """

    checkpoint: int
    path: str
    manifest: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointSuperseded:
    """A mark: a restore went back behind the savepoint, so the sinks no longer hold its rows.

    `checkpoints` are the checkpoints that were restored, by pipeline.
    """

    version: int = 1
    job_id: int
    checkpoints: Mapping[str, int]
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Savepoint:
    """A complete savepoint.

    `plan` is the job's plan without secrets, and `operators` a digest of its operators, so that a
    restore elsewhere can compare.
    """

    id: str
    path: str
    job_id: int
    lineage: str
    name: str
    made_ms: int
    pipelines: Mapping[int, SavedPoint]
    software: str = ""
    operators: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    superseded: SavepointSuperseded | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    checkpoint: int
    manifest: str
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    """The content of `_savepoint.json`; `sha256` is its checksum without this field."""

    version: int = 1
    id: str
    job_id: int
    lineage: str
    name: str
    made_ms: int
    software: str
    operators: str
    plan: Mapping[str, Any]
    pipelines: Mapping[str, _Part]
    sha256: str = ""


class Savepoints:
    """All savepoints below one root."""

    def __init__(self, files: Files | Path) -> None:
        self.storage = CheckpointStorage(files)
        self.files = self.storage.files

    # -- written by the driver

    def copy(self, source: str, job_id: int, savepoint: str, pipeline: int) -> SavedPoint:
        """Copy the checkpoint at `source` into a savepoint as the part of this pipeline.

        Damaged if it cannot be verified. An equal copy is kept.
        """
        whole = self.storage.read(source)
        target = paths.saved_directory(job_id, savepoint, pipeline).as_posix()
        manifest = replace(whole.manifest, kind=CheckpointKind.SAVEPOINT)
        data = encode_manifest(manifest)
        point = SavedPoint(
            checkpoint=manifest.checkpoint,
            path=target,
            manifest=digest(data),
            bytes=len(data) + sum(entry.bytes for entry in manifest.files.values()),
        )
        existing = self._manifest(target)
        if existing == data and self.storage.damage(target) == "":
            return point
        failpoint("savepoint.copy.before")
        # A manifest of another checkpoint is left from an earlier attempt. An equal one is not
        # removed, because another process may write the same bytes at this moment.
        if existing not in (data, b""):
            self.files.remove(f"{target}/{paths.MANIFEST}")
        for name in manifest.files:
            self.files.write(f"{target}/{name}", self.files.read(f"{source}/{name}"))
        failpoint("savepoint.copy.middle")
        self.files.write(f"{target}/{paths.MANIFEST}", data)
        failpoint("savepoint.copy.after")
        return point

    def _manifest(self, target: str) -> bytes:
        try:
            return self.files.read(f"{target}/{paths.MANIFEST}")
        except FileNotFoundError:
            return b""

    def seal(self, savepoint: Savepoint) -> str:
        """Complete a savepoint whose parts are all copied; return its path."""
        path = paths.savepoint_directory(savepoint.job_id, savepoint.id).as_posix()
        failpoint("savepoint.seal.before")
        self.files.write(f"{path}/{paths.SAVEPOINT_HEAD}", _encode(_head(savepoint)))
        failpoint("savepoint.seal.after")
        return path

    # -- reading

    def newest(self, job_id: int) -> str:
        """Return the highest id of a job's savepoint directories; empty if there is none."""
        return max(self._ids(job_id), key=int, default="")

    def list(self, job_id: int | None = None) -> tuple[Savepoint, ...]:
        """Return the savepoints of a job, or all, oldest first.

        Incomplete and unreadable ones are left out (see `damaged`). Only heads are read.
        """
        return tuple(found for _, found in self._heads(job_id) if isinstance(found, Savepoint))

    def damaged(self, job_id: int | None = None) -> tuple[tuple[str, str], ...]:
        """Return (path, reason) of the savepoints whose head cannot be read."""
        return tuple((path, found) for path, found in self._heads(job_id) if isinstance(found, str))

    def read(self, path: str) -> Savepoint:
        """Read a savepoint and verify all of its files; Damaged names the file."""
        savepoint = self.head(path)
        for point in savepoint.pipelines.values():
            where = self.files.describe(point.path)
            self.storage.read(point.path)
            if (
                point.manifest
                and digest(self.files.read(f"{point.path}/{paths.MANIFEST}")) != point.manifest
            ):
                raise Damaged(
                    where, paths.MANIFEST, f"is not the one that {paths.SAVEPOINT_HEAD} names"
                )
        return savepoint

    def head(self, path: str) -> Savepoint:
        """Read only the head of a savepoint; Damaged if it is missing or invalid."""
        where = self.files.describe(path)
        try:
            data = self.files.read(f"{path}/{paths.SAVEPOINT_HEAD}")
        except OSError as error:
            reason = (
                f"cannot be read: {error.strerror or error}"
                if not isinstance(error, FileNotFoundError)
                else "is missing"
            )
            raise Damaged(where, paths.SAVEPOINT_HEAD, reason) from None
        head = _decode(data, where)
        pipelines = {
            int(pipeline): SavedPoint(
                checkpoint=part.checkpoint,
                path=f"{path}/{pipeline}",
                manifest=part.manifest,
                bytes=part.bytes,
            )
            for pipeline, part in sorted(head.pipelines.items(), key=lambda item: int(item[0]))
        }
        return Savepoint(
            id=head.id,
            path=path,
            job_id=head.job_id,
            lineage=head.lineage,
            name=head.name,
            made_ms=head.made_ms,
            pipelines=pipelines,
            software=head.software,
            operators=head.operators,
            plan=head.plan,
            superseded=self._read_superseded(path),
        )

    def find(self, job_id: int | None, word: str) -> Savepoint:
        """Find and verify a savepoint by id, by path from the root, or by absolute path or URL.

        NoSavepoint lists the existing ones; Damaged says what is wrong with it.
        """
        path = self._path(job_id, word)
        if path is None or not self.files.exists(f"{path}/{paths.SAVEPOINT_HEAD}"):
            there = (
                ", ".join(s.id if job_id is not None else s.path for s in self.list(job_id))
                or "none"
            )
            of = f" of job {job_id}" if job_id is not None else ""
            raise NoSavepoint(
                f"there is no savepoint {word!r}{of} under {self.files.describe(paths.SAVEPOINTS)};"
                f" there are: {there}"
            )
        return self.read(path)

    def _path(self, job_id: int | None, word: str) -> str | None:
        """Return the path from the root; None if the text cannot mean a savepoint."""
        root = self.files.describe().rstrip("/") + "/"
        relative = (
            word.removeprefix("file://").removeprefix(root).strip("/") if "/" in word else word
        )
        match relative.split("/"):
            case [paths.SAVEPOINTS, job, id] if job.isdecimal() and paths.is_savepoint_name(id):
                return relative
            case [id] if job_id is not None and paths.is_savepoint_name(id):
                return paths.savepoint_directory(job_id, id).as_posix()
            case _:
                return None

    # -- commands of users

    def delete(self, savepoint: Savepoint) -> None:
        """Delete a savepoint, its head first, so that a half-deleted one is not a savepoint.

        If this is interrupted, the rest is an orphan and is collected.
        """
        failpoint("savepoint.delete.before")
        self.files.remove(f"{savepoint.path}/{paths.SAVEPOINT_HEAD}")
        failpoint("savepoint.delete.middle")
        self.files.remove_tree(savepoint.path)
        self.files.prune(paths.savepoints_directory(savepoint.job_id).as_posix())
        failpoint("savepoint.delete.after")

    def export(self, savepoint: Savepoint, target: Path) -> None:
        """Verify a savepoint and copy it into a new directory, its head last."""
        whole = self.read(savepoint.path)
        failpoint("savepoint.export.before")
        _copy_files(self.files, whole.path, LocalFiles(target), "")
        failpoint("savepoint.export.after")

    def import_from(self, source: Path) -> Savepoint:
        """Verify an exported savepoint and copy it here, under its own job and id; repeatable."""
        other = Savepoints(_ExportedFiles(source))
        found = other.read("")
        path = paths.savepoint_directory(found.job_id, found.id).as_posix()
        head = f"{path}/{paths.SAVEPOINT_HEAD}"
        if self.files.exists(head) and self.files.read(head) != other.files.read(
            paths.SAVEPOINT_HEAD
        ):
            raise SavepointExists(
                f"job {found.job_id} has another savepoint {found.id} under"
                f" {self.files.describe(path)}: delete that one first, or keep it"
            )
        failpoint("savepoint.import.before")
        _copy_files(other.files, "", self.files, path)
        failpoint("savepoint.import.after")
        return self.read(path)

    def mark_superseded(
        self, lineage: str, checkpoints: Mapping[int, int], *, job_id: int, at_ms: int
    ) -> tuple[Savepoint, ...]:
        """Mark the savepoints whose rows a restore removes; return those newly marked.

        A job of this lineage goes back to these checkpoints (by pipeline), and its sinks roll back
        the rows of later ones. The marks are durable on return; call it before a sink rolls back.
        """
        mark = SavepointSuperseded(
            job_id=job_id, checkpoints={str(p): c for p, c in checkpoints.items()}, at_ms=at_ms
        )
        marked = []
        for savepoint in self.list():
            later = any(
                point.checkpoint > checkpoints.get(p, point.checkpoint)
                for p, point in savepoint.pipelines.items()
            )
            if savepoint.lineage == lineage and later and savepoint.superseded is None:
                failpoint("savepoint.overtake.before")
                self.files.write(
                    f"{savepoint.path}/{paths.SUPERSEDED}", encode_state(to_document(mark))
                )
                failpoint("savepoint.overtake.after")
                marked.append(replace(savepoint, superseded=mark))
        return tuple(marked)

    def _read_superseded(self, path: str) -> SavepointSuperseded | None:
        try:
            data = self.files.read(f"{path}/{paths.SUPERSEDED}")
        except FileNotFoundError:
            return None
        where = self.files.describe(path)
        try:
            return from_document(
                SavepointSuperseded, json.loads(data), f"{where}/{paths.SUPERSEDED}"
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(where, paths.SUPERSEDED, "is not valid") from None

    def _ids(self, job_id: int) -> "tuple[str, ...]":
        entries = self.files.entries(paths.savepoints_directory(job_id).as_posix())
        return tuple(
            sorted(
                (e.name for e in entries if e.directory and paths.is_savepoint_name(e.name)),
                key=int,
            )
        )

    def _heads(self, job_id: int | None) -> "Iterator[tuple[str, Savepoint | str]]":
        jobs = (
            [job_id]
            if job_id is not None
            else sorted(
                int(e.name)
                for e in self.files.entries(paths.SAVEPOINTS)
                if e.directory and e.name.isdecimal()
            )
        )
        for job in jobs:
            for id in self._ids(job):
                path = paths.savepoint_directory(job, id).as_posix()
                try:
                    yield path, self.head(path)
                except (Damaged, NewerDocument) as error:
                    if self.files.exists(f"{path}/{paths.SAVEPOINT_HEAD}"):
                        yield path, str(error)


class _ExportedFiles(LocalFiles):
    """The files of an exported savepoint, whose own directory is the root."""

    def read(self, path: str) -> bytes:
        # paths of its parts begin with "/", because the savepoint's own path is empty
        return super().read(path.lstrip("/"))

    def exists(self, path: str) -> bool:
        return super().exists(path.lstrip("/"))

    def describe(self, path: str = "") -> str:
        return super().describe(path.lstrip("/"))


def _copy_files(source: Files, path: str, target: Files, to: str) -> None:
    """Copy all files: states first, then the manifests, then the head of the savepoint."""
    found = [name for name, _ in source.walk(path)]
    rank = {paths.MANIFEST: 1, paths.SAVEPOINT_HEAD: 3, paths.SUPERSEDED: 2}
    for name in sorted(found, key=lambda name: (rank.get(name.rpartition("/")[2], 0), name)):
        below = name.removeprefix(f"{path}/") if path else name
        target.write(f"{to}/{below}" if to else below, source.read(name))


def _head(savepoint: Savepoint) -> _Head:
    return _Head(
        id=savepoint.id,
        job_id=savepoint.job_id,
        lineage=savepoint.lineage,
        name=savepoint.name,
        made_ms=savepoint.made_ms,
        software=savepoint.software,
        operators=savepoint.operators,
        plan=savepoint.plan,
        pipelines={
            str(p): _Part(checkpoint=point.checkpoint, manifest=point.manifest, bytes=point.bytes)
            for p, point in savepoint.pipelines.items()
        },
    )


def _encode(head: _Head) -> bytes:
    unsigned = replace(head, sha256="")
    checksum = digest(encode_state(to_document(unsigned)))
    return encode_state(to_document(replace(unsigned, sha256=checksum)))


def _decode(data: bytes, where: str) -> _Head:
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("version"), int):
            raise ValueError
        head = from_document(_Head, document, f"savepoint {where}")
        whole = _encode(head) == data
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(where, paths.SAVEPOINT_HEAD, "is not the head of a savepoint") from None
    if not whole:
        raise Damaged(where, paths.SAVEPOINT_HEAD, "does not match its checksum")
    return head
