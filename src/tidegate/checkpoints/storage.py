"""Publish, read and delete the checkpoints below one root.

Called by the pipeline loop (publish, delete, sweep), by restore (read, verify, adopt) and by the
CLI. Every method can be repeated after a crash at any of its steps.

Where directories can be renamed, a checkpoint is written under a hidden name and renamed when it is
complete. Where they cannot (S3), state files have names that contain their digest, so that two
writers never use the same name for different content. The manifest is written last, and only if it
is unchanged since it was read; it makes the files a checkpoint.
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
    """A checkpoint that was read and verified completely."""

    path: str
    manifest: Manifest
    states: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """Path and size of a checkpoint after `publish`."""

    path: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HighestIds:
    """The highest checkpoint id and generation that a job has left on disk; 0 if none."""

    checkpoint: int = 0
    generation: int = 0


class CheckpointStorage:
    """The checkpoints of many jobs below one root."""

    def __init__(self, files: Files | Path) -> None:
        self.files = LocalFiles(files) if isinstance(files, Path) else files

    def publish(self, manifest: Manifest, states: Mapping[str, Any]) -> Published:
        """Write a checkpoint; `manifest.files` is filled in here.

        If an equal one exists, it becomes this generation's.
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
        """Return the path of a state file in its checkpoint.

        A name with the digest of the content can be written by anyone at any time.
        """
        name = f"{paths.operator_directory(operator)}/{paths.STATE}"
        return name if self.files.renames else f"{name}-{digest(data)[:16]}"

    def _publish_renamed(
        self, manifest: Manifest, contents: Mapping[str, bytes], final: str
    ) -> None:
        name = paths.draft_name(manifest.checkpoint, manifest.generation, uuid.uuid4().hex[:8])
        draft = f"{final.rpartition('/')[0]}/{name}"
        self.files.write_tree(draft, contents)
        failpoint("checkpoint.publish.middle")
        self.files.write_tree(draft, {paths.MANIFEST: encode_manifest(manifest)})
        existing = self._manifest_or_none(final)
        try:
            refuse_older(final, manifest, existing)
            if existing and existing.files == manifest.files and self.damage(final) == "":
                return self._restamp(final, manifest, existing)
            # published by a generation that did not complete the batch
            self.delete(final, manifest.generation, manifest.token)
            self._rename_draft(draft, final, manifest)
        finally:
            self.files.remove_tree(draft)

    def _rename_draft(self, draft: str, final: str, manifest: Manifest) -> None:
        try:
            self.files.move_tree(draft, final)
        except OSError:
            # another generation may have published since the check
            refuse_older(final, manifest, self._manifest_or_none(final))
            raise

    def _restamp(self, final: str, manifest: Manifest, existing: Manifest) -> None:
        """Make an equal checkpoint this generation's by replacing its manifest."""
        if encode_manifest(existing) != encode_manifest(manifest):
            self.files.write(f"{final}/{paths.MANIFEST}", encode_manifest(manifest))

    def _publish_in_place(
        self, manifest: Manifest, contents: Mapping[str, bytes], final: str
    ) -> None:
        """Replace the manifest only if it is still the one that was checked; else check again.

        So an older generation cannot overwrite a newer one.
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
        """Copy a checkpoint of a savepoint or of another job to this job, under the same id.

        Damaged if it cannot be verified. With an empty lineage it keeps its own. Repeatable; if the
        checkpoint is already at its path, only the owner in its manifest changes.
        """
        whole = self.read(source)
        manifest = replace(
            whole.manifest,
            job_id=job_id,
            pipeline=pipeline,
            generation=generation,
            token="",  # not made by a driver
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
        """Read only the manifest of a checkpoint; Damaged if it is missing or invalid."""
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
        """Read and verify a checkpoint; Damaged names the file and what is wrong with it."""
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
        """Return the operators that have state in a checkpoint; none if it cannot be read."""
        manifest = self._manifest_or_none(path)
        return (
            {paths.operator_of(name.split("/")[0]) for name in manifest.files}
            if manifest
            else set()
        )

    def damage(self, path: str) -> str:
        """Describe what is wrong with a checkpoint; empty if nothing is."""
        try:
            self.read(path)
        except (Damaged, NewerDocument) as error:
            return str(error)
        return ""

    def delete(self, path: str, generation: int, token: str = "") -> None:
        """Delete a checkpoint or draft, if this generation may; it may be missing.

        The manifest is removed first, so that a half-deleted checkpoint is not valid. A checkpoint
        of a newer generation is kept, because the caller may be a zombie that still believes it
        owns the path. So is one of another driver of the same generation, in a copy of this
        installation.
        """
        failpoint("checkpoint.delete.before")
        detached = self._detach(path, generation, token)
        if detached is None:
            return
        self.files.remove(f"{detached}/{paths.MANIFEST}")
        failpoint("checkpoint.delete.middle")
        self._remove_quietly(detached)
        failpoint("checkpoint.delete.after")

    def _detach(self, path: str, generation: int, token: str = "") -> str | None:
        """Rename what is to be deleted to a hidden name, where directories can be renamed.

        So a zombie does not touch what a newer generation publishes at the same path meanwhile.
        Returns the path to delete, or None if there is nothing that this generation may delete.
        """
        parent, _, name = path.rpartition("/")
        draft = paths.draft_generation(name)
        if draft is not None:
            may_delete = draft <= generation
        else:
            may_delete = _may_delete(self._manifest_or_none(path), generation, token)
        if not may_delete:
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
        with contextlib.suppress(OSError):  # it was replaced between the check and the rename
            self.files.move_tree(hidden, path)
        return None

    def _remove_quietly(self, path: str) -> None:
        """Remove what can be removed: the rest must not fail a job; the collector reports it."""
        with contextlib.suppress(OSError):
            self.files.remove_tree(path)

    def _generation(self, path: str) -> int:
        """Return the generation that made a checkpoint or draft; 0 if it cannot be read."""
        draft = paths.draft_generation(path.rpartition("/")[2])
        manifest = self._manifest_or_none(path) if draft is None else None
        return draft or (manifest.generation if manifest else 0)

    def sweep(
        self, job_id: int, pipeline: int, keep: set[str], generation: int, token: str = ""
    ) -> list[str]:
        """Delete drafts and checkpoints of a pipeline that no record names; return their paths.

        This generation or an older one did not complete them.
        """
        swept = [
            path
            for path in self._children(paths.pipeline_directory(job_id, pipeline).as_posix())
            if path not in keep
        ]
        for path in swept:
            self.delete(path, generation, token)
        return swept

    def highest_ids(self, job_id: int) -> HighestIds:
        """Return the highest ids in the directories of a job, valid checkpoints or not."""
        found = [
            path
            for pipeline in self._children(paths.job_directory(job_id).as_posix())
            for path in self._children(pipeline)
        ]
        return HighestIds(
            checkpoint=max(
                (paths.checkpoint_of(path.rpartition("/")[2]) or 0 for path in found), default=0
            ),
            generation=max((self._generation(path) for path in found), default=0),
        )

    def jobs(self) -> list[int]:
        """Return the jobs that have a directory."""
        return _numbers(self.files, "")

    def pipelines(self, job_id: int) -> list[int]:
        """Return the pipelines of a job that have a directory."""
        return _numbers(self.files, paths.job_directory(job_id).as_posix())

    def checkpoints(self, job_id: int, pipeline: int) -> list[tuple[int, str]]:
        """Return (id, path) of the checkpoint directories, by id; their manifests are not read."""
        directory = paths.pipeline_directory(job_id, pipeline).as_posix()
        return [
            (checkpoint, f"{directory}/{checkpoint}")
            for checkpoint in _numbers(self.files, directory)
        ]

    def delete_job(self, job_id: int, below: int, generation: int | None = None) -> None:
        """Delete the checkpoints of a job with ids below `below`, and its empty directories.

        Those of a generation newer than `generation` are kept: it may have repeated a batch under
        its old id.
        """
        failpoint("checkpoint.delete_job.before")
        job = paths.job_directory(job_id).as_posix()
        for pipeline in self._children(job):
            for path in self._children(pipeline):
                checkpoint = paths.checkpoint_of(path.rpartition("/")[2])
                if checkpoint is not None and checkpoint < below:
                    detached = self._detach(path, sys.maxsize if generation is None else generation)
                    if detached is not None:
                        self.files.remove(f"{detached}/{paths.MANIFEST}")
                        self._remove_quietly(detached)
            failpoint("checkpoint.delete_job.middle")
            self.files.prune(pipeline)
        self.files.prune(job)
        failpoint("checkpoint.delete_job.after")

    def _children(self, directory: str) -> list[str]:
        return [f"{directory}/{entry.name}" for entry in self.files.entries(directory)]


def refuse_older(path: str, manifest: Manifest, existing: Manifest | None) -> None:
    """Raise Fenced if a newer generation has made the existing checkpoint.

    Raise OtherCopy if another driver of the same generation has.
    """
    if existing and existing.generation > manifest.generation:
        raise Fenced(f"checkpoint {path}", manifest.generation, existing.generation)
    if existing and is_rival(existing, manifest.generation, manifest.token):
        raise OtherCopy(f"checkpoint {path}", manifest.generation)


def is_rival(existing: Manifest | None, generation: int, token: str) -> bool:
    """Whether another driver of the same generation has made it.

    Unknown, and therefore False, if one of the two has no token.
    """
    return (
        existing is not None
        and existing.generation == generation
        and bool(token and existing.token)
        and existing.token != token
    )


def _may_delete(existing: Manifest | None, generation: int, token: str) -> bool:
    """Whether a driver may delete a checkpoint; one without a valid manifest is useless."""
    return existing is None or (
        existing.generation <= generation and not is_rival(existing, generation, token)
    )


def reference(manifest: Manifest, published: Published) -> CheckpointRef:
    """Return the record of an existing checkpoint; its completion time is no longer known."""
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
