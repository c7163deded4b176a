"""List the files of a source: recursion, globs, filters, and columns encoded in paths.

Called by option_checks.py and source.py. Reads names, sizes and times; never opens a file. A link
to a file is read under the link's own path, unless the file itself is listed too.
"""

import errno
import glob
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from urllib.parse import unquote

from tidegate.model.errors import SourceUnreachable, TransientError
from tidegate.plugin.javaregex import compile_for_names
from tidegate.plugin.option import Values

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, order=True)
class FileInfo:
    """A listed file. Files are ordered by path."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int = field(default=0, compare=False)
    link: bool = field(default=False, compare=False)


def local_path(path: str) -> str:
    """Remove a leading `file://` from a path."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileListing:
    """The files of one table in order of their paths, their mount points, and broken links."""

    files: list[FileInfo]
    mounts: frozenset[str] = frozenset()
    broken: tuple[str, ...] = ()


def list_files(values: Values) -> list[FileInfo]:
    """List all non-empty files of one table in the order in which they are read."""
    return scan(values).files


def scan(values: Values) -> FileListing:
    """List one table.

    SourceUnreachable if its directory, or one below it, does not exist or cannot be read.
    """
    keep = _Filter(values)
    path = local_path(values["path"])
    if not os.path.exists(path) and not glob.has_magic(path):
        raise SourceUnreachable(
            f"{values['path']} does not exist: mount or restore it, or correct `path`"
        )
    walk = _DirectoryWalk(recursive=_is_recursive(values))
    found = {info.path: info for info in _files_under(path, walk) if keep.accepts(info)}
    files = _without_duplicates([found[path] for path in sorted(found)])
    broken = tuple(link for link in walk.broken if keep.matches_name(link))
    return FileListing(files=files, mounts=frozenset(walk.mounts), broken=broken)


def matches_nothing(values: Values) -> bool:
    """Report whether there is no file to read at the moment."""
    try:
        keep = _Filter(values)
    except (re.error, ValueError):
        return False  # reported as a problem of the option
    try:
        found = _files_under(
            local_path(values["path"]), _DirectoryWalk(recursive=_is_recursive(values))
        )
        return not any(keep.accepts(info) for info in found)
    except TransientError:
        return False  # reported when it is read


def file_pattern(text: str) -> re.Pattern[str]:
    """Compile a `file_filter_pattern` in Java's syntax; re.error if it is invalid."""
    try:
        return compile_for_names(text)
    except ValueError as error:
        raise re.error(str(error)) from None


def partitions_of(path: str) -> dict[str, str | None]:
    """Extract columns from the directories of a path: `/data/day=3/f.csv` -> day: 3."""
    pairs = [part.split("=", 1) for part in os.path.dirname(path).split("/") if "=" in part]
    return {
        key: None if value == _NULL_PARTITION else unquote(value) for key, value in pairs if key
    }


class _Filter:
    """Filters files by the options on names and times."""

    def __init__(self, values: Values) -> None:
        pattern, extension = values.get("file_filter_pattern"), values.get("filename_extension")
        self.pattern = file_pattern(pattern) if pattern else None
        self.suffix = f".{extension.lstrip('.')}" if extension else ""
        self.partitions = values.get("read_partitions") or ()
        self.start = _nanoseconds(values.get("file_filter_modified_start"))
        self.end = _nanoseconds(values.get("file_filter_modified_end"))

    def matches_name(self, path: str) -> bool:
        """Report whether a file with this name is read."""
        name = os.path.basename(path)
        return (
            name.endswith(self.suffix)
            and (
                self.pattern is None
                or bool(self.pattern.fullmatch(name) or self.pattern.fullmatch(path))
            )
            and (not self.partitions or any(p in path for p in self.partitions))
        )

    def accepts(self, info: FileInfo) -> bool:
        return (
            info.size > 0
            and self.matches_name(info.path)
            and (self.start is None or info.mtime_ns >= self.start)
            and (self.end is None or info.mtime_ns < self.end)
        )


def _nanoseconds(text: str | None) -> int | None:
    if not text:
        return None
    return (
        int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
        * 1_000_000_000
    )


def fixed_directory(path: str) -> str:
    """Return a path itself, or the directory before its first pattern."""
    path = local_path(path)
    if os.path.exists(path) or not glob.has_magic(path):
        return path
    fixed: list[str] = []
    for part in path.split("/"):
        if glob.has_magic(part):
            break
        fixed.append(part)
    return "/".join(fixed) or ("/" if path.startswith("/") else ".")


def _files_under(path: str, walk: "_DirectoryWalk") -> Iterator[FileInfo]:
    """Yield the files of an existing path, else of all that it matches as a pattern."""
    if "**" in path and not os.path.exists(path):
        yield from _matching(path, walk)
        return
    roots = [path] if os.path.exists(path) else glob.glob(path)
    for root in sorted(map(os.path.abspath, roots)):
        if root == os.path.abspath(path) or not _hidden(os.path.basename(root)):
            yield from walk.files(root)
    yield from walk.linked_files()


