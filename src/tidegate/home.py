"""The directory that holds everything of an embedded installation: `--home`, TIDEGATE_HOME, else a
per-user default. The only author of its paths.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """An installation on this host.

    Nothing is made until it is needed; only its owner may look into it.
    """

    root: Path

    @staticmethod
    def find(given: str | None, environ: Mapping[str, str]) -> "Home":
        """The wanted one, else TIDEGATE_HOME, else `$XDG_STATE_HOME/tidegate` or
        `~/.local/state/tidegate`.
        """
        chosen = given or environ.get("TIDEGATE_HOME")
        if chosen:
            return Home(Path(chosen).expanduser().absolute())
        state = environ.get("XDG_STATE_HOME")
        return Home((Path(state) if state else Path.home() / ".local" / "state") / "tidegate")

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.root / 'store' / 'tidegate.db'}"

    def lost_store(self, store_url: str) -> str:
        """What a person should know before a store is made here: jobs have run here, and their
        store is gone. Empty where all is as it should be.
        """
        if store_url != self.store_url or (self.root / "store" / "tidegate.db").exists():
            return ""
        places = [place for place in (self.checkpoints, self.root / "logs") if place.is_dir()]
        jobs = sorted(
            {
                int(entry.name)
                for place in places
                for entry in place.iterdir()
                if entry.name.isdecimal()
            }
        )
        if not jobs:
            return ""
        named = ", ".join(map(str, jobs[:5])) + (
            f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
        )
        return (
            f"there is no store in {self.root / 'store'}, but jobs have run in this home ({named}):"
            " it was removed, or its disk is not mounted. A new, empty store is made. If a disk is"
            " missing, stop, mount it and start again; otherwise resume each job under its id with"
            " --restore latest"
        )

    @property
    def checkpoints(self) -> Path:
        """The root of the checkpoint storage."""
        return self.root / "checkpoints"

    @property
    def cache(self) -> Path:
        """What can be made again: class archives, jars."""
        return self.root / "cache"

    def work(self, job_id: int, generation: int) -> Path:
        """Scratch files of one generation; removed by it, or by whoever proves it dead."""
        return self.job_work(job_id) / f"g{generation}"

    def job_work(self, job_id: int) -> Path:
        """Scratch files of all generations of a job."""
        return self.root / "work" / str(job_id)

    def works(self, job_id: int, generation: int) -> list[Path]:
        """What is there of the scratch files of this generation and of older ones."""
        here = self.job_work(job_id)
        return [
            p
            for p in (here.iterdir() if here.is_dir() else ())
            if p.name[1:].isdigit() and int(p.name[1:]) <= generation
        ]

    @property
    def works_root(self) -> Path:
        """Scratch files of everything: a directory for each job, in it one for each generation."""
        return self.root / "work"

    def warm_work(self, pid: int, started: int) -> Path:
        """Scratch files of a driver that was started before it had a job, and that keeps them for
        life; removed by whoever proves it dead.
        """
        return self.works_root / "warm" / f"{pid}.{started}"

    @property
    def warm_errors(self) -> Path:
        """What they say before they have a job."""
        return self.root / "logs" / "warm.err"

    def logs(self, job_id: int) -> Path:
        return self.root / "logs" / str(job_id)

    def make(self) -> None:
        """Create the directory, for its owner only."""
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        for name in ("store", "checkpoints", "work", "logs", "cache"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
