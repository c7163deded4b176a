"""Errors about files that a source has to read, with the commands that resolve them.

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
    """Files that are to be read do not exist.

    They may come back: the job tries again, within its budget of restarts.
    """

    condition = "files-missing"
    domain = Domain.EXTERNAL

    def __init__(self, paths: Sequence[str], what: str) -> None:
        one = len(paths) == 1
        are = "is" if one else "are"
        them = "it" if one else "them"
        super().__init__(
            f"{len(paths)} file{'' if one else 's'} to be read {are} missing: {what}. Mount or"
            f" restore {them} and restart with --restore latest, or accept the loss with --restore"
            f" latest --skip-file {shlex.quote(paths[0])} (repeatable; a directory includes all"
            " files below it)"
        )
        self.path = paths[0]


class RangeChanged(TransientError):
    """Some files of a range are missing or changed; the list is too long to be kept by name."""

    condition = "files-missing"
    domain = Domain.EXTERNAL

    def __init__(self, what: str, last: str, *, missing: int) -> None:
        how = f"{missing} are missing" if missing else "some were modified or replaced"
        super().__init__(
            f"{what}, {how}. Mount or restore them and restart with --restore latest, or read these"
            f" files as they are now with --restore latest --accept-file {shlex.quote(last)}"
        )
        self.path = last


class ListedFileChanged(TerminalError):
    """A file was changed after a bounded source listed its files."""

    condition = "file-changed"
    domain = Domain.EXTERNAL

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what}. A bounded source reads the files as they were listed: put the original"
            " file back and restart with --restore latest, read it as it is now with"
            f" --restore latest --accept-file {shlex.quote(path)}, or skip it with"
            f" --restore latest --skip-file {shlex.quote(path)}"
        )
        self.path = path


class ListedFileExcluded(TerminalError):
    """A listed file exists, but the changed options of the job file exclude it."""

    condition = "file-left-out"
    domain = Domain.USER

    def __init__(self, path: str, at: str) -> None:
        super().__init__(
            f"{path} was listed at {at}, and the options of the job file exclude it now: restore"
            " the options and restart with --restore latest, or skip the file with"
            f" --restore latest --skip-file {shlex.quote(path)}"
        )
        self.path = path


class TooManyFiles(TerminalError):
    """More files than a continuous source can remember."""

    condition = "too-many-files"
    domain = Domain.USER

    def __init__(self, paths: Sequence[str], count: int, maximum: int, *, gone: int = 0) -> None:
        what = f"there are {count} files in {', '.join(paths)}"
        if gone:
            what += f", {gone} of them missing for less than an hour"
        super().__init__(
            f"{what}: discovery_mode = continuous handles at most {maximum}; move files away after"
            " they are read and lower file_retention (how long missing files are remembered), or"
            " split the directory among several jobs, and restart with --restore latest"
        )
        self.count = count


@contextmanager
def advise_recovery(partial_path: str = "") -> Iterator[None]:
    """Add the possible remedies to an error about a file.

    `partial_path` is the file of which earlier checkpoints hold a part.
    """
    try:
        yield
    except (BadFile, FileChanged) as error:
        if not error.has_advice:
            advice = _advice(error, partial=error.path == partial_path)
            error.args = (f"{str(error).rstrip('.')}. {advice}",)
            error.has_advice = True
        raise


def _advice(error: BadFile | FileChanged, *, partial: bool) -> str:
    skip = f"--restore latest --skip-file {shlex.quote(error.path)}"
    if partial:
        return (
            "Rows of this file are in earlier checkpoints. Put the original file back and restart"
            f" with --restore latest, skip the rest of it with {skip}, or restore an older"
            " checkpoint, from before the file, with --restore checkpoint:N"
        )
    if isinstance(error, FileChanged):
        return (
            "Restart with --restore latest to read it as it is now, if no sink has committed its"
            f" batch, or skip it with {skip}"
        )
    return f"Repair it and restart with --restore latest, or skip it with {skip}"
