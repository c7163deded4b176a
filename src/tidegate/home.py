"""The directory of an embedded installation: `--home`, TIDEGATE_HOME, or a per-user default.

No other module builds paths inside it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """An installation on this host, readable by its owner only.

    Directories are created when they are needed.
    """

    root: Path

    @staticmethod
    def find(option: str | None, environ: Mapping[str, str]) -> "Home":
        """Use the option, TIDEGATE_HOME, `$XDG_STATE_HOME/tidegate` or `~/.local/state/tidegate`.

        The first one that is set wins.
        """
        chosen = option or environ.get("TIDEGATE_HOME")
        if chosen:
            return Home(Path(chosen).expanduser().absolute())
        state = environ.get("XDG_STATE_HOME")
        return Home((Path(state) if state else Path.home() / ".local" / "state") / "tidegate")

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.root / 'store' / 'tidegate.db'}"

    def lost_store_warning(self, store_url: str) -> str:
        """Return a warning if jobs have run in this home but their store is missing, else "".

        Shown before a new, empty store is created.
        """
        if store_url != self.store_url or (self.root / "store" / "tidegate.db").exists():
            return ""
        directories = [
            directory for directory in (self.checkpoints, self.root / "logs") if directory.is_dir()
        ]
        jobs = sorted(
            {
                int(entry.name)
                for place in directories
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
            " it was removed, or its disk is not mounted. A new, empty store is created. If a disk"
            " is missing, stop, mount it and start again; otherwise resume each job under its id"
            " with --restore latest"
        )

    @property
    def checkpoints(self) -> Path:
        """The root of the checkpoint storage."""
        return self.root / "checkpoints"

    @property
    def cache(self) -> Path:
        """Files that can be rebuilt: class archives, jars."""
        return self.root / "cache"

    def work(self, job_id: int, generation: int) -> Path:
        """Scratch files of one generation.

        Removed by its driver, or by the process that confirms the driver's death.
        """
        return self.job_work(job_id) / f"g{generation}"

    def job_work(self, job_id: int) -> Path:
        """Scratch files of all generations of a job."""
        return self.root / "work" / str(job_id)

    def existing_work(self, job_id: int, generation: int) -> list[Path]:
        """The existing scratch directories of this generation and of older ones."""
        here = self.job_work(job_id)
        return [
            p
            for p in (here.iterdir() if here.is_dir() else ())
            if p.name[1:].isdigit() and int(p.name[1:]) <= generation
        ]

    @property
    def work_root(self) -> Path:
        """Scratch files of all jobs: one directory per job, in it one per generation."""
        return self.root / "work"

    def warm_work(self, pid: int, started: int) -> Path:
        """Scratch files of a warm driver, which was started before it had a job.

        It keeps them until it exits. The process that confirms its death removes them.
        """
        return self.work_root / "warm" / f"{pid}.{started}"

    @property
    def warm_error_log(self) -> Path:
        """Standard output and error of warm drivers that have no job yet."""
        return self.root / "logs" / "warm.err"

    def logs(self, job_id: int) -> Path:
        return self.root / "logs" / str(job_id)

    def create(self) -> None:
        """Create the directory and its subdirectories, accessible to the owner only."""
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        for name in ("store", "checkpoints", "work", "logs", "cache"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
