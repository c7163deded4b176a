"""Determine where checkpoints are stored, from the keys of the engine's file.

Caller: engine. Pure. The result is a path, or an address such as s3://bucket/folder. `hdfs` also
means all file systems of Hadoop, the local one and S3 among them. An address as the namespace is
sufficient by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.config.engine.options import NAMESPACE, PLUGIN_CONFIG, STORAGE_TYPE
from tidegate.plugin.option import Values

LOCAL, HDFS = "localfile", "hdfs"
FOLDER = "tidegate/checkpoints"  # in a bucket, by default
# The scheme of every storage that has buckets, and the key that names one.
BUCKETS: Mapping[str, tuple[str, str]] = {
    "s3": ("s3", "s3.bucket"),
    "gcs": ("gs", "gcs.bucket"),
    "oss": ("oss", "oss.bucket"),
}
ALIASES = {"local": LOCAL, "file": LOCAL, "s3a": "s3", "s3n": "s3", "gs": "gcs"}
KEY, SECRET = "fs.s3a.access.key", "fs.s3a.secret.key"


@dataclass(frozen=True, slots=True)
class CheckpointStorageSettings:
    """Where checkpoints are stored. The root is empty if it is below the home or unknown."""

    type: str
    root: str


def checkpoint_storage(values: Values) -> CheckpointStorageSettings:
    """Determine the storage that the options mean."""
    options: Mapping[str, Any] = values[PLUGIN_CONFIG] or {}
    given = str(values[NAMESPACE] or "")
    scheme, separator, _ = given.partition("://")
    if separator and scheme != "file":
        return CheckpointStorageSettings(ALIASES.get(scheme, scheme), given.rstrip("/"))
    kind, default_fs = _kind(str(values[STORAGE_TYPE]).lower(), options)
    if kind in BUCKETS:
        return CheckpointStorageSettings(kind, _in_bucket(kind, default_fs, given, options))
    if kind == HDFS:
        return CheckpointStorageSettings(
            kind, f"{default_fs}/{given.strip('/') or FOLDER}" if default_fs else ""
        )
    path = "/" + given.removeprefix("file:").lstrip("/") if given.startswith("file:") else given
    return CheckpointStorageSettings(kind, path.rstrip("/") or path)


def _kind(kind: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind, and the address of `fs.defaultFS`."""
    default_fs = str(options.get("fs.defaultFS", "")).rstrip("/")
    if kind == HDFS:
        kind = str(options.get("storage.type", kind)).lower()
    if kind == HDFS and default_fs:
        kind = default_fs.partition(":")[0]
    return ALIASES.get(kind, kind), default_fs


def _in_bucket(kind: str, default_fs: str, given: str, options: Mapping[str, Any]) -> str:
    scheme, key = BUCKETS[kind]
    bucket = str(options.get(key) or default_fs).rpartition("://")[2].strip("/")
    return f"{scheme}://{bucket}/{given.strip('/') or FOLDER}" if bucket else ""


def storage_problems(values: Values) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield pairs of a key and what is wrong with it."""
    options: Mapping[str, Any] = values[PLUGIN_CONFIG] or {}
    where = checkpoint_storage(values)
    if where.type == LOCAL:
        if where.root and not where.root.startswith("/"):
            yield (
                (NAMESPACE,),
                (
                    "the directory for checkpoints must be an absolute path: several processes"
                    " use it, each with its own working directory"
                ),
            )
        return
    if where.type in BUCKETS and not where.root:
        yield (
            (STORAGE_TYPE,),
            f"checkpoints on {where.type} need a bucket: {PLUGIN_CONFIG}.{BUCKETS[where.type][1]}",
        )
    elif where.type == HDFS and not where.root:
        yield (
            (STORAGE_TYPE,),
            (
                f"checkpoints on hdfs need an address: {PLUGIN_CONFIG}.fs.defaultFS"
                " (hdfs://host:8020, or file:/// for local files)"
            ),
        )
    elif "://" not in where.root:
        yield (
            (STORAGE_TYPE,),
            (
                f"{where.type} is not a storage by name: use {LOCAL}, s3, gcs, oss or hdfs, or give"
                f" an address that fsspec knows as {NAMESPACE}"
            ),
        )
    if where.type == "s3" and bool(options.get(KEY)) != bool(options.get(SECRET)):
        yield (
            (PLUGIN_CONFIG,),
            (
                f"{KEY} and {SECRET} belong together: set both, or neither to use the host's own"
                " credentials"
            ),
        )
