"""The manifest: the files of a checkpoint with their checksums, and its own checksum.

It is plain versioned JSON.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Domain, TerminalError
from tidegate.model.records import CheckpointKind


class Damaged(TerminalError):
    """A file of a checkpoint or savepoint is missing or not what was written."""

    condition = "checkpoint-damaged"
    domain = Domain.EXTERNAL

    def __init__(self, checkpoint: str, file: str, reason: str) -> None:
        super().__init__(f"checkpoint {checkpoint} is damaged: {file} {reason}")
        self.checkpoint = checkpoint
        self.file = file
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file of a checkpoint."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The document that makes a directory a checkpoint; written last.

    `sha256` is the checksum of the document without this field. `token` identifies the driver that
    made the checkpoint, if a driver did; an empty one is not written, so that manifests of older
    releases keep their checksum.
    """

    version: int = 1
    job_id: int
    pipeline: int
    checkpoint: int
    lineage: str
    generation: int
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    begun_ms: int
    rows_read: int = 0
    rows_written: int = 0
    software: str = ""
    files: Mapping[str, FileEntry]
    sha256: str = ""
    token: str = ""


def digest(data: bytes) -> str:
    """Return the SHA-256 checksum of a file of a checkpoint."""
    return hashlib.sha256(data).hexdigest()


def encode_state(state: Any) -> bytes:
    """Encode a state document as it is stored."""
    return (
        json.dumps(state, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest, with its own checksum."""
    unsigned = replace(manifest, sha256="")
    checksum = digest(encode_state(_document(unsigned)))
    return encode_state(_document(replace(unsigned, sha256=checksum)))


def _document(manifest: Manifest) -> dict[str, Any]:
    document: dict[str, Any] = to_document(manifest)
    if not manifest.token:
        del document["token"]
    return document


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Decode and verify a manifest; Damaged says what is wrong with it."""
    name = "_manifest.json"
    if not data:
        raise Damaged(where, name, "is empty")
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("version"), int):
            raise ValueError
        manifest = from_document(Manifest, document, f"checkpoint {where}")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(where, name, "is not a manifest") from None
    if encode_manifest(manifest) != data:
        raise Damaged(where, name, "does not match its checksum")
    return manifest


def check_file(where: str, name: str, entry: FileEntry, data: bytes) -> None:
    """Raise Damaged unless these bytes are what the manifest says."""
    if len(data) != entry.bytes:
        raise Damaged(where, name, f"has {len(data)} bytes instead of {entry.bytes}")
    if digest(data) != entry.sha256:
        raise Damaged(where, name, "does not match its checksum")
