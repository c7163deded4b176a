"""Paths of the file sink's own files. No other module builds these paths.

    <root>/.tidegate/<lineage>/p<pipeline>-<sink>/
        fence-g<generation>        a driver that has opened this sink (fence.py); only the
                                   highest counts
        staging/g<generation>/     what the tasks of a generation write, and its commit records
                                   until they get their name
        dead/g<generation>/        the same directory after a higher generation retired it
        commits/<checkpoint>.json  what is or will be visible of a batch; created exclusively
        commits/<checkpoint>-<id>.done
                                   all files of that record are published
        started, prepared/<hash>   a fresh lineage began here; the save modes of a table's
                                   directory were carried out
        owner-<job>                a job other than the one that began the lineage continues it
        dropped                    another job's save mode has removed files of this lineage

Names that begin with a dot are ignored by readers of data directories.
"""

import hashlib
import os
import re
from dataclasses import dataclass

from tidegate.connectors.localfile.durable_io import list_names
from tidegate.plugin.contract import WriteTask

_FENCE = "fence-g"
_OWNER = "owner-"


@dataclass(frozen=True, slots=True)
class SinkDirectory:
    """One sink of one pipeline, and the directory that holds everything it writes."""

    root: str
    pipeline: int
    operator: str

    @property
    def bookkeeping(self) -> str:
        """The directory of all lineages of all jobs that write here."""
        return os.path.join(self.root, ".tidegate")

    def layout(self, lineage: str) -> "SinkLayout":
        """Return the paths of one lineage."""
        return SinkLayout(
            self,
            os.path.join(
                self.bookkeeping, _slug(lineage), f"p{self.pipeline}-{_slug(self.operator)}"
            ),
        )

    def transaction_id(self, job_id: int, task: WriteTask) -> str:
        """Transaction id in file names: unique for every sink, task and batch of a lineage.

        The generation is part of the digest, so that a name is never used again: rolling a batch
        back cannot hit files that were written after it.
        """
        digest = self.digest(task.lineage, task.generation)
        return f"T_{job_id}_{digest}_{task.subtask}_{task.checkpoint}"

    def digest(self, lineage: str, generation: int) -> str:
        """The part of the transaction id that identifies sink, lineage and generation."""
        return hashlib.sha256(
            f"{lineage}\n{generation}\n{self.pipeline}\n{self.operator}".encode()
        ).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """Paths of one sink in one lineage."""

    sink: SinkDirectory
    base: str

    @property
    def commits(self) -> str:
        """Directory of the commit records."""
        return os.path.join(self.base, "commits")

    @property
    def staging_root(self) -> str:
        """Parent of the generations' staging directories."""
        return os.path.join(self.base, "staging")

    @property
    def retired_root(self) -> str:
        """Parent of the retired staging directories."""
        return os.path.join(self.base, "dead")

    @property
    def removal(self) -> str:
        """Remains of `base` if the removal of a finished job's bookkeeping was interrupted."""
        return f"{self.base}.gone"

    @property
    def started(self) -> str:
        """Mark of a fresh lineage."""
        return os.path.join(self.base, "started")

    @property
    def dropped(self) -> str:
        """Mark of a lineage whose files were removed by another job's save mode."""
        return os.path.join(self.base, "dropped")

    def staging(self, generation: int) -> str:
        """Directory that the tasks of a generation write to."""
        return os.path.join(self.staging_root, f"g{generation}")

    def retired(self, generation: int) -> str:
        """Staging directory of a generation after a higher one retired it."""
        return os.path.join(self.retired_root, f"g{generation}")

    def record(self, checkpoint: int) -> str:
        """Commit record of a batch."""
        return os.path.join(self.commits, f"{checkpoint}.json")

    def done(self, checkpoint: int, identity: str) -> str:
        """Mark of a published record.

        The identity keeps a late mark from being taken for that of a later record.
        """
        return os.path.join(self.commits, f"{checkpoint}-{identity}.done")

    def prepared(self, directory: str) -> str:
        """Mark of a table's directory whose save modes were carried out."""
        return os.path.join(
            self.base, "prepared", hashlib.sha256(directory.encode()).hexdigest()[:24]
        )

    def fence(self, generation: int) -> str:
        """Fence file of a generation."""
        return os.path.join(self.base, f"{_FENCE}{generation}")

    def fences(self) -> list[int]:
        """List every generation that has a fence."""
        return sorted(
            int(n.removeprefix(_FENCE))
            for n in list_names(self.base)
            if n.startswith(_FENCE) and n.removeprefix(_FENCE).isdigit()
        )

    def owner(self, job_id: int) -> str:
        """Mark of a job that has taken the lineage over from another one."""
        return os.path.join(self.base, f"{_OWNER}{job_id}")

    def owners(self) -> list[str]:
        """List the marks of all such jobs."""
        return [
            os.path.join(self.base, name)
            for name in list_names(self.base)
            if name.startswith(_OWNER)
        ]

    def final(self, relative: str) -> str:
        """Path of a published file."""
        return os.path.join(self.sink.root, relative)


def _slug(text: str) -> str:
    """Make a readable file name that is different for different texts."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:80]
    return (
        plain
        if plain == text
        else f"{plain.strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )
