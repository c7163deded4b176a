"""Checkpoint files on any file system that fsspec supports. Caller: open.

`create` and `replace_if` are a read and then a write, so they do not exclude a writer at the same
moment (s3.py does, by conditional puts). Checkpoints stay correct, because each of them is recorded
in the store afterwards, under the fence of its generation.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, TypeVar

import fsspec

from tidegate.checkpoints.files.base import FileEntry, Files, VersionedFile, inside
from tidegate.checkpoints.files.errors import StorageUnavailable
from tidegate.checkpoints.files.retry import retry_unavailable
from tidegate.model.errors import UserError
from tidegate.retry import Pause, no_retry

T = TypeVar("T")


class FsspecFiles(Files):
    """Files below a URL such as gs://bucket/folder."""

    renames = False

    def __init__(self, url: str, options: Mapping[str, Any], pause: Pause = no_retry) -> None:
        self.url = url.rstrip("/")
        self.pause = pause
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
                    f"{self.url} is unavailable: {type(error).__name__}"
                ) from None

        try:
            return retry_unavailable(attempt, self.pause, self.url, self._note)
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def read(self, path: str) -> bytes:
        try:
            return bytes(self._do(lambda: self.fs.cat_file(self._at(path))))
        except (IsADirectoryError, NotADirectoryError):
            raise FileNotFoundError(self.describe(path)) from None

    def write(self, path: str, data: bytes) -> None:
        self._do(lambda: self._pipe(path, data))

    def _pipe(self, path: str, data: bytes) -> None:
        self.fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(self._at(path), data)

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.write(f"{path}/{name}", data)

    def create(self, path: str, data: bytes) -> bool:
        return self.replace_if(path, data, None)

    def read_versioned(self, path: str) -> VersionedFile | None:
        """The version is the SHA-256 checksum of the content."""
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return VersionedFile(data, sha256(data).hexdigest())

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """Read, compare, then write: not atomic."""
        if self.read_versioned(path) != seen:
            return False
        self.write(path, data)
        return True

    def entries(self, path: str) -> list[FileEntry]:
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
        with contextlib.suppress(FileNotFoundError):
            self._do(lambda: self.fs.rm_file(self._at(path)))

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._do(lambda: self.fs.rm(self._at(path), recursive=True))

    def prune(self, path: str) -> None:
        with contextlib.suppress(OSError):
            if not self.entries(path):
                self._do(lambda: self.fs.rmdir(self._at(path)))

    def move_tree(self, source: str, target: str) -> None:
        """Copy, then delete: an interrupted move is copied again."""
        if self.exists(source):
            self.copy_tree(source, target)
            self.remove_tree(source)

    def exists(self, path: str) -> bool:
        return bool(self._do(lambda: self.fs.exists(self._at(path))))

    def describe(self, path: str = "") -> str:
        return f"{self.url}/{inside(path)}".rstrip("/")


def entry_of(item: Mapping[str, Any]) -> FileEntry:
    """Convert one item of an fsspec listing."""
    directory = item["type"] == "directory"
    name = PurePosixPath(str(item["name"])).name
    return FileEntry(
        name=name,
        directory=directory,
        bytes=0 if directory else int(item.get("size") or 0),
        modified_ms=_milliseconds(item),
    )


def _milliseconds(item: Mapping[str, Any]) -> int:
    """Return the modification time; each file system has its own key for it."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        match item.get(key):
            case datetime() as moment:
                return int(moment.timestamp() * 1000)
            case int() | float() as seconds:
                return int(seconds * 1000)
    return 0
