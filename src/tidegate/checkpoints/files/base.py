"""The files below one root, wherever that is: what checkpoints and savepoints are written with.
Paths are relative and POSIX; the root is "".

Callers: storage, savepoints, the collector. Single acts, each of them whole or not done at all,
durable when it returns, and repeatable; the order of several, and the failpoints around them, are
the callers'. Other file systems are in fsspec_files.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import ClassVar

PARENT_RACES_MAX = 10
TEMPORARY = ".tmp"  # the end of the hidden name that a file has before it is whole


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """What stands under a name.

    A directory has no size; where the file system keeps no time for it, `modified_ms` is 0.
    """

    name: str
    directory: bool = False
    bytes: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """What a file held when it was looked at; `version` is for `swap`. It can be compared with
    nothing but itself.
    """

    data: bytes
    version: str


class Files(ABC):
    """A root and what is below it."""

    trouble: str = ""  # why the storage is waited for at this moment
    renames: ClassVar[
        bool
    ]  # whether a whole directory gets its name in one step; otherwise its files appear one by one

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All of a file; FileNotFoundError."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Put a file there, whole or not at all; replaces."""

    @abstractmethod
    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        """Put several files below a directory, by their relative names: each one whole, in no
        order.
        """

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Put a file there that nobody else has put there: False where somebody was first."""

    @abstractmethod
    def read_versioned(self, path: str) -> VersionedFile | None:
        """What a file holds, and its version; None where there is none."""

    @abstractmethod
    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """Put a file in the place of what was seen there (None: of nothing): False where that has
        changed meanwhile.
        """

    @abstractmethod
    def entries(self, path: str) -> list[FileEntry]:
        """What is in a directory, by name; nothing where it is missing."""

    @abstractmethod
    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        """Every file below a directory, with its path from the root; one after the other, never all
        at once.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Take one file away; missing is fine."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Take a directory away with all below it; missing is fine.

        OSError where something cannot be removed; the rest is gone then.
        """

    @abstractmethod
    def prune(self, path: str) -> None:
        """Take a directory away where it is empty."""

    @abstractmethod
    def move_tree(self, source: str, target: str) -> None:
        """Give a directory another name.

        Repeatable; the target must not be there, unless by a move that was broken off.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file, or a directory with something in it."""

    @abstractmethod
    def describe(self, path: str = "") -> str:
        """The absolute path or address, for people. Without passwords."""

    def copy_tree(self, source: str, target: str, last: str = "_manifest.json") -> None:
        """Copy every file below a directory, the one of this name last: it makes the others count.

        Repeatable.
        """
        final: list[str] = []
        for path, entry in self.walk(source):
            if entry.name == last:
                final.append(path)
            else:
                self.write(_moved(path, source, target), self.read(path))
        for path in final:
            self.write(_moved(path, source, target), self.read(path))


def _moved(path: str, source: str, target: str) -> str:
    return f"{target}/{PurePosixPath(path).relative_to(source)}"


def inside(path: str) -> str:
    """The path, which must not lead out of the root."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} is not a path below the root")
    return "/".join(parts)


class LocalFiles(Files):
    """Below a directory of this host, or of a network file system that is mounted on it.

    A write is: all bytes, fsync, rename, fsync of the parent.
    """

    renames = True

    def __init__(self, root: Path) -> None:
        self.root = root

    def _at(self, path: str) -> Path:
        return self.root / inside(path)

    def read(self, path: str) -> bytes:
        """All of a file; FileNotFoundError."""
        try:
            return self._at(path).read_bytes()
        except (NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(
                errno.ENOENT, "there is no such file", self.describe(path)
            ) from None

    def write(self, path: str, data: bytes) -> None:
        """Under a hidden name first, then under its own."""
        final = self._at(path)
        draft = self._draft(final, data)
        os.replace(draft, final)
        sync(final.parent)

    def _draft(self, final: Path, data: bytes) -> Path:
        draft = final.parent / f".{final.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}"
        make(final.parent)
        draft.write_bytes(data)
        sync(draft)
        return draft

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        """Straight under their names: whoever writes a tree gives it its own name afterwards."""
        top = self._at(path)
        make(top)
        written = [top / inside(name) for name in files]
        for file, data in zip(written, files.values(), strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        directories = {top} | {
            parent for file in written for parent in file.parents if parent.is_relative_to(top)
        }
        for made in (
            *written,
            *sorted(directories, reverse=True),
        ):  # after all writes: the first of them forces most of the others too
            sync(made)

    def create(self, path: str, data: bytes) -> bool:
        """By a hard link, which is refused where the name is taken."""
        final = self._at(path)
        draft = self._draft(final, data)
        try:
            os.link(draft, final)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
            sync(final.parent)
        return True

    def read_versioned(self, path: str) -> VersionedFile | None:
        """The version is the checksum."""
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return VersionedFile(data, hashlib.sha256(data).hexdigest())

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """While nobody else swaps in this directory."""
        if seen is None:
            return self.create(path, data)
        try:
            with _Locked(self._at(path).parent):
                now = self.read_versioned(path)
                if now is None or now.version != seen.version:
                    return False
                self.write(path, data)
                return True
        except FileNotFoundError:
            return False

    def entries(self, path: str) -> list[FileEntry]:
        """What is in a directory, by name; nothing where it is missing."""
        try:
            with os.scandir(self._at(path)) as found:
                entries = [entry for item in found if (entry := _entry(item)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        """Directory by directory: only the names of one, and of those above it, are in memory."""
        for entry in self.entries(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.directory:
                yield from self.walk(below)
            else:
                yield below, entry

    def remove(self, path: str) -> None:
        """Take one file away; missing is fine."""
        with contextlib.suppress(NotADirectoryError):
            self._at(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """All that can be removed is; the first thing that cannot is raised then."""
        failures: list[OSError] = []

        def note(
            _: object, __: str, error: tuple[type[BaseException], BaseException, TracebackType]
        ) -> None:
            if isinstance(error[1], OSError) and not isinstance(error[1], FileNotFoundError):
                failures.append(error[1])

        shutil.rmtree(self._at(path), onerror=note)
        if failures:
            raise failures[0]

    def prune(self, path: str) -> None:
        """Take a directory away where it is empty."""
        with contextlib.suppress(OSError):
            self._at(path).rmdir()

    def move_tree(self, source: str, target: str) -> None:
        before, after = self._at(source), self._at(target)
        if not before.exists() and after.exists():
            return
        make(after.parent)
        os.rename(before, after)
        sync(after.parent)
        sync(before.parent)

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return self._at(path).exists()

    def describe(self, path: str = "") -> str:
        return str(self._at(path))


class _Locked:
    """Alone among those who lock this directory; the lock goes with its holder's process."""

    def __init__(self, directory: Path) -> None:
        self.descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def _entry(item: "os.DirEntry[str]") -> FileEntry | None:
    """None where it went away meanwhile. Links are not followed."""
    try:
        status = item.stat(follow_symlinks=False)
        directory = item.is_dir(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return FileEntry(
        name=item.name,
        directory=directory,
        bytes=0 if directory else status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
    )


def make(directory: Path) -> None:
    """Make a directory.

    Somebody who deletes older things may take its empty parent away at the same moment.
    """
    for _ in range(PARENT_RACES_MAX):
        try:
            return directory.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
    directory.mkdir(parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the names of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
