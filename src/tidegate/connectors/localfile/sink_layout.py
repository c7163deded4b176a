"""Where the file sink keeps its own things on the disk. The only author of these paths.

    <root>/.tidegate/<lineage>/p<pipeline>-<sink>/
        fence-g<generation>              a driver that has opened this sink (write_fence); only the highest counts
        staging/g<generation>/           what the tasks of a generation write, and its commit records until they get their name
        dead/g<generation>/              the same directory after a higher generation took it away
        commits/<checkpoint>.json        what is or will be visible of a batch; created exclusively
        commits/<checkpoint>-<id>.done   everything in that record is in place
        started, prepared/<hash>         a fresh lineage began here; the save modes of a table's directory were carried out
        owner-<job>                      another job than the one that the lineage is named for goes on with it
        dropped                          the save mode of another job has removed files of this lineage

Names that begin with a dot are left out by everyone who reads a directory of data files.
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
    """Which sink of which pipeline, and the directory that holds everything it writes."""

    root: str
    pipeline: int
    operator: str

    @property
    def bookkeeping(self) -> str:
        """The directory of all lineages of all jobs that write here."""
        return os.path.join(self.root, ".tidegate")

    def layout(self, lineage: str) -> "SinkLayout":
        """The paths of one lineage."""
        return SinkLayout(
            self,
            os.path.join(
                self.bookkeeping, _slug(lineage), f"p{self.pipeline}-{_slug(self.operator)}"
            ),
        )

    def transaction_id(self, job_id: int, task: WriteTask) -> str:
        """The transaction id in file names: unique for every sink, task and batch of a lineage.

        The generation is in the digest too, so that a file's name never comes again: who takes a
        batch back cannot hit what was written after it.
        """
        return f"T_{job_id}_{self.digest(task.lineage, task.generation)}_{task.subtask}_{task.checkpoint}"

    def digest(self, lineage: str, generation: int) -> str:
        """The part of the transaction id that tells whose it is."""
        return hashlib.sha256(
            f"{lineage}\n{generation}\n{self.pipeline}\n{self.operator}".encode()
        ).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """The paths of one sink in one lineage."""

    sink: SinkDirectory
    base: str

    @property
    def commits(self) -> str:
        """The directory of the records."""
        return os.path.join(self.base, "commits")

    @property
    def staging_root(self) -> str:
        """The directory of the generations' staging directories."""
        return os.path.join(self.base, "staging")

    @property
    def retired_root(self) -> str:
        """The directory of the staging directories that were taken away."""
        return os.path.join(self.base, "dead")

    @property
    def removal(self) -> str:
        """What is left of `base` where the removal of a finished job's things was cut off."""
        return f"{self.base}.gone"

    @property
    def started(self) -> str:
        """The mark of a fresh lineage."""
        return os.path.join(self.base, "started")

    @property
    def dropped(self) -> str:
        """The mark of a lineage whose files were removed by another job's save mode."""
        return os.path.join(self.base, "dropped")

    def staging(self, generation: int) -> str:
        """Where the tasks of a generation write."""
        return os.path.join(self.staging_root, f"g{generation}")

    def retired(self, generation: int) -> str:
        """Where its files are after a higher one took over."""
        return os.path.join(self.retired_root, f"g{generation}")

    def record(self, checkpoint: int) -> str:
        """The record of a batch."""
        return os.path.join(self.commits, f"{checkpoint}.json")

    def done(self, checkpoint: int, identity: str) -> str:
        """The mark of a record that was carried out.

        The identity keeps a late mark from being taken for that of a later record.
        """
        return os.path.join(self.commits, f"{checkpoint}-{identity}.done")

    def prepared(self, directory: str) -> str:
        """The mark of a table's directory."""
        return os.path.join(
            self.base, "prepared", hashlib.sha256(directory.encode()).hexdigest()[:24]
        )

    def fence(self, generation: int) -> str:
        """The mark of a generation."""
        return os.path.join(self.base, f"{_FENCE}{generation}")

    def fences(self) -> list[int]:
        """Every generation whose mark is there."""
        return sorted(
            int(n.removeprefix(_FENCE))
            for n in list_names(self.base)
            if n.startswith(_FENCE) and n.removeprefix(_FENCE).isdigit()
        )

    def owner(self, job_id: int) -> str:
        """The mark of a job that has taken the lineage up from another one."""
        return os.path.join(self.base, f"{_OWNER}{job_id}")

    def owners(self) -> list[str]:
        """Every such mark that is there."""
        return [
            os.path.join(self.base, name)
            for name in list_names(self.base)
            if name.startswith(_OWNER)
        ]

    def final(self, relative: str) -> str:
        """The path of a published file."""
        return os.path.join(self.sink.root, relative)


def _slug(text: str) -> str:
    """A file name that is readable, and different for different texts."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:80]
    return (
        plain
        if plain == text
        else f"{plain.strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )
