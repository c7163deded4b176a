"""Checkpoint files on a local disk or a mounted network file system."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from tidegate.checkpoints.files.base import FileEntry, Files, VersionedFile, inside

PARENT_RACES_MAX = 10
TEMPORARY = ".tmp"  # suffix of the hidden name that a file has until it is complete


class LocalFiles(Files):
    """Files below a directory of this host or of a mounted network file system.

    A write is: all bytes, fsync, rename, fsync of the parent.
    """

    renames = True

    def __init__(self, root: Path) -> None:
        self.root = root

    def _at(self, path: str) -> Path:
        return self.root / inside(path)

    def read(self, path: str) -> bytes:
        try:
            return self._at(path).read_bytes()
        except (NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(
                errno.ENOENT, "there is no such file", self.describe(path)
            ) from None

    def write(self, path: str, data: bytes) -> None:
        """Write under a hidden name, then rename."""
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
        """Write directly under the final names: the caller renames the tree afterwards."""
        top = self._at(path)
        make(top)
        written = [top / inside(name) for name in files]
        for file, data in zip(written, files.values(), strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        directories = {top} | {
            parent for file in written for parent in file.parents if parent.is_relative_to(top)
        }
        # fsync after all writes: the first one forces most of the others too
        for made in (*written, *sorted(directories, reverse=True)):
            sync(made)

    def create(self, path: str, data: bytes) -> bool:
        """Create a hard link, which fails if the name exists."""
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
        """The version is the SHA-256 checksum of the content."""
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return VersionedFile(data, hashlib.sha256(data).hexdigest())

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """Compare and write under a lock of the parent directory."""
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
        try:
            with os.scandir(self._at(path)) as found:
                entries = [entry for item in found if (entry := _entry(item)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        """Iterate depth first: one directory and those above it are in memory."""
        for entry in self.entries(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.directory:
                yield from self.walk(below)
            else:
                yield below, entry

    def remove(self, path: str) -> None:
        with contextlib.suppress(NotADirectoryError):
            self._at(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove what can be removed, then raise the first error."""
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
        """Whether there is a file or a directory, also an empty one."""
        return self._at(path).exists()

    def describe(self, path: str = "") -> str:
        return str(self._at(path))


class _Locked:
    """An exclusive lock on a directory; the kernel releases it if the process dies."""

    def __init__(self, directory: Path) -> None:
        self.descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def _entry(item: "os.DirEntry[str]") -> FileEntry | None:
    """Return the entry, or None if it was removed meanwhile. Links are not followed."""
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
    """Create a directory and its parents.

    Repeated, because a process that deletes old checkpoints may remove an empty parent meanwhile.
    """
    for _ in range(PARENT_RACES_MAX):
        try:
            return directory.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
    directory.mkdir(parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the entries of a directory, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
