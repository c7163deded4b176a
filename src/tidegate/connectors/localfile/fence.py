"""The fence of a driver in the target: which generation, which driver of it, of which installation.
Called by the committer and by write_lineages.

A fence is created whole and exclusively, by a link. The number orders generations of one
installation; the token tells two drivers of the same number apart, which only a copied home or
store can bring about. `checkpoint` is where the driver went on: everything up to it is known here,
also where its own record was pruned.
"""

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass

from tidegate.connectors.localfile.durable_io import (
    DiskRefused,
    DiskTrouble,
    Existed,
    create_file,
    discard,
    link,
    make_directory,
    sync_all,
)
from tidegate.connectors.localfile.sink_layout import SinkLayout
from tidegate.failpoint import failpoint
from tidegate.model.errors import Fenced, OtherCopy, TerminalError

VERSION = 1
DRAFT = "draft-"
"""What the names of fences that are not up yet begin with."""


class DirectoryRemoved(DiskTrouble):
    """The directory of a file sink is not the one that was opened: removed, emptied, unmounted or
    replaced. It may come back.
    """

    condition = "sink-directory-removed"


class SinkFilesDropped(TerminalError):
    """Another job's save mode has removed files of this lineage."""

    condition = "sink-data-dropped"

    def __init__(self, root: str, what: str, by: str) -> None:
        super().__init__(
            f"{by} has removed files that {what} had written to {root}, by its save mode (DROP_DATA"
            " or RECREATE_SCHEMA). Give the two jobs directories of their own, and start this one"
            " over with --restore fresh"
        )
        self.root = root
        self.what = what
        self.by = by


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """What fence-g<generation> says.

    Those of older releases are empty: then only the number is known.
    """

    generation: int
    token: str = ""
    installation: str = ""
    checkpoint: int = 0
    host: str = ""
    pid: int = 0

    def encode(self) -> bytes:
        """As JSON, the version first."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @property
    def holder(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else ""


def new_fence(generation: int, token: str, installation: str, checkpoint: int) -> Fence:
    """The fence of this process."""
    return Fence(
        generation=generation,
        token=token,
        installation=installation,
        checkpoint=checkpoint,
        host=socket.gethostname(),
        pid=os.getpid(),
    )


def read_fence(layout: SinkLayout, generation: int) -> Fence:
    """What a fence says; one that cannot be read says only its number.

    FileNotFoundError where it is not there.
    """
    with open(layout.fence(generation), "rb") as file:
        data = file.read()
    try:
        raw = json.loads(data)
        return Fence(**{key: raw[key] for key in Fence.__dataclass_fields__ if key in raw})
    except (ValueError, TypeError, KeyError):
        return Fence(generation=generation)


def highest_fence(layout: SinkLayout) -> Fence | None:
    """The fence that counts; None where nobody has opened this sink."""
    found = layout.fences()
    try:
        return read_fence(layout, found[-1]) if found else None
    except FileNotFoundError:
        return None


def create_fence(layout: SinkLayout, mine: Fence, what: str) -> None:
    """Put the fence up, or find it there as our own.

    Fenced or OtherCopy where somebody else is first.
    """
    refuse_links(layout)
    failpoint("filesink.fence.before")
    try:
        _write_fence(layout, mine, what)
    except (
        FileNotFoundError
    ):  # another copy has finished, or somebody has removed it: the next attempt finds out
        raise DirectoryRemoved(f"{layout.base} was removed while {what} was being opened") from None
    check_generation(layout, mine.generation, what)
    failpoint("filesink.fence.middle")


def _write_fence(layout: SinkLayout, mine: Fence, what: str) -> None:
    parents = [
        p
        for d in (layout.base, layout.commits, layout.staging_root, layout.retired_root)
        for p in make_directory(d)
    ]
    draft = os.path.join(layout.base, f"{DRAFT}{secrets.token_hex(6)}")
    create_file(draft, mine.encode())
    try:
        created = link(draft, layout.fence(mine.generation))
    finally:
        discard(draft)
    sync_all([*parents, layout.base])
    if isinstance(created, Existed):
        _check_token(layout, mine, what)


def check_generation(layout: SinkLayout, generation: int, what: str) -> None:
    """Fenced where a higher generation has opened the sink."""
    highest = max(layout.fences(), default=0)
    if highest > generation:
        raise Fenced(what, generation, highest)


def _check_token(layout: SinkLayout, mine: Fence, what: str) -> None:
    there = read_fence(layout, mine.generation)
    if there.token and mine.token and there.token != mine.token:
        raise OtherCopy(what, mine.generation, there.holder)


def verify_ownership(layout: SinkLayout, mine: Fence, identity: tuple[int, int], what: str) -> None:
    """Right before something is made visible: the directory is the one that was opened, and this
    driver's.
    """
    check_generation(layout, mine.generation, what)
    if (by := dropped_by(layout)) is not None:
        raise SinkFilesDropped(layout.sink.root, what, by)
    try:
        _check_token(layout, mine, what)
        same = directory_identity(layout) == identity
    except FileNotFoundError:
        raise DirectoryRemoved(removed_message(layout, what)) from None
    if not same:
        raise DirectoryRemoved(
            f"the directory {layout.sink.root} of {what} was replaced by another one while the"
            " job ran"
        )


def removed_message(layout: SinkLayout, what: str) -> str:
    """The directory is gone from under a running job."""
    return (
        f"the directory {layout.sink.root} of {what} was removed, emptied, moved or unmounted"
        f" while the job ran: {layout.base} is not there"
    )


def directory_identity(layout: SinkLayout) -> tuple[int, int]:
    """Which directory this is, whatever its path says now."""
    found = os.stat(layout.base)
    return found.st_dev, found.st_ino


def dropped_by(layout: SinkLayout) -> str | None:
    """Whose save mode has removed files of this lineage; None where nobody's has."""
    try:
        with open(layout.dropped, encoding="utf-8") as file:
            return file.read().strip() or "another job"
    except FileNotFoundError:
        return None


def refuse_links(layout: SinkLayout) -> None:
    """What the sink keeps for itself must be directories below its path: a link leads elsewhere,
    where renames and links of files end.
    """
    root = layout.sink.bookkeeping
    for path in (
        root,
        os.path.dirname(layout.base),
        layout.base,
        layout.commits,
        layout.staging_root,
        layout.retired_root,
    ):
        if os.path.islink(path):
            raise DiskRefused(
                f"{path} is a link, and the file sink keeps its records and staged files there: put"
                " a directory in its place"
            )
        if os.path.lexists(path) and not os.path.isdir(path):
            raise DiskRefused(
                f"{path} is not a directory, and the file sink keeps its records and staged files"
                " there: move it away"
            )
