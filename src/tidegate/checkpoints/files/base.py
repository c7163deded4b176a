"""The files below the root of the checkpoint storage, on any file system.

Checkpoints and savepoints are written with them. Callers: storage, savepoints, the collector.
Paths are relative and POSIX; the root is "". Each operation is atomic, repeatable, and durable when
it returns. The order of several operations, and the failpoints around them, belong to the callers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file or directory of a listing.

    A directory has no size; where the file system keeps no time for it, `modified_ms` is 0.
    """

    name: str
    directory: bool = False
    bytes: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """Content and version of a file when it was read; for `replace_if`.

    A version can be compared only with versions of the same file system.
    """

    data: bytes
    version: str


class Files(ABC):
    """The root of a storage and the files below it."""

    trouble: str = ""
    """Why the storage is unavailable at this moment, while an operation is being retried."""
    renames: ClassVar[bool]
    """Whether a directory can be renamed in one step; otherwise its files appear one by one."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Read a whole file. FileNotFoundError if it is missing."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically."""

    @abstractmethod
    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        """Write several files below a directory, by their relative names.

        Each file is written whole; their order is not defined.
        """

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Write a file unless it exists; return whether it was written."""

    @abstractmethod
    def read_versioned(self, path: str) -> VersionedFile | None:
        """Read a file and its version; None if it is missing."""

    @abstractmethod
    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """Write a file if it is unchanged since it was read; return whether it was written.

        `seen` is None if the file was missing.
        """

    @abstractmethod
    def entries(self, path: str) -> list[FileEntry]:
        """List a directory, sorted by name; empty if it is missing."""

    @abstractmethod
    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        """Iterate over all files below a directory, with their paths from the root.

        The listing is never held in memory as a whole.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove one file; it may be missing."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; it may be missing.

        If something cannot be removed, the rest is removed and OSError is raised.
        """

    @abstractmethod
    def prune(self, path: str) -> None:
        """Remove a directory if it is empty."""

    @abstractmethod
    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory.

        Repeatable. The target must not exist, except from an interrupted move of the same source.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file, or a directory that is not empty."""

    @abstractmethod
    def describe(self, path: str = "") -> str:
        """Return the absolute path or URL for messages, without passwords."""

    def copy_tree(self, source: str, target: str, last: str = "_manifest.json") -> None:
        """Copy every file below a directory; repeatable.

        Files named `last` are copied after all others, because they make the others valid.
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
    """Return the path; ValueError if it leads out of the root."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} is not a path below the root")
    return "/".join(parts)