def _matching(path: str, walk: "_DirectoryWalk") -> Iterator[FileInfo]:
    """Yield the files that a pattern with ** matches, or whose directory it matches.

    Does not use glob, which follows a link to a parent directory repeatedly.
    """
    root, recursive = os.path.abspath(fixed_directory(path)), walk.recursive
    pattern = _glob_pattern(os.path.join(root, os.path.relpath(os.path.abspath(path), root)))
    walk.recursive = True
    for info in chain(walk.files(root), walk.linked_files()):
        path_or_parent = info.path
        parents = 0
        while len(path_or_parent) > len(root) and not pattern.fullmatch(path_or_parent):
            path_or_parent = os.path.dirname(path_or_parent)
            parents += 1
        if len(path_or_parent) > len(root) and (recursive or parents <= 1):
            yield info


def _glob_pattern(path: str) -> re.Pattern[str]:
    """Translate a glob pattern to a regular expression.

    * and ? stop at a slash, **/ is any number of directories.
    """
    tokens = re.findall(r"\*\*/?|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[", path)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(known.get(token) or _class_or_text(token) for token in tokens), re.DOTALL
    )


def _class_or_text(token: str) -> str:
    if not (token.startswith("[") and token.endswith("]")):
        return re.escape(token)
    negated = token.startswith("[!")
    inside = re.sub(r"([\[\]\\^&~|])", r"\\\1", token[1 + negated : -1])
    return f"[{'^' * negated}{inside}]"


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_recursive(values: Values) -> bool:
    return bool(values.get("recursive_file_scan", True))


class _DirectoryWalk:
    """Walks directories.

    Each real directory is read once, under its own path even if links lead to it too; so links to a
    parent directory do no harm. Links to directories are followed last.
    """

    def __init__(self, *, recursive: bool) -> None:
        self.recursive = recursive
        self.mounts: set[str] = set()
        self.broken: list[str] = []
        self._links: list[str] = []
        self._read: set[tuple[int, int]] = set()

    def files(self, root: str) -> Iterator[FileInfo]:
        """Yield the files below a root, without following links to directories.

        A root that is a link was named by the user: it is followed at once.
        """
        status = self._status(root)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield _info(root, status)
            return
        self.mounts.add(_mount_of(root))
        yield from self._directory(root, status)

    def linked_files(self) -> Iterator[FileInfo]:
        """Yield the files behind links to directories, and behind links in there."""
        while self._links:
            links, self._links = sorted(self._links), []
            for link in links:
                yield from self.files(link)

    def _directory(self, path: str, status: os.stat_result) -> Iterator[FileInfo]:
        if (status.st_dev, status.st_ino) in self._read:
            return
        self._read.add((status.st_dev, status.st_ino))
        for entry in _entries(path):
            below = self._status(entry.path)
            if below is None:
                continue
            if not stat.S_ISDIR(below.st_mode):
                yield _info(entry.path, below, link=entry.is_symlink())
            elif self.recursive and entry.is_symlink():
                self._links.append(entry.path)
            elif self.recursive:
                if below.st_dev != status.st_dev and os.path.ismount(entry.path):
                    self.mounts.add(entry.path)
                yield from self._directory(entry.path, below)

    def _status(self, path: str) -> os.stat_result | None:
        """Return the status of a path; None for a deleted file or a broken link."""
        try:
            return os.stat(path)
        except OSError as error:
            if os.path.islink(path) and error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                self.broken.append(path)
                return None
            if error.errno == errno.ENOENT:
                return None
            raise SourceUnreachable(f"{path} cannot be read: {error.strerror}") from error


def _entries(path: str) -> list["os.DirEntry[str]"]:
    """List the visible entries of a directory."""
    try:
        return sorted(
            (entry for entry in os.scandir(path) if not _hidden(entry.name)), key=lambda e: e.name
        )
    except FileNotFoundError:
        return []  # gone since it was listed
    except OSError as error:
        raise SourceUnreachable(
            f"{path} cannot be listed: {error.strerror}; nothing is read until it can be listed"
        ) from error


def _info(path: str, status: os.stat_result, *, link: bool = False) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, link)


def _mount_of(path: str) -> str:
    """Return the mount point of a directory."""
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _without_duplicates(files: list[FileInfo]) -> list[FileInfo]:
    """Remove links to files that are listed anyway, or to which another link leads.

    So no row is read twice.
    """
    links = [info for info in files if info.link]
    if not links:
        return files
    wanted = {(info.size, info.mtime_ns) for info in links}
    known = {
        _identity(info.path)
        for info in files
        if not info.link and (info.size, info.mtime_ns) in wanted
    }
    second = set()
    for info in links:
        identity = _identity(info.path)
        if identity in known:
            second.add(info.path)
        known.add(identity)
    return [info for info in files if info.path not in second]


def _identity(path: str) -> tuple[int, int] | str:
    try:
        status = os.stat(path)
    except OSError:
        return path  # gone since it was listed
    return status.st_dev, status.st_ino
