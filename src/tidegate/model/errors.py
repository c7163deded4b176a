"""The roots of every error that Tidegate raises. Retry code looks at the root and at nothing else.

An error class is one fact: its arguments are kept as attributes, `condition` is its stable name in
the API, and its text is a sentence for a person: what is wrong, where, what to do.
"""

import errno
from collections.abc import Mapping
from enum import StrEnum


class Domain(StrEnum):
    """Whose fault an error is."""

    USER = "user"  # the job file or the command
    EXTERNAL = "external"  # a database, a disk, the network
    INTERNAL = "internal"  # ours


class TidegateError(Exception):
    condition = "error"
    domain = Domain.INTERNAL


class TransientError(TidegateError):
    """Worth another try, within a budget."""

    condition = "transient"


class SourceUnreachable(TransientError):
    """A source cannot be asked what there is to read; it may come back by itself.

    An endless source waits for that, and reports it.
    """

    condition = "source-unreachable"
    domain = Domain.EXTERNAL


class TerminalError(TidegateError):
    condition = "terminal"


def system_sentence(error: OSError) -> str:
    """An error of the operating system for a person: what, where, what to do; without Python's own
    form of it.
    """
    where = " and ".join(
        str(name) for name in (error.filename, error.filename2) if name is not None
    )
    what = error.strerror or str(error) or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, "")
    return f"{where}: {what}{advice}" if where else f"{what}{advice}"


_ADVICE = {
    errno.ENOSPC: " (the disk is full: make room)",
    errno.EDQUOT: " (the quota is used up: make room)",
    errno.EROFS: " (the disk is mounted read-only: mount it for writing)",
    errno.EACCES: " (check the permissions)",
    errno.EPERM: " (check the permissions)",
    errno.EMFILE: " (raise the limit of open files: ulimit -n)",
    errno.ENOENT: " (it was removed, or its disk is not mounted)",
}


class Fenced(TerminalError):
    """A newer generation runs this job: this one must end and make nothing visible."""

    condition = "fenced"

    def __init__(self, what: str, mine: int, current: int) -> None:
        super().__init__(
            f"generation {mine} of {what} is fenced: generation {current} has taken over"
        )
        self.what = what
        self.mine = mine
        self.current = current


class OtherCopy(Fenced):
    """Another driver holds the very same generation: another copy of this installation is running.

    Only a copied home or store can lead to this. The first driver wins; the other one ends for
    good, since a retry would take the target away from the first.
    """

    condition = "other-copy"

    def __init__(self, what: str, generation: int, holder: str = "") -> None:
        super().__init__(what, generation, generation)
        by = f" ({holder})" if holder else ""
        self.args = (
            (
                f"another copy of this installation runs generation {generation} of the same job,"
                f" and holds {what}{by}: this one ends and changes nothing there. Stop one of the"
                " two copies; then restart the other with --restore latest"
            ),
        )
        self.generation = generation
        self.holder = holder


class LineageMismatch(TerminalError):
    """Records of one job that belong to different lineages: whoever went on with them would repeat
    rows, or leave some out.
    """

    condition = "lineage-mismatch"

    def __init__(self, job_id: int, claims: Mapping[str, str]) -> None:
        said = ", ".join(f"{what} says {lineage!r}" for what, lineage in claims.items())
        super().__init__(
            f"the records of job {job_id} disagree on its lineage ({said}): one of them was changed"
            " or belongs to another run, and nothing was started. Restore the store from a copy;"
            f" or forget the job (`tidegate state forget {job_id}`) and resume it from its"
            " checkpoints with --restore latest"
        )
        self.job_id = job_id
        self.claims = dict(claims)


def agree_on_lineage(job_id: int, claims: Mapping[str, str]) -> None:
    """LineageMismatch unless all of them, by who says it, are the same."""
    if len(set(claims.values())) > 1:
        raise LineageMismatch(job_id, claims)


class UserError(TerminalError):
    """A mistake in a job file or a command, said in one sentence."""

    condition = "bad-input"
    domain = Domain.USER


class Unsupported(UserError):
    """Asks for something that Tidegate does not do, and says what to use instead."""

    condition = "unsupported"
