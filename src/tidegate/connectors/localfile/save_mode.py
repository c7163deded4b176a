"""Apply schema_save_mode and data_save_mode to an existing directory, once per lineage.

Called by the committer: for a plain `path` when a fresh lineage opens, for a path with placeholders
before the first files of a table get their names.

Only files that are older than the lineage are affected. Their age is compared with the change time
of its `started` mark, which nobody can set by hand. So a generation that was believed dead and
continues to remove files cannot hit those that its successor has published.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.connectors.localfile.durable_io import (
    Created,
    discard,
    make_directory,
    remove_empty,
    sync,
    sync_all,
    touch,
)
from tidegate.connectors.localfile.lineage_cleanup import stop_other_writers
from tidegate.connectors.localfile.sink_layout import SinkLayout
from tidegate.failpoint import failpoint
from tidegate.model.errors import UserError


class DirectoryNotPrepared(UserError):
    """The directory is not in the state that the save mode requires."""

    condition = "save-mode"


@dataclass(frozen=True, slots=True)
class SaveMode:
    schema: str
    data: str

    @property
    def is_noop(self) -> bool:
        """Report whether there is nothing to check and nothing to remove."""
        return self.data == "APPEND_DATA" and self.schema in (
            "CREATE_SCHEMA_WHEN_NOT_EXIST",
            "IGNORE",
        )

    def check_exists(self, directory: str) -> None:
        if self.schema == "ERROR_WHEN_SCHEMA_NOT_EXIST" and not os.path.isdir(directory):
            raise DirectoryNotPrepared(
                f"the directory {directory} does not exist, and schema_save_mode is"
                " ERROR_WHEN_SCHEMA_NOT_EXIST"
            )

    def start(self, layout: SinkLayout) -> None:
        """Mark the begin of a fresh lineage: newer files are ours or of a later writer."""
        if not self.is_noop and isinstance(touch(layout.started), Created):
            sync(layout.base)

    def prepare(self, layout: SinkLayout, directory: str) -> None:
        """Apply the modes to a table's directory.

        Does nothing if that was done before in this lineage, or if the lineage did not begin fresh.
        """
        done_marker = layout.prepared(directory)
        if self.is_noop or os.path.exists(done_marker) or not os.path.exists(layout.started):
            return
        self.check_exists(directory)
        failpoint("filesink.prepare.before")
        cutoff_ns = os.stat(layout.started).st_ctime_ns
        if self.data == "ERROR_WHEN_DATA_EXISTS" and self.schema != "RECREATE_SCHEMA":
            self._refuse_data(directory, cutoff_ns)
        if self.schema == "RECREATE_SCHEMA" or self.data == "DROP_DATA":
            removed = _files_to_drop(directory, cutoff_ns)
            stop_other_writers(layout, removed)
            _drop(directory, removed)
        failpoint("filesink.prepare.middle")
        parents = make_directory(directory) + make_directory(os.path.dirname(done_marker))
        touch(done_marker)
        sync_all([*parents, os.path.dirname(done_marker)])
        failpoint("filesink.prepare.after")

    @staticmethod
    def _refuse_data(directory: str, cutoff_ns: int) -> None:
        found = next(_old_files(directory, cutoff_ns), None)
        if found is not None:
            raise DirectoryNotPrepared(
                f"{directory} already contains files, such as {found}, and data_save_mode is"
                " ERROR_WHEN_DATA_EXISTS"
            )


def _walk(directory: str) -> Iterator[tuple[str, list[str]]]:
    """Yield every directory below, children first, with its files.

    Hidden directories and links to directories are not entered.
    """
    for at, below, files in os.walk(directory, topdown=False):
        hidden = any(
            part.startswith(".")
            for part in os.path.relpath(at, directory).split(os.sep)
            if part != "."
        )
        if not hidden:
            links = [name for name in below if os.path.islink(os.path.join(at, name))]
            yield at, [name for name in files if name not in links and not name.startswith(".")]


def _old_files(directory: str, cutoff_ns: int) -> Iterator[str]:
    for at, files in _walk(directory):
        for name in files:
            path = os.path.join(at, name)
            if os.lstat(path).st_ctime_ns <= cutoff_ns:
                yield path


def _files_to_drop(directory: str, cutoff_ns: int) -> list[str]:
    if os.path.dirname(directory) == directory:
        raise DirectoryNotPrepared(
            "the root of the file system cannot be emptied: set `path` to a directory below it"
        )
    return list(_old_files(directory, cutoff_ns))


def _drop(directory: str, removed: Sequence[str]) -> None:
    for path in removed:
        discard(path)
    sync_all({os.path.dirname(path) for path in removed})
    for at, _ in list(_walk(directory)):
        if at != directory:
            remove_empty(at)
