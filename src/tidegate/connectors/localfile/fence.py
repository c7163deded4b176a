"""Fences: which generation, and which driver of it, owns a sink's directory.

Called by the committer and by lineage_cleanup. A fence is created completely and exclusively, by a
link. The number orders generations of one installation; the token distinguishes two drivers of the
same number, which only a copied home or store can cause. `checkpoint` is where the driver resumed:
everything up to it is known here, also if its own record was pruned.
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
"""Prefix of fences that are not in force yet."""


class DirectoryRemoved(DiskTrouble):
    """The sink's directory is not the one that was opened.

    It was removed, emptied, unmounted or replaced, and may come back.
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
    """Contents of fence-g<generation>.

    Fences of older releases are empty: then only the number is known.
    """

    generation: int
    token: str = ""
    installation: str = ""
    checkpoint: int = 0
    host: str = ""
    pid: int = 0

    def encode(self) -> bytes:
        """Encode as JSON, the version first."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @property
    def holder(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else ""


def new_fence(generation: int, token: str, installation: str, checkpoint: int) -> Fence:
    """Build the fence of this process."""
    return Fence(
        generation=generation,
        token=token,
        installation=installation,
        checkpoint=checkpoint,
        host=socket.gethostname(),
        pid=os.getpid(),
    )


def read_fence(layout: SinkLayout, generation: int) -> Fence:
    """Read a fence; an unreadable one has only its number.

    FileNotFoundError if it does not exist.
    """
    with open(layout.fence(generation), "rb") as file:
        data = file.read()
    try:
        raw = json.loads(data)
        return Fence(**{key: raw[key] for key in Fence.__dataclass_fields__ if key in raw})
    except (ValueError, TypeError, KeyError):
        return Fence(generation=generation)


def highest_fence(layout: SinkLayout) -> Fence | None:
    """Read the fence in force; None if nobody has opened this sink."""
    found = layout.fences()
    try:
        return read_fence(layout, found[-1]) if found else None
    except FileNotFoundError:
        return None


def create_fence(layout: SinkLayout, fence: Fence, description: str) -> None:
    """Create the fence, or accept an existing one with our token.

    Raises Fenced or OtherCopy if another driver was first.
    """
    refuse_links(layout)
    failpoint("filesink.fence.before")
    try:
        _write_fence(layout, fence, description)
    except FileNotFoundError:
        # Another copy has finished, or the directory was removed: the next attempt finds out.
        raise DirectoryRemoved(
            f"{layout.base} was removed while {description} was being opened"
        ) from None
    check_generation(layout, fence.generation, description)
    failpoint("filesink.fence.middle")


def _write_fence(layout: SinkLayout, fence: Fence, description: str) -> None:
    parents = [
        p
        for d in (layout.base, layout.commits, layout.staging_root, layout.retired_root)
        for p in make_directory(d)
    ]
    draft = os.path.join(layout.base, f"{DRAFT}{secrets.token_hex(6)}")
    create_file(draft, fence.encode())
    try:
        created = link(draft, layout.fence(fence.generation))
    finally:
        discard(draft)
    sync_all([*parents, layout.base])
    if isinstance(created, Existed):
        _check_token(layout, fence, description)


def check_generation(layout: SinkLayout, generation: int, description: str) -> None:
    """Raise Fenced if a higher generation has opened the sink."""
    highest = max(layout.fences(), default=0)
    if highest > generation:
        raise Fenced(description, generation, highest)


def _check_token(layout: SinkLayout, fence: Fence, description: str) -> None:
    existing = read_fence(layout, fence.generation)
    if existing.token and fence.token and existing.token != fence.token:
        raise OtherCopy(description, fence.generation, existing.holder)


def verify_ownership(
    layout: SinkLayout, fence: Fence, identity: tuple[int, int], description: str
) -> None:
    """Check, right before publishing, that the directory was not replaced and is still ours."""
    check_generation(layout, fence.generation, description)
    if (by := dropped_by(layout)) is not None:
        raise SinkFilesDropped(layout.sink.root, description, by)
    try:
        _check_token(layout, fence, description)
        same = directory_identity(layout) == identity
    except FileNotFoundError:
        raise DirectoryRemoved(removed_message(layout, description)) from None
    if not same:
        raise DirectoryRemoved(
            f"the directory {layout.sink.root} of {description} was replaced by another one while"
            " the job ran"
        )


def removed_message(layout: SinkLayout, description: str) -> str:
    """Explain that the directory was removed from under a running job."""
    return (
        f"the directory {layout.sink.root} of {description} was removed, emptied, moved"
        f" or unmounted while the job ran: {layout.base} does not exist"
    )


def directory_identity(layout: SinkLayout) -> tuple[int, int]:
    """Identify the directory on disk, whatever its path refers to now."""
    found = os.stat(layout.base)
    return found.st_dev, found.st_ino


def dropped_by(layout: SinkLayout) -> str | None:
    """Name the job whose save mode has removed files of this lineage; None if none has."""
    try:
        with open(layout.dropped, encoding="utf-8") as file:
            return file.read().strip() or "another job"
    except FileNotFoundError:
        return None


def refuse_links(layout: SinkLayout) -> None:
    """Check that the sink's bookkeeping consists of directories below its path.

    A link leads to another file system, where renames and hard links fail.
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
