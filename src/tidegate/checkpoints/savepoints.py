"""Savepoints: one checkpoint of every pipeline of a job, copied to a place where nothing but a
person deletes it.

    <root>/savepoint/<job-id>/<id>/<pipeline-id>/<operator>/state-data     copies of a checkpoint of each pipeline,
    <root>/savepoint/<job-id>/<id>/<pipeline-id>/_manifest.json            each with its manifest last
    <root>/savepoint/<job-id>/<id>/_savepoint.json                         written when all of them are there; without it, it is no savepoint
    <root>/savepoint/<job-id>/<id>/_overtaken.json                         only where the sinks no longer hold what it tells of

Written by the driver (copy, seal), read by restore and the CLI. The id is the time at which the
savepoint was asked for, and every step can be repeated by anyone: it lands in the same place with
the same bytes.
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
    """There is no such savepoint."""

    condition = "no-savepoint"


class SavepointExists(UserError):
    """Another savepoint has this id."""

    condition = "savepoint-exists"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedPoint:
    """What one pipeline has in a savepoint.

    `manifest` is the checksum of its manifest; `path` is relative to the root.
    """

    checkpoint: int
    path: str
    manifest: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointSuperseded:
    """Somebody went back behind a savepoint: the sinks do not hold any more what it tells of.

    `checkpoints` says to where, by pipeline.
    """

    version: int = 1
    job_id: int
    checkpoints: Mapping[str, int]
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Savepoint:
    """A whole savepoint.

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
    """`_savepoint.json`; `sha256` is over the document without it."""

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

    # -- making one: the driver's part
    # -----------------------------------------------------------------------------------------------------------

    def copy(self, source: str, job_id: int, savepoint: str, pipeline: int) -> SavedPoint:
        """Put the checkpoint at `source` into a savepoint as this pipeline's part; Damaged where it
        is not sound. An equal one that is there stays.
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
        there = self._manifest(target)
        if there == data and self.storage.damage(target) == "":
            return point
        failpoint("savepoint.copy.before")
        if (
            there
            not in (
                data,
                b"",
            )
            # of an attempt that had chosen another checkpoint; otherwise whoever comes here writes the
            # same bytes, and takes nothing away
        ):
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
        """All parts are there: from now on it is a savepoint. Where it stands."""
        path = paths.savepoint_directory(savepoint.job_id, savepoint.id).as_posix()
        failpoint("savepoint.seal.before")
        self.files.write(f"{path}/{paths.SAVEPOINT_HEAD}", _encode(_head(savepoint)))
        failpoint("savepoint.seal.after")
        return path

    # -- what there is
    # ---------------------------------------------------------------------------------------------------------------------------

    def newest(self, job_id: int) -> str:
        """The highest id that stands there, whatever it is worth; nothing where there is none."""
        return max(self._ids(job_id), key=int, default="")

    def list(self, job_id: int | None = None) -> tuple[Savepoint, ...]:
        """The savepoints of a job, or all, oldest first; what is none, or cannot be read, is left
        out (see `damaged`). Only heads are read.
        """
        return tuple(found for _, found in self._heads(job_id) if isinstance(found, Savepoint))

    def damaged(self, job_id: int | None = None) -> tuple[tuple[str, str], ...]:
        """(path, why) of the savepoints whose head cannot be read."""
        return tuple((path, found) for path, found in self._heads(job_id) if isinstance(found, str))

    def read(self, path: str) -> Savepoint:
        """A savepoint of which every byte has been verified; Damaged names the file."""
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
        """What a savepoint says of itself, without a look at its parts; Damaged where it is none."""
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
        """By its id, by its path from the root, or by its absolute path or address.

        NoSavepoint says what there is; Damaged what is wrong with it.
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
        """The path from the root that a word means; None where it cannot mean a savepoint."""
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

    # -- what people do with them
    # ----------------------------------------------------------------------------------------------------------------

    def delete(self, savepoint: Savepoint) -> None:
        """Its head first, so that what is half deleted is no savepoint; where this is broken off,
        the rest belongs to nobody and is collected.
        """
        failpoint("savepoint.delete.before")
        self.files.remove(f"{savepoint.path}/{paths.SAVEPOINT_HEAD}")
        failpoint("savepoint.delete.middle")
        self.files.remove_tree(savepoint.path)
        self.files.prune(paths.savepoints_directory(savepoint.job_id).as_posix())
        failpoint("savepoint.delete.after")

    def export(self, savepoint: Savepoint, target: Path) -> None:
        """Copy a savepoint into a directory, which is made; its head last. Verified first."""
        whole = self.read(savepoint.path)
        failpoint("savepoint.export.before")
        _copy_files(self.files, whole.path, LocalFiles(target), "")
        failpoint("savepoint.export.after")

    def import_from(self, source: Path) -> Savepoint:
        """Bring in a savepoint that was exported, under the job and id that it has.

        Verified first; the same one again changes nothing.
        """
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
        """A job of this lineage goes back to these checkpoints (by pipeline), and its sinks take
        rows back: every savepoint that lies after one of them tells of rows that are not there any
        more. Durable when this returns; call it before a sink acts. The savepoints that are
        overtaken now.
        """
        mark = SavepointSuperseded(
            job_id=job_id, checkpoints={str(p): c for p, c in checkpoints.items()}, at_ms=at_ms
        )
        marked = []
        for savepoint in self.list():
            ahead = any(
                point.checkpoint > checkpoints.get(p, point.checkpoint)
                for p, point in savepoint.pipelines.items()
            )
            if savepoint.lineage == lineage and ahead and savepoint.superseded is None:
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
            raise Damaged(where, paths.SUPERSEDED, "cannot be understood") from None

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
    """An exported savepoint, whose own directory is the root."""

    def read(self, path: str) -> bytes:
        """As usual; a path that begins at the root itself has an empty first part."""
        return super().read(path.lstrip("/"))

    def exists(self, path: str) -> bool:
        return super().exists(path.lstrip("/"))

    def describe(self, path: str = "") -> str:
        return super().describe(path.lstrip("/"))


def _copy_files(source: Files, path: str, target: Files, to: str) -> None:
    """Every file, the heads of the parts after their states, the head of the whole last."""
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
    bare = replace(head, sha256="")
    return encode_state(to_document(replace(bare, sha256=digest(encode_state(to_document(bare))))))


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
