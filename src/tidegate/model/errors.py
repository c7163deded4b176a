"""Base classes of every error that Tidegate raises. Retry code checks only the base class.

One error class per fact: its arguments are kept as attributes, `condition` is its stable name in
the API, and its message is a sentence for users: what is wrong, where, and what to do.
"""

import errno
from collections.abc import Mapping
from enum import StrEnum


class Domain(StrEnum):
    """Who has to act on an error."""

    USER = "user"  # the job file or the command
    EXTERNAL = "external"  # a database, a disk, the network
    INTERNAL = "internal"  # ours


class TidegateError(Exception):
    condition = "error"
    domain = Domain.INTERNAL


class TransientError(TidegateError):
    """An error that may be retried, within a budget."""

    condition = "transient"


class SourceUnreachable(TransientError):
    """A source cannot be read at the moment; it may recover.

    An unbounded source waits for that, and reports it.
    """

    condition = "source-unreachable"
    domain = Domain.EXTERNAL


class TerminalError(TidegateError):
    condition = "terminal"


def describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system: what, where, what to do.

    Python's own format is not for users.
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
    """A newer generation runs this job: this one must stop and make nothing visible."""

    condition = "fenced"

    def __init__(self, what: str, mine: int, current: int) -> None:
        super().__init__(
            f"generation {mine} of {what} is fenced: generation {current} has taken over"
        )
        self.what = what
        self.mine = mine
        self.current = current


class OtherCopy(Fenced):
    """Another driver holds the same generation: another copy of this installation is running.

    Only a copied home or store can lead to this. The first driver wins. The other one ends for
    good, since a retry would take the target away from the first.
    """

    condition = "other-copy"

    def __init__(self, what: str, generation: int, holder: str = "") -> None:
        super().__init__(what, generation, generation)
        by = f" ({holder})" if holder else ""
        self.args = (
            (
                f"another copy of this installation runs generation {generation} of the same job"
                f" and holds {what}{by}: this one ends and changes nothing there. Stop one of the"
                " two copies; then restart the other with --restore latest"
            ),
        )
        self.generation = generation
        self.holder = holder


class LineageMismatch(TerminalError):
    """Records of one job that belong to different lineages.

    A job that continued from them would repeat rows or leave some out.
    """

    condition = "lineage-mismatch"

    def __init__(self, job_id: int, claims: Mapping[str, str]) -> None:
        listed = ", ".join(f"{what} says {lineage!r}" for what, lineage in claims.items())
        super().__init__(
            f"the records of job {job_id} disagree on its lineage ({listed}): one of them was"
            " changed or belongs to another run. Nothing was started. Restore the store from a"
            f" copy, or forget the job (`tidegate state forget {job_id}`) and resume it from its"
            " checkpoints with --restore latest"
        )
        self.job_id = job_id
        self.claims = dict(claims)


def check_same_lineage(job_id: int, claims: Mapping[str, str]) -> None:
    """Raise LineageMismatch unless all records, by name, have the same lineage."""
    if len(set(claims.values())) > 1:
        raise LineageMismatch(job_id, claims)


class UserError(TerminalError):
    """A mistake in a job file or a command, described in one sentence."""

    condition = "bad-input"
    domain = Domain.USER


class Unsupported(UserError):
    """A request for something that Tidegate does not do; the message names the alternative."""

    condition = "unsupported"
