"""What can be wrong with files that are to be read, and the ways out of it, in words that work.

Raised by source.py and inventory.py.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate.connectors.localfile.bad_rows import BadFile
from tidegate.connectors.localfile.file_blocks import FileChanged
from tidegate.model.errors import Domain, TerminalError, TransientError

__all__ = [
    "BadFile",
    "FileChanged",
    "FilesMissing",
    "ListedFileChanged",
    "ListedFileExcluded",
    "RangeChanged",
    "TooManyFiles",
    "advise_recovery",
]


class FilesMissing(TransientError):
    """Files that are to be read are not there.

    They may come back: tried again, within the budget of the job.
    """

    condition = "files-missing"
    domain = Domain.EXTERNAL

    def __init__(self, paths: Sequence[str], what: str) -> None:
        one = len(paths) == 1
        are, them = ("is", "it") if one else ("are", "them")
        super().__init__(
            f"{len(paths)} file{'' if one else 's'} to be read {are} missing: {what} {are} no "
            "longer "
            f"there. Mount or restore {them} and start again with --restore latest, or accept the "
            "loss "
            f"with --restore latest --skip-file {shlex.quote(paths[0])} (repeatable; a directory "
            "stands "
            "for all below it)"
        )
        self.path = paths[0]


class RangeChanged(TransientError):
    """Of very many files some are missing or changed; the list is too long to be kept by name."""

    condition = "files-missing"
    domain = Domain.EXTERNAL

    def __init__(self, what: str, last: str, *, missing: int) -> None:
        how = f"{missing} are missing" if missing else "some were written, or exchanged for others"
        super().__init__(
            f"{what}, {how}. Mount or restore them and start again with --restore latest, or take "
            "these "
            f"files as they are now with --restore latest --accept-file {shlex.quote(last)}"
        )
        self.path = last


class ListedFileChanged(TerminalError):
    """A file is not what it was when a bounded source listed its files."""

    condition = "file-changed"
    domain = Domain.EXTERNAL

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what}. A job that ends reads the files as they were listed: put it back as "
            "it "
            "was and start again with --restore latest, read it as it is with "
            f"--restore latest --accept-file {shlex.quote(path)}, or leave it out with "
            f"--restore latest --skip-file {shlex.quote(path)}"
        )
        self.path = path


class ListedFileExcluded(TerminalError):
    """A listed file is there, but the options of the job file have changed and leave it out."""

    condition = "file-left-out"
    domain = Domain.USER

    def __init__(self, path: str, at: str) -> None:
        super().__init__(
            f"{path} was listed at {at}, and the options of the job file leave it out now: bring "
            "them "
            "back and start again with --restore latest, or say that it is left out with "
            f"--restore latest --skip-file {shlex.quote(path)}"
        )
        self.path = path


class TooManyFiles(TerminalError):
    """More files than a continuous source can keep in mind."""

    condition = "too-many-files"
    domain = Domain.USER

    def __init__(self, paths: Sequence[str], count: int, maximum: int, *, gone: int = 0) -> None:
        what = f"there are {count} files in {', '.join(paths)}"
        if gone:
            what += f", {gone} of them out of sight for less than an hour"
        super().__init__(
            f"{what}: discovery_mode = continuous looks after {maximum} at most; move files away "
            "once they are read and lower file_retention (how long those "
            "that are out of sight are remembered), or give each of several jobs a directory of "
            "its own, and start again with --restore latest"
        )
        self.count = count


@contextmanager
def advise_recovery(partial_path: str = "") -> Iterator[None]:
    """Add the ways out to an error about a file.

    `begun` is the file of which earlier checkpoints hold a part.
    """
    try:
        yield
    except (BadFile, FileChanged) as error:
        if "--skip-file" not in str(error):
            error.args = (
                f"{str(error).rstrip('.')}. {_advice(error, begun=error.path == partial_path)}",
            )
        raise


def _advice(error: BadFile | FileChanged, *, begun: bool) -> str:
    skip = f"--restore latest --skip-file {shlex.quote(error.path)}"
    if begun:
        return (
            "Rows of this file are in earlier checkpoints. Put it back as it was and start again "
            "with --restore latest, leave the rest of it out with "
            f"{skip}, or go back with --restore checkpoint:N to a checkpoint from before it"
        )
    if isinstance(error, FileChanged):
        return (
            "Start again with --restore latest to read it as it is now, as long as no sink has its"
            f" batch, or leave it out with {skip}"
        )
    return (
        "Repair it and start again with --restore latest, which reads it as it is then, or leave"
        f" it out with {skip}"
    )
