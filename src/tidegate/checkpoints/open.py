"""Open the checkpoint storage that the engine's settings name.

Called by servers, drivers and the CLI, so that all of them use the same path.
"""

from collections.abc import Mapping
from pathlib import Path

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.files.local_retry import RetryingLocalFiles
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.home import Home
from tidegate.model.engine import CheckpointSettings
from tidegate.retry import Pause, no_retry

OPTION = "fsspec."  # prefix of keys that are passed on to the file system unchanged
S3_SCHEMES = ("s3", "s3a", "s3n")


def open_files(
    root: str, options: Mapping[str, str] | None = None, pause: Pause = no_retry
) -> Files:
    """Return the files below an absolute path or a URL, without connecting yet.

    UserError if its file system is not installed.
    """
    scheme, separator, _ = root.partition("://")
    if not separator:
        path = Path(root)
        return LocalFiles(path) if pause is no_retry else RetryingLocalFiles(path, pause)
    if scheme in S3_SCHEMES:
        # imported here because its packages are large and optional
        from tidegate.checkpoints.files.s3 import S3Files

        return S3Files(root, options or {}, pause)
    from tidegate.checkpoints.files.fsspec import FsspecFiles

    return FsspecFiles(
        root,
        {
            key.removeprefix(OPTION): value
            for key, value in (options or {}).items()
            if key.startswith(OPTION)
        },
        pause,
    )


def open_storage(settings: CheckpointSettings, home: Home) -> CheckpointStorage:
    """Open the storage for servers and the CLI: an unavailable storage is an error at once."""
    return CheckpointStorage(
        open_files(settings.storage_root or str(home.checkpoints), settings.storage_options)
    )
