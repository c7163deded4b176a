"""The door to the checkpoint storage that the engine's settings name: for servers, drivers and the
CLI, so that all of them mean the same place.
"""

from collections.abc import Mapping
from pathlib import Path

from tidegate.checkpoints.files.base import Files, LocalFiles
from tidegate.checkpoints.files.local import WaitedForFiles
from tidegate.checkpoints.files.retry import Patience, never
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.home import Home
from tidegate.model.engine import CheckpointSettings

OPTION = "fsspec."  # the beginning of keys that are handed to the file system as they are
S3_SCHEMES = ("s3", "s3a", "s3n")


def open_files(
    root: str, options: Mapping[str, str] | None = None, patience: Patience = never
) -> Files:
    """The files below an absolute path or an address.

    Nothing is reached for yet. UserError where its file system is not installed.
    """
    scheme, separator, _ = root.partition("://")
    if not separator:
        return LocalFiles(Path(root)) if patience is never else WaitedForFiles(Path(root), patience)
    if scheme in S3_SCHEMES:
        from tidegate.checkpoints.files.s3 import (
            S3Files,
        )  # here: its packages are large, and optional

        return S3Files(root, options or {}, patience)
    from tidegate.checkpoints.files.fsspec import FsspecFiles

    return FsspecFiles(
        root,
        {
            key.removeprefix(OPTION): value
            for key, value in (options or {}).items()
            if key.startswith(OPTION)
        },
        patience,
    )


def open_storage(settings: CheckpointSettings, home: Home) -> CheckpointStorage:
    """For whoever answers to people: what is out of reach is an error at once."""
    return CheckpointStorage(
        open_files(settings.storage_root or str(home.checkpoints), settings.storage_options)
    )
