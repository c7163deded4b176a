"""Checkpoint directories in memory, with the rules of checkpoints/storage. They outlive every
simulated process.

`at` is called wherever a fault may happen; `gone` is called before a checkpoint is deleted, so that
the checker can verify that nothing needs it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.savepoints import SavedPoint, Savepoint, Savepoints
from tidegate.checkpoints.storage import Checkpoint, CheckpointStorage, HighestIds, Published
from tidegate.model.errors import Fenced


@dataclass(frozen=True, slots=True)
class Directory:
    manifest: Manifest
    states: Mapping[str, Any]


class MemorySavepoints(Savepoints):
    """Savepoints by job and id. What was copied stays for ever."""

    def __init__(self, storage: "MemoryStorage") -> None:
        super().__init__(storage.files)
        self.storage = self.directories = storage
        self.copies: dict[tuple[int, str, int], Directory] = {}
        self.sealed: dict[tuple[int, str], dict[int, int]] = {}

    def copy(self, source: str, job_id: int, savepoint: str, pipeline: int) -> SavedPoint:
        self.directories.at("savepoint.copy.before")
        there = self.directories.directories.get(source)
        if there is None:
            raise Damaged(source, paths.MANIFEST, "is missing, with its whole directory")
        self.copies[job_id, savepoint, pipeline] = there
        self.directories.saved[paths.saved_directory(job_id, savepoint, pipeline).as_posix()] = (
            there
        )
        self.directories.at("savepoint.copy.after")
        return SavedPoint(checkpoint=there.manifest.checkpoint, path="", manifest="", bytes=1)

    def seal(self, savepoint: Savepoint) -> str:
        self.directories.at("savepoint.seal.before")
        parts = {p: point.checkpoint for p, point in savepoint.pipelines.items()}
        held = {
            p: there.manifest.checkpoint
            for (job, id, p), there in self.copies.items()
            if (job, id) == (savepoint.job_id, savepoint.id)
        }
        self.sealed[savepoint.job_id, savepoint.id] = {
            p: held[p] for p in parts if held.get(p) == parts[p]
        }
        self.directories.at("savepoint.seal.after")
        return paths.savepoint_directory(savepoint.job_id, savepoint.id).as_posix()

    def newest(self, job_id: int) -> str:
        return max((id for job, id in self._standing() if job == job_id), key=int, default="")

    def stands(self, job_id: int, id: str) -> bool:
        """Whether there is anything of it, whatever it is worth."""
        return (job_id, id) in self._standing()

    def _standing(self) -> set[tuple[int, str]]:
        return {(job, id) for job, id, _ in self.copies} | set(self.sealed)

    def list(self, job_id: int | None = None) -> tuple[Savepoint, ...]:
        """All that are whole, as far as anyone asks here."""
        return tuple(
            self._savepoint(job, id) for job, id in sorted(self.sealed) if job_id in (None, job)
        )

    def _savepoint(self, job_id: int, id: str) -> Savepoint:
        parts = {p: self.copies[job_id, id, p].manifest for p in self.sealed[job_id, id]}
        points = {
            p: SavedPoint(
                checkpoint=manifest.checkpoint, path=paths.saved_directory(job_id, id, p).as_posix()
            )
            for p, manifest in parts.items()
        }
        lineage = next((manifest.lineage for manifest in parts.values()), "")
        return Savepoint(
            id=id, path="", job_id=job_id, lineage=lineage, name="", made_ms=0, pipelines=points
        )


class MemoryStorage(CheckpointStorage):
    def __init__(self, at: Callable[[str], None], gone: Callable[[str], None]) -> None:
        super().__init__(Path("/simulated"))
        self.at = at
        self.gone = gone
        self.directories: dict[str, Directory] = {}
        self.saved: dict[str, Directory] = {}  # the parts of savepoints

    def publish(self, manifest: Manifest, states: Mapping[str, Any]) -> Published:
        """Make a checkpoint; an equal one that is there already stays."""
        path = paths.checkpoint_directory(
            manifest.job_id, manifest.pipeline, manifest.checkpoint
        ).as_posix()
        self.at("checkpoint.publish.before")
        there = self.directories.get(path)
        if there is not None and there.manifest.generation > manifest.generation:
            raise Fenced(f"checkpoint {path}", manifest.generation, there.manifest.generation)
        if there is None or there.states != states:
            if there is not None:
                self.delete(path, manifest.generation)
            self.directories[path] = Directory(manifest, dict(states))
        self.at("checkpoint.publish.after")
        return Published(path, 1)

    def read(self, path: str) -> Checkpoint:
        there = self.directories.get(path) or self.saved.get(path)
        if there is None:
            raise Damaged(path, paths.MANIFEST, "is missing, with its whole directory")
        return Checkpoint(path=path, manifest=there.manifest, states=there.states)

    def operators(self, path: str) -> set[str]:
        """The operators that have state in a checkpoint."""
        there = self.directories.get(path)
        return set(there.states) if there else set()

    def damage(self, path: str) -> str:
        """What is wrong with a checkpoint."""
        return "" if path in self.directories else f"checkpoint {path} is missing"

    def delete(
        self,
        path: str,
        generation: int,
        token: str = "",  # noqa: ARG002  # no simulated host is copied
    ) -> None:
        """Delete a checkpoint, unless a newer generation has made it."""
        self.at("checkpoint.delete.before")
        there = self.directories.get(path)
        if there is not None and there.manifest.generation <= generation:
            self._remove(path)
        self.at("checkpoint.delete.after")

    def sweep(
        self, job_id: int, pipeline: int, keep: set[str], generation: int, token: str = ""
    ) -> list[str]:
        """Delete what no record of a pipeline names."""
        prefix = paths.pipeline_directory(job_id, pipeline).as_posix() + "/"
        swept = [
            path
            for path in sorted(self.directories)
            if path.startswith(prefix) and path not in keep
        ]
        for path in swept:
            self.delete(path, generation, token)
        return swept

    def highest_ids(self, job_id: int) -> HighestIds:
        """The highest numbers of a job."""
        prefix = paths.job_directory(job_id).as_posix() + "/"
        manifests = [
            there.manifest for path, there in self.directories.items() if path.startswith(prefix)
        ]
        return HighestIds(
            checkpoint=max((m.checkpoint for m in manifests), default=0),
            generation=max((m.generation for m in manifests), default=0),
        )

    def delete_job(self, job_id: int, below: int, generation: int | None = None) -> None:
        """Delete the checkpoints of a job whose ids are below this one, and which no newer
        generation has made.
        """
        prefix = paths.job_directory(job_id).as_posix() + "/"
        for path in sorted(path for path in self.directories if path.startswith(prefix)):
            there = self.directories.get(path)  # another leader may be at it
            if (
                there is not None
                and there.manifest.checkpoint < below
                and (generation is None or there.manifest.generation <= generation)
            ):
                self.at("checkpoint.delete_job.middle")
                self._remove(path)

    def _remove(self, path: str) -> None:
        if path in self.directories:
            self.gone(path)
            del self.directories[path]
