"""The bytes of a file, or of a part of it, as blocks of whole records in UTF-8. Called by the readers, in tasks; opens files and nothing else.

Codecs and archives are undone here, encodings translated, and the file is compared with what was recorded of it: a file that changed is never read.
"""

import codecs
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from tidegate.connectors.localfile import lzo
from tidegate.connectors.localfile.records import BLOCK_BYTES, Dialect, last_end
from tidegate.model.errors import TerminalError, TransientError
from tidegate.plugin.option import Values

_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4", ".br": "brotli", ".lzo": "lzo"}
_ENDINGS = {"csv": (".csv", ".txt"), "text": (".txt", ".csv"), "json": (".json",)}
_CUTTABLE = ("utf-8", "ascii", "gbk", "gb2312", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "cp932", "cp949", "cp950")


class FileChanged(TerminalError):
    """A file is not what it was when it was put into a batch."""

    condition = "file-changed"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} {what} since it was put into a batch: files must not change while they are read")
        self.path = path


class BadFile(TerminalError):
    """A file cannot be read as what the job file says it is."""

    condition = "bad-file"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one file: bytes of text formats, row groups or stripes of parquet and orc; `end` -1 is the end of the file."""

    path: str
    size: int
    mtime_ns: int
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether this is all of the file."""
        return self.start == 0 and self.end == -1


@contextmanager
def opened(part: Part) -> Iterator[IO[bytes]]:
    """The file of a part, unchanged."""
    try:
        file = open(part.path, "rb")  # noqa: SIM115  # closed below
    except FileNotFoundError:
        raise FileChanged(part.path, "is gone") from None
    except OSError as error:
        raise TransientError(f"{part.path} cannot be opened: {error.strerror}") from error
    with file:
        status = os.fstat(file.fileno())
        if status.st_size != part.size:
            raise FileChanged(part.path, f"has {status.st_size} bytes instead of {part.size}")
        if status.st_mtime_ns != part.mtime_ns:
            raise FileChanged(part.path, "was written")
        yield file


def codec_of(path: str, values: Values) -> str:
    """The codec of a text file, by the options or else by its name; empty for none. What is in an archive is named by the archive's name."""
    archive, option = values["archive_compress_codec"], str(values["compress_codec"])
    if archive == "gz":
        return "gzip"
    if option != "none":
        return option
    return _SUFFIXES.get(os.path.splitext(path)[1].lower(), "") if archive == "none" else ""


def cuttable(encoding: str) -> bool:
    """Whether newlines can be found in the bytes of an encoding without decoding it."""
    name = codecs.lookup(encoding).name.replace("_", "-")
    return name.startswith(("iso8859", "cp125", "koi8")) or name in [n.replace("_", "-") for n in _CUTTABLE]


def members(file: IO[bytes], archive: str, path: str, form: str) -> Iterator[IO[bytes]]:
    """The files in an archive: those with a name of the format, or all where none has; the file itself where it is no archive."""
    try:
        match archive:
            case "zip":
                with zipfile.ZipFile(file) as packed:
                    for name in _wanted([i.filename for i in packed.infolist() if not i.is_dir()], form):
                        with packed.open(name) as member:
                            yield member
            case "tar" | "tar_gz":
                with tarfile.open(fileobj=file, mode="r:gz" if archive == "tar_gz" else "r:") as tar:
                    for name in _wanted([m.name for m in tar.getmembers() if m.isfile()], form):
                        member_file = tar.extractfile(name)
                        assert member_file is not None  # only files are asked for
                        yield member_file
            case _:
                yield file
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise BadFile(path, f"is not a whole {archive} archive: {error}") from error


def _wanted(names: list[str], form: str) -> list[str]:
    shown = [n for n in names if not os.path.basename(n).startswith((".", "_"))]
    named = [n for n in shown if n.lower().endswith(_ENDINGS.get(form, ()))]
    return sorted(named or shown)


def bytes_of(file: Any, part: Part, codec: Any) -> Iterator[bytes]:
    """The raw bytes of a part, in blocks; `file` is at its beginning."""
    if codec == "lzo":
        try:
            yield from lzo.unpacked(file)
        except ValueError as error:
            raise BadFile(part.path, f"is not whole or not compressed with lzo: {error}") from error
        return
    if codec:
        try:
            with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
                while block := stream.read(BLOCK_BYTES):
                    yield block
        except (OSError, ValueError) as error:
            raise BadFile(part.path, f"is not whole or not compressed with {codec}: {error}") from error
        return
    if part.start:
        file.seek(part.start)
    left = part.end - part.start if part.end >= 0 else None
    while left is None or left > 0:
        block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
        if not block:
            return
        left = None if left is None else left - len(block)
        yield block


def as_utf8(blocks: Iterator[bytes], encoding: str, path: str) -> Iterator[bytes]:
    """The same text in UTF-8."""
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", True).encode()
    except UnicodeDecodeError as error:
        raise BadFile(path, f"is not written in {encoding}: {error.reason}") from error


def record_blocks(blocks: Iterator[bytes], dialect: Dialect) -> Iterator[bytes]:
    """Blocks that begin and end with records. `blocks` begin with a record; the last record may lack its terminator."""
    rest = b""
    pending: list[bytes] = []
    for block in blocks:
        if pending and dialect.plain and dialect.terminator not in block:
            pending.append(block)  # in the middle of a very long record
            continue
        joined = b"".join([rest, *pending, block])
        pending = []
        end = last_end(joined, dialect)
        if end == 0:
            rest, pending = b"", [joined]
            continue
        yield joined[:end] if end < len(joined) else joined
        rest = joined[end:]
    last = b"".join([rest, *pending])
    if last:
        yield last


def whole_text(blocks: Iterator[bytes]) -> bytes:
    """Everything, for formats that cannot be cut."""
    buffer = io.BytesIO()
    for block in blocks:
        buffer.write(block)
    return buffer.getvalue()


def line_of(part: Part, offset: int, codec: str) -> str:
    """Where a record stands, for a message: its line where the file is plain, which costs a look at all lines before it."""
    if codec:
        return ""
    lines = 1
    with opened(part) as file:
        left = part.start + offset
        while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
            lines += block.count(b"\n")
            left -= len(block)
    return f"line {lines}: "
