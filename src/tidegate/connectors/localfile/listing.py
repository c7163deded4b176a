"""Which files a source reads: directories with all below them, globs, filters, and the columns that their paths hold. Called by check.py and source.py.

Only looks at names, sizes and times; never opens a file.
"""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from tidegate.model.errors import TransientError
from tidegate.plugin.javaregex import for_names
from tidegate.plugin.option import Values

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, order=True)
class FileInfo:
    """A file as it was found. Files are ordered by path."""

    path: str
    size: int
    mtime_ns: int


def local(path: str) -> str:
    """The path itself, without a `file://` in front."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def list_files(values: Values) -> list[FileInfo]:
    """All files of one table that are not empty, in the order in which they are read."""
    keep = _Filter(values)
    path = local(values["path"])
    if not os.path.exists(path) and not glob.has_magic(path):
        raise TransientError(f"{values['path']} does not exist")  # it may come back: a disk that is not mounted, a directory that is being replaced
    found = {info.path: info for root in _roots(path) for info in _walk(root) if keep.wants(info)}
    return [found[path] for path in sorted(found)]


def matches_nothing(values: Values) -> bool:
    """Whether there is no file to read at the moment."""
    try:
        keep = _Filter(values)
    except (re.error, ValueError):
        return False  # these have problems of their own
    return not any(keep.wants(info) for root in _roots(local(values["path"])) for info in _walk(root))


def file_pattern(text: str) -> re.Pattern[str]:
    """A `file_filter_pattern`, which is Java's; re.error for what is none."""
    try:
        return for_names(text)
    except ValueError as error:
        raise re.error(str(error)) from None


def partitions_of(path: str) -> dict[str, str | None]:
    """The columns that the directories of a path give: `/data/day=3/f.csv` -> day: 3."""
    pairs = [part.split("=", 1) for part in os.path.dirname(path).split("/") if "=" in part]
    return {key: None if value == _NULL_PARTITION else unquote(value) for key, value in pairs if key}


class _Filter:
    """What the options say about the names and times of files."""

    def __init__(self, values: Values) -> None:
        pattern, extension = values.get("file_filter_pattern"), values.get("filename_extension")
        self.pattern = file_pattern(pattern) if pattern else None
        self.suffix = f".{extension.lstrip('.')}" if extension else ""
        self.partitions = values.get("read_partitions") or ()
        self.start = _nanoseconds(values.get("file_filter_modified_start"))
        self.end = _nanoseconds(values.get("file_filter_modified_end"))

    def wants(self, info: FileInfo) -> bool:
        name = os.path.basename(info.path)
        return (
            info.size > 0
            and name.endswith(self.suffix)
            and (self.pattern is None or bool(self.pattern.fullmatch(name) or self.pattern.fullmatch(info.path)))
            and (not self.partitions or any(p in info.path for p in self.partitions))
            and (self.start is None or info.mtime_ns >= self.start)
            and (self.end is None or info.mtime_ns < self.end)
        )


def _nanoseconds(text: str | None) -> int | None:
    if not text:
        return None
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1_000_000_000


def _roots(path: str) -> list[str]:
    """The path where it exists as written, else all that it matches as a pattern."""
    if os.path.exists(path):
        return [os.path.abspath(path)]
    return sorted(os.path.abspath(p) for p in glob.glob(path, recursive=True) if not _hidden(os.path.basename(p.rstrip("/"))))


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _walk(root: str) -> Iterator[FileInfo]:
    if os.path.isfile(root):
        yield from _stat(root)
        return
    try:
        entries = sorted(os.scandir(root), key=lambda e: e.name)
    except FileNotFoundError:
        return  # gone since it was listed
    for entry in entries:
        if _hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _walk(entry.path)
        else:
            yield from _stat(entry.path)


def _stat(path: str) -> Iterator[FileInfo]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return  # gone since it was listed
    yield FileInfo(path, status.st_size, status.st_mtime_ns)
