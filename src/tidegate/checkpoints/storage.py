"""Checkpoint directories on a local disk. Called by the pipeline loop (publish, delete, sweep), by restore (read, verify) and by the CLI.

Every method can be repeated after a crash at any of its steps. A durable write is: all bytes, fsync of every file and directory, rename, fsync of the parent.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.manifest import Damaged, FileEntry, Manifest, check_file, decode_manifest, digest, encode_manifest, encode_state
from tidegate.failpoint import failpoint
from tidegate.model.document import NewerDocument
from tidegate.model.errors import Fenced

PARENT_RACES_MAX = 10


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
    """The highest checkpoint id and the highest generation that a job has left on disk; 0 where there is nothing."""

    checkpoint: int = 0
    generation: int = 0


class CheckpointStorage:
    """A root directory with the checkpoints of many jobs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def publish(self, manifest: Manifest, states: Mapping[str, Any]) -> Published:
        """Make a checkpoint; `manifest.files` is filled in here. An equal one that is there already stays."""
        final = self.root / paths.checkpoint_directory(manifest.job_id, manifest.pipeline, manifest.checkpoint)
        draft = final.parent / paths.draft_name(manifest.checkpoint, manifest.generation, uuid.uuid4().hex[:8])
        failpoint("checkpoint.publish.before")
        self._make(draft)
        files = {}
        for operator, state in states.items():
            name = f"{paths.operator_directory(operator)}/{paths.STATE}"
            data = encode_state({"version": 1, "operator": operator, "state": state})
            (draft / name).parent.mkdir()
            (draft / name).write_bytes(data)
            files[name] = FileEntry(bytes=len(data), sha256=digest(data))
        failpoint("checkpoint.publish.middle")
        data = encode_manifest(replace(manifest, files=files))
        (draft / paths.MANIFEST).write_bytes(data)
        for name in files:
            sync(draft / name)
            sync((draft / name).parent)
        sync(draft / paths.MANIFEST)
        sync(draft)
        self._rename(draft, final, manifest, files)
        failpoint("checkpoint.publish.after")
        return Published(final.relative_to(self.root).as_posix(), len(data) + sum(f.bytes for f in files.values()))

    def _make(self, draft: Path) -> None:
        """Somebody who deletes older checkpoints may take the empty parent away at the same moment."""
        for _ in range(PARENT_RACES_MAX):
            try:
                return draft.mkdir(parents=True)
            except FileNotFoundError:
                continue
        draft.mkdir(parents=True)

    def _rename(self, draft: Path, final: Path, manifest: Manifest, files: Mapping[str, FileEntry]) -> None:
        """Give the draft its name. What stands there under this name was published by a generation that did not complete the batch."""
        if final.exists():
            existing = self._manifest_or_none(final)
            if existing and existing.generation > manifest.generation:
                shutil.rmtree(draft)
                raise Fenced(f"checkpoint {final}", manifest.generation, existing.generation)
            if existing and existing.files == files and self.damage(final.relative_to(self.root).as_posix()) == "":
                shutil.rmtree(draft)
                return
            self.delete(final.relative_to(self.root).as_posix(), manifest.generation)
        os.rename(draft, final)
        sync(final.parent)

    def _manifest_or_none(self, directory: Path) -> Manifest | None:
        try:
            return decode_manifest((directory / paths.MANIFEST).read_bytes(), str(directory))
        except (OSError, Damaged, NewerDocument):
            return None

    def read(self, path: str) -> Checkpoint:
        """All of a checkpoint, verified; Damaged names the file and what is wrong with it."""
        directory = self.root / path
        try:
            manifest = decode_manifest((directory / paths.MANIFEST).read_bytes(), str(directory))
        except OSError:
            raise Damaged(str(directory), paths.MANIFEST, "is missing" if directory.exists() else "is missing, with its whole directory") from None
        states = {}
        for name, entry in manifest.files.items():
            try:
                data = (directory / name).read_bytes()
            except OSError:
                raise Damaged(str(directory), name, "is missing") from None
            check_file(str(directory), name, entry, data)
            document = json.loads(data)
            if document.get("version") != 1:
                raise NewerDocument(f"{directory / name}", document.get("version"), 1)
            states[document["operator"]] = document["state"]
        return Checkpoint(path=path, manifest=manifest, states=states)

    def operators(self, path: str) -> set[str]:
        """The operators that have state in a checkpoint; none where it cannot be read."""
        manifest = self._manifest_or_none(self.root / path)
        return {paths.operator_of(name.split("/")[0]) for name in manifest.files} if manifest else set()

    def damage(self, path: str) -> str:
        """What is wrong with a checkpoint, in words; empty when it is sound."""
        try:
            self.read(path)
        except (Damaged, NewerDocument) as error:
            return str(error)
        return ""

    def delete(self, path: str, generation: int) -> None:
        """Delete a checkpoint or draft, its manifest first, so that a half-deleted one is none. Missing is fine.

        What a newer generation than the caller's has put there stays: a driver that was overtaken may still believe that the place is its own.
        """
        directory = self.root / path
        failpoint("checkpoint.delete.before")
        if self._generation(directory) > generation:
            return
        (directory / paths.MANIFEST).unlink(missing_ok=True)
        failpoint("checkpoint.delete.middle")
        shutil.rmtree(directory, ignore_errors=True)
        failpoint("checkpoint.delete.after")

    def _generation(self, directory: Path) -> int:
        """Who made a checkpoint or a draft; 0 where that cannot be told, as nobody can use it then."""
        draft = paths.draft_generation(directory.name)
        manifest = self._manifest_or_none(directory) if draft is None else None
        return draft or (manifest.generation if manifest else 0)

    def sweep(self, job_id: int, pipeline: int, keep: set[str], generation: int) -> list[str]:
        """Delete everything in a pipeline's directory that no record names: drafts and checkpoints that this generation or older ones never completed."""
        directory = self.root / paths.pipeline_directory(job_id, pipeline)
        swept = []
        for entry in children(directory):
            path = entry.relative_to(self.root).as_posix()
            if path not in keep:
                self.delete(path, generation)
                swept.append(path)
        return swept

    def newest(self, job_id: int) -> Newest:
        """The highest numbers that stand in the directories of a job, whatever they are worth."""
        entries = [entry for pipeline in children(self.root / paths.job_directory(job_id)) for entry in children(pipeline)]
        return Newest(
            checkpoint=max((paths.checkpoint_of(entry.name) or 0 for entry in entries), default=0),
            generation=max((self._generation(entry) for entry in entries), default=0),
        )

    def delete_job(self, job_id: int, below: int) -> None:
        """Delete the checkpoints of a job whose ids are below this one, and its directories where nothing else is left in them."""
        failpoint("checkpoint.delete_job.before")
        job = self.root / paths.job_directory(job_id)
        for pipeline in children(job):
            for entry in children(pipeline):
                checkpoint = paths.checkpoint_of(entry.name)
                if checkpoint is not None and checkpoint < below:
                    (entry / paths.MANIFEST).unlink(missing_ok=True)
                    shutil.rmtree(entry, ignore_errors=True)
            failpoint("checkpoint.delete_job.middle")
            with contextlib.suppress(OSError):
                pipeline.rmdir()
        with contextlib.suppress(OSError):
            job.rmdir()
        failpoint("checkpoint.delete_job.after")


def children(directory: Path) -> list[Path]:
    """What is in a directory; nothing where it is gone."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync(path: Path) -> None:
    """Force a file, or the names of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
