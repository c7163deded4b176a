"""Checkpoints among the files of one root. Called by the pipeline loop (publish, delete, sweep), by
restore (read, verify, adopt) and by the CLI.

Every method can be repeated after a crash at any of its steps. Where a directory can be renamed, a
checkpoint is written under a hidden name, and gets its own when it is whole. Where it cannot (S3),
the files of the states have names that tell their content, so that two writers never meet in one,
and the manifest, put there last and only in the place of the one that was looked at, makes them a
checkpoint.
"""

import contextlib
import json
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.manifest import (
    Damaged,
    FileEntry,
    Manifest,
    check_file,
    decode_manifest,
    digest,
    encode_manifest,
    encode_state,
)
from tidegate.failpoint import failpoint
from tidegate.model.document import NewerDocument
from tidegate.model.errors import Fenced, OtherCopy
from tidegate.model.records import CheckpointKind, CheckpointRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint that was read whole and verified."""

    path: str
    manifest: Manifest
    states: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """Where a checkpoint stands now."""

    path: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Newest:
    """The highest checkpoint id and the highest generation that a job has left on disk; 0 where
    there is nothing.
    """

    checkpoint: int = 0
    generation: int = 0


class CheckpointStorage:
    """The checkpoints of many jobs below one root."""

    def __init__(self, files: Files | Path) -> None:
        self.files = LocalFiles(files) if isinstance(files, Path) else files

    def publish(self, manifest: Manifest, states: Mapping[str, Any]) -> Published:
        """Make a checkpoint; `manifest.files` is filled in here. An equal one that is there already
        becomes this generation's.
        """
        final = paths.checkpoint_directory(
            manifest.job_id, manifest.pipeline, manifest.checkpoint
        ).as_posix()
        contents = {self._name(operator, data): data for operator, data in _encoded(states).items()}
        files = {
            name: FileEntry(bytes=len(data), sha256=digest(data)) for name, data in contents.items()
        }
        manifest = replace(manifest, files=files)
        failpoint("checkpoint.publish.before")
        if self.files.renames:
            self._publish_renamed(manifest, contents, final)
        else:
            self._publish_in_place(manifest, contents, final)
        failpoint("checkpoint.publish.after")
        return Published(final, _size(manifest))

    def _name(self, operator: str, data: bytes) -> str:
        """Where a state stands in its checkpoint.

        Names that tell the content can be written by anyone at any time, and mean the same.
        """
        name = f"{paths.operator_directory(operator)}/{paths.STATE}"
        return name if self.files.renames else f"{name}-{digest(data)[:16]}"

    def _publish_renamed(
        self, manifest: Manifest, contents: Mapping[str, bytes], final: str
    ) -> None:
        draft = f"{final.rpartition('/')[0]}/{paths.draft_name(manifest.checkpoint, manifest.generation, uuid.uuid4().hex[:8])}"
        self.files.write_tree(draft, contents)
        failpoint("checkpoint.publish.middle")
        self.files.write_tree(draft, {paths.MANIFEST: encode_manifest(manifest)})
        existing = self._manifest_or_none(final)
        try:
            refuse_older(final, manifest, existing)
            if existing and existing.files == manifest.files and self.damage(final) == "":
                return self._restamp(final, manifest, existing)
            self.delete(
                final, manifest.generation, manifest.token
            )  # published by a generation that did not complete the batch
            self._put_in_place(draft, final, manifest)
        finally:
            self.files.remove_tree(draft)

    def _put_in_place(self, draft: str, final: str, manifest: Manifest) -> None:
        try:
            self.files.move_tree(draft, final)
        except OSError:
            refuse_older(
                final, manifest, self._manifest_or_none(final)
            )  # somebody was quicker since the look
            raise

    def _restamp(self, final: str, manifest: Manifest, existing: Manifest) -> None:
        """The same states are there: only their owner changes, in one step."""
        if encode_manifest(existing) != encode_manifest(manifest):
            self.files.write(f"{final}/{paths.MANIFEST}", encode_manifest(manifest))

    def _publish_in_place(
        self, manifest: Manifest, contents: Mapping[str, bytes], final: str
    ) -> None:
        """The manifest is put in the place of the one that was judged, or judged again: an older
        generation cannot get past a newer one.
        """
        self.files.write_tree(final, contents)
        failpoint("checkpoint.manifest.before")
        data = encode_manifest(manifest)
        while True:
            seen = self.files.read_versioned(f"{final}/{paths.MANIFEST}")
            refuse_older(final, manifest, _decoded_or_none(seen.data, final) if seen else None)
            if (seen and seen.data == data) or self.files.replace_if(
                f"{final}/{paths.MANIFEST}", data, seen
            ):
                break
        failpoint("checkpoint.manifest.after")

    def adopt(
        self, source: str, job_id: int, pipeline: int, generation: int, *, lineage: str = ""
    ) -> CheckpointRef:
        """Make a sound checkpoint from anywhere below the root (a savepoint's, another job's) one
        of this job, under its own id. Damaged where it is not sound.

        An empty lineage: the one that it has. Repeatable, and where it stands in its place already,
        only the owner in its manifest changes.
        """
        whole = self.read(source)
        manifest = replace(
            whole.manifest,
            job_id=job_id,
            pipeline=pipeline,
            generation=generation,
            token="",  # no driver has made it
            lineage=lineage or whole.manifest.lineage,
            kind=CheckpointKind.CHECKPOINT,
        )
        published = self.publish(manifest, whole.states)
        return reference(manifest, published)

    def _manifest_or_none(self, directory: str) -> Manifest | None:
        try:
            return _decoded_or_none(
                self.files.read(f"{directory}/{paths.MANIFEST}"), self.files.describe(directory)
            )
        except OSError:
            return None

    def manifest(self, path: str) -> Manifest:
        """What a checkpoint says of itself, without a look at its states; Damaged where it says
        nothing.
        """
        where = self.files.describe(path)
        try:
            return decode_manifest(self.files.read(f"{path}/{paths.MANIFEST}"), where)
        except FileNotFoundError:
            reason = (
                "is missing" if self.files.exists(path) else "is missing, with its whole directory"
            )
            raise Damaged(where, paths.MANIFEST, reason) from None
        except OSError as error:
            raise Damaged(
                where, paths.MANIFEST, f"cannot be read: {error.strerror or error}"
            ) from None

    def read(self, path: str) -> Checkpoint:
        """All of a checkpoint, verified; Damaged names the file and what is wrong with it."""
        manifest, where = self.manifest(path), self.files.describe(path)
        states = {}
        for name, entry in manifest.files.items():
            try:
                data = self.files.read(f"{path}/{name}")
            except FileNotFoundError:
                raise Damaged(where, name, "is missing") from None
            except OSError as error:
                raise Damaged(where, name, f"cannot be read: {error.strerror or error}") from None
            check_file(where, name, entry, data)
            document = json.loads(data)
            if document.get("version") != 1:
                raise NewerDocument(f"{where}/{name}", document.get("version"), 1)
            states[document["operator"]] = document["state"]
        return Checkpoint(path=path, manifest=manifest, states=states)

    def operators(self, path: str) -> set[str]:
        """The operators that have state in a checkpoint; none where it cannot be read."""
        manifest = self._manifest_or_none(path)
        return (
            {paths.operator_of(name.split("/")[0]) for name in manifest.files}
            if manifest
            else set()
        )

    def damage(self, path: str) -> str:
        """What is wrong with a checkpoint, in words; empty when it is sound."""
        try:
            self.read(path)
        except (Damaged, NewerDocument) as error:
            return str(error)
        return ""

    def delete(self, path: str, generation: int, token: str = "") -> None:
        """Delete a checkpoint or draft, its manifest first, so that a half-deleted one is none.
        Missing is fine.

        What a newer generation than the caller's has put there stays: a driver that was overtaken
        may still believe that the place is its own. So does what another driver of the same
        generation (another copy of this installation) has made.
        """
        failpoint("checkpoint.delete.before")
        taken = self._taken_away(path, generation, token)
        if taken is None:
            return
        self.files.remove(f"{taken}/{paths.MANIFEST}")
        failpoint("checkpoint.delete.middle")
        self._remove_what_can_be(taken)
        failpoint("checkpoint.delete.after")

    def _taken_away(self, path: str, generation: int, token: str = "") -> str | None:
        """What is to be deleted, under a hidden name where directories can be renamed: who is
        overtaken while deleting does not touch what a newer generation puts in its place. None
        where nothing is there that this generation may delete.
        """
        parent, _, name = path.rpartition("/")
        draft = paths.draft_generation(name)
        if (
            (draft > generation)
            if draft is not None
            else not _may_delete(self._manifest_or_none(path), generation, token)
        ):
            return None
        if not self.files.renames or not name.isdecimal():
            return path
        hidden = f"{parent}/{paths.draft_name(int(name), generation, uuid.uuid4().hex[:8])}"
        try:
            self.files.move_tree(path, hidden)
        except FileNotFoundError:
            return None
        if _may_delete(self._manifest_or_none(hidden), generation, token):
            return hidden
        with contextlib.suppress(OSError):  # somebody was quicker between the look and the rename
            self.files.move_tree(hidden, path)
        return None

    def _remove_what_can_be(self, path: str) -> None:
        """What cannot be removed is found and told by the collector; it must not stop a job."""
        with contextlib.suppress(OSError):
            self.files.remove_tree(path)

    def _generation(self, path: str) -> int:
        """Who made a checkpoint or a draft; 0 where that cannot be told, as nobody can use it then."""
        draft = paths.draft_generation(path.rpartition("/")[2])
        manifest = self._manifest_or_none(path) if draft is None else None
        return draft or (manifest.generation if manifest else 0)

    def sweep(
        self, job_id: int, pipeline: int, keep: set[str], generation: int, token: str = ""
    ) -> list[str]:
        """Delete everything in a pipeline's directory that no record names: drafts and checkpoints
        that this generation or older ones never completed.
        """
        swept = [
            path
            for path in self._below(paths.pipeline_directory(job_id, pipeline).as_posix())
            if path not in keep
        ]
        for path in swept:
            self.delete(path, generation, token)
        return swept

    def newest(self, job_id: int) -> Newest:
        """The highest numbers that stand in the directories of a job, whatever they are worth."""
        found = [
            path
            for pipeline in self._below(paths.job_directory(job_id).as_posix())
            for path in self._below(pipeline)
        ]
        return Newest(
            checkpoint=max(
                (paths.checkpoint_of(path.rpartition("/")[2]) or 0 for path in found), default=0
            ),
            generation=max((self._generation(path) for path in found), default=0),
        )

    def jobs(self) -> list[int]:
        """The jobs that have something here."""
        return _numbers(self.files, "")

    def pipelines(self, job_id: int) -> list[int]:
        """The pipelines of a job that have something here."""
        return _numbers(self.files, paths.job_directory(job_id).as_posix())

    def checkpoints(self, job_id: int, pipeline: int) -> list[tuple[int, str]]:
        """(id, path) of what stands under the name of a checkpoint, by id; whether it is one, its
        manifest tells.
        """
        directory = paths.pipeline_directory(job_id, pipeline).as_posix()
        return [
            (checkpoint, f"{directory}/{checkpoint}")
            for checkpoint in _numbers(self.files, directory)
        ]

    def delete_job(self, job_id: int, below: int, generation: int | None = None) -> None:
        """Delete the checkpoints of a job whose ids are below this one, and its directories where
        nothing else is left in them. What a newer generation than this one has made stays: it may
        have repeated a batch under its old id.
        """
        failpoint("checkpoint.delete_job.before")
        job = paths.job_directory(job_id).as_posix()
        for pipeline in self._below(job):
            for path in self._below(pipeline):
                checkpoint = paths.checkpoint_of(path.rpartition("/")[2])
                if checkpoint is not None and checkpoint < below:
                    taken = self._taken_away(
                        path, sys.maxsize if generation is None else generation
                    )
                    if taken is not None:
                        self.files.remove(f"{taken}/{paths.MANIFEST}")
                        self._remove_what_can_be(taken)
            failpoint("checkpoint.delete_job.middle")
            self.files.prune(pipeline)
        self.files.prune(job)
        failpoint("checkpoint.delete_job.after")

    def _below(self, directory: str) -> list[str]:
        return [f"{directory}/{entry.name}" for entry in self.files.entries(directory)]


def refuse_older(place: str, manifest: Manifest, existing: Manifest | None) -> None:
    """Fenced where a newer generation has made what is there; OtherCopy where another driver of the
    same generation has.
    """
    if existing and existing.generation > manifest.generation:
        raise Fenced(f"checkpoint {place}", manifest.generation, existing.generation)
    if existing and is_rival(existing, manifest.generation, manifest.token):
        raise OtherCopy(f"checkpoint {place}", manifest.generation)


def is_rival(existing: Manifest | None, generation: int, token: str) -> bool:
    """Whether another driver of the very same generation has made it.

    Without a token on one side, nobody can tell.
    """
    return (
        existing is not None
        and existing.generation == generation
        and bool(token and existing.token)
        and existing.token != token
    )


def _may_delete(existing: Manifest | None, generation: int, token: str) -> bool:
    """Whether a driver may delete a checkpoint: what says nothing of its maker can be used by
    nobody.
    """
    return existing is None or (
        existing.generation <= generation and not is_rival(existing, generation, token)
    )


def reference(manifest: Manifest, published: Published) -> CheckpointRef:
    """The record of a checkpoint that was found, not made: when it was completed is not known any
    more.
    """
    return CheckpointRef(
        checkpoint=manifest.checkpoint,
        path=published.path,
        kind=manifest.kind,
        generation=manifest.generation,
        begun_ms=manifest.begun_ms,
        completed_ms=manifest.begun_ms,
        bytes=published.bytes,
        rows_read=manifest.rows_read,
        rows_written=manifest.rows_written,
    )


def _size(manifest: Manifest) -> int:
    return len(encode_manifest(manifest)) + sum(entry.bytes for entry in manifest.files.values())


def _encoded(states: Mapping[str, Any]) -> dict[str, bytes]:
    return {
        operator: encode_state({"version": 1, "operator": operator, "state": state})
        for operator, state in states.items()
    }


def _decoded_or_none(data: bytes, where: str) -> Manifest | None:
    try:
        return decode_manifest(data, where)
    except (Damaged, NewerDocument):
        return None


def _numbers(files: Files, directory: str) -> list[int]:
    return sorted(
        int(entry.name)
        for entry in files.entries(directory)
        if entry.directory and entry.name.isdecimal()
    )
