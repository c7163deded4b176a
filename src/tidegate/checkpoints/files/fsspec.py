"""Files on anything that fsspec speaks. Caller: open.

What an exclusive write is worth depends on the file system: S3 has conditional puts (s3_files).
Elsewhere it is a look and then a write, and two writers at the very same moment are not told apart;
the store's fence, which every checkpoint passes afterwards, still holds.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, TypeVar

import fsspec

from tidegate.checkpoints.files.base import FileEntry, Files, VersionedFile, inside
from tidegate.checkpoints.files.retry import Patience, StorageUnavailable, never, retry_unavailable
from tidegate.model.errors import UserError

T = TypeVar("T")


class FsspecFiles(Files):
    """Below an address such as gs://bucket/folder. A directory appears file by file."""

    renames = False

    def __init__(self, url: str, options: Mapping[str, Any], patience: Patience = never) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        protocol = url.partition("://")[0]
        try:
            self.fs: Any = fsspec.filesystem(
                protocol, skip_instance_cache=True, use_listings_cache=False, **options
            )
        except ImportError:
            raise UserError(
                f"checkpoints on {protocol}:// need a package that is not installed: pip install"
                f" the fsspec implementation of {protocol}"
            ) from None
        except ValueError:
            raise UserError(f"{protocol}:// is not a file system that fsspec knows") from None
        self.root = str(self.fs._strip_protocol(self.url)).rstrip("/")

    def _at(self, path: str) -> str:
        return f"{self.root}/{inside(path)}".rstrip("/")

    def _do(self, act: Callable[[], T]) -> T:
        def attempt() -> T:
            try:
                return act()
            except (ConnectionError, TimeoutError) as error:
                raise StorageUnavailable(
                    f"{self.url} is out of reach: {type(error).__name__}"
                ) from None

        try:
            return retry_unavailable(attempt, self.patience, self.url, self._note)
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def read(self, path: str) -> bytes:
        """All of a file; FileNotFoundError."""
        try:
            return bytes(self._do(lambda: self.fs.cat_file(self._at(path))))
        except (IsADirectoryError, NotADirectoryError):
            raise FileNotFoundError(self.describe(path)) from None

    def write(self, path: str, data: bytes) -> None:
        """Put a file there; replaces."""
        self._do(lambda: self._pipe(path, data))

    def _pipe(self, path: str, data: bytes) -> None:
        self.fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(self._at(path), data)

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.write(f"{path}/{name}", data)

    def create(self, path: str, data: bytes) -> bool:
        """A look, then a write."""
        return self.replace_if(path, data, None)

    def read_versioned(self, path: str) -> VersionedFile | None:
        """The version is the checksum."""
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return VersionedFile(data, sha256(data).hexdigest())

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """A look, then a write."""
        if self.read_versioned(path) != seen:
            return False
        self.write(path, data)
        return True

    def entries(self, path: str) -> list[FileEntry]:
        """What is in a directory, by name; nothing where it is missing."""
        try:
            found = self._do(lambda: self.fs.ls(self._at(path), detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return []
        top = self._at(path)
        return sorted(
            (entry_of(item) for item in found if str(item["name"]).rstrip("/") != top),
            key=lambda entry: entry.name,
        )

    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        for entry in self.entries(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.directory:
                yield from self.walk(below)
            else:
                yield below, entry

    def remove(self, path: str) -> None:
        """Take one file away; missing is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._do(lambda: self.fs.rm_file(self._at(path)))

    def remove_tree(self, path: str) -> None:
        """Take a directory away with all below it."""
        with contextlib.suppress(FileNotFoundError):
            self._do(lambda: self.fs.rm(self._at(path), recursive=True))

    def prune(self, path: str) -> None:
        """Take a directory away where it is empty."""
        with contextlib.suppress(OSError):
            if not self.entries(path):
                self._do(lambda: self.fs.rmdir(self._at(path)))

    def move_tree(self, source: str, target: str) -> None:
        """Copy, then delete: what was broken off is copied again."""
        if self.exists(source):
            self.copy_tree(source, target)
            self.remove_tree(source)

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return bool(self._do(lambda: self.fs.exists(self._at(path))))

    def describe(self, path: str = "") -> str:
        return f"{self.url}/{inside(path)}".rstrip("/")


def entry_of(item: Mapping[str, Any]) -> FileEntry:
    """An entry from what a file system tells."""
    directory = item["type"] == "directory"
    name = PurePosixPath(str(item["name"])).name
    return FileEntry(
        name=name,
        directory=directory,
        bytes=0 if directory else int(item.get("size") or 0),
        modified_ms=_milliseconds(item),
    )


def _milliseconds(item: Mapping[str, Any]) -> int:
    """Every file system has its own word for the time of the last change."""
    for word in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        match item.get(word):
            case datetime() as moment:
                return int(moment.timestamp() * 1000)
            case int() | float() as seconds:
                return int(seconds * 1000)
    return 0
