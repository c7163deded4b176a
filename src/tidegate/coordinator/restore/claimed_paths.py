"""Paths of the checkpoint storage that a restore is about to copy.

Checked by all code that deletes there: cleanup, the collector, the deletion of savepoints.
"""

from pathlib import PurePosixPath

from tidegate.model.document import from_document
from tidegate.model.records import RESTORE_CLAIMS, RestoreClaim
from tidegate.store.base import Store


def claimed_paths(store: Store) -> set[str]:
    """Return the claimed paths, relative to the storage root; each includes its subtree."""
    return {
        path
        for entry in store.list(RESTORE_CLAIMS)
        for path in from_document(
            RestoreClaim, entry.value, f"restore claim of job {entry.key}"
        ).paths
    }


def is_claimed(path: str, claimed: set[str]) -> bool:
    """Whether a path is claimed, is below a claimed path, or contains one."""
    here = PurePosixPath(path)
    return any(
        here == there or here in there.parents or there in here.parents
        for there in map(PurePosixPath, claimed)
    )
