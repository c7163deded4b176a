"""Read a file, or a part of it, as blocks of complete records in UTF-8.

Called by the readers, in tasks; opens files and does nothing else. Decompresses files, unpacks
archives, converts encodings, and compares each file with what was recorded of it: a file that
changed is never read.
"""

import codecs
import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from tidegate.connectors.localfile import lzo
from tidegate.connectors.localfile.bad_rows import (
    EXPANSION_FREE_BYTES,
    EXPANSION_RATIO_MAX,
    BadFile,
    size_text,
)
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect
from tidegate.connectors.localfile.header_checks import encoding_problem
from tidegate.connectors.localfile.record_boundaries import BLOCK_BYTES, RecordCut, find_cut
from tidegate.connectors.localfile.source_options import SUFFIXES
from tidegate.model.errors import TerminalError, TransientError
from tidegate.plugin.option import Values

_SUFFIXES_BY_FORMAT = {"csv": (".csv", ".txt"), "text": (".txt", ".csv"), "json": (".json",)}
_SPLITTABLE_ENCODINGS = (
    "utf-8",
    "ascii",
    "gbk",
    "gb2312",
    "gb18030",
    "big5",
    "shift_jis",
    "euc_jp",
    "euc_kr",
    "cp932",
    "cp949",
    "cp950",
)


class FileChanged(TerminalError):
    """A file has changed since it was planned into a batch."""

    condition = "file-changed"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what} since it was planned into a batch: files must not change while they"
            " are read"
        )
        self.path = path
        self.has_advice = False  # set by advise_recovery


@dataclass(frozen=True, slots=True)
class FilePart:
    """A range of one file: bytes of text formats, row groups or stripes of parquet and orc.

    `end` -1 is the end of the file.
    """

    path: str
    size: int
    mtime_ns: int
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """Whether this is the complete file."""
        return self.start == 0 and self.end == -1


@contextmanager
def open_part(part: FilePart) -> Iterator[IO[bytes]]:
    """Open the file of a part, after checking that it is unchanged."""
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
    """Return the codec of a text file, by the options or else by its name; empty for none.

    Files in an archive have the name of the archive.
    """
    archive, option = values["archive_compress_codec"], str(values["compress_codec"])
    if archive == "gz":
        return "gzip"
    if option != "none":
        return option
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "") if archive == "none" else ""


def is_splittable(encoding: str) -> bool:
    """Report whether newlines can be found in the bytes of an encoding without decoding it."""
    name = codecs.lookup(encoding).name.replace("_", "-")
    return name.startswith(("iso8859", "cp125", "koi8")) or name in [
        n.replace("_", "-") for n in _SPLITTABLE_ENCODINGS
    ]


class ExpansionLimit:
    """Limits how far one file may expand, by counting the decompressed bytes."""

    def __init__(self, part: FilePart, values: Mapping[str, Any]) -> None:
        ratio = int(values.get("max_expansion_ratio") or EXPANSION_RATIO_MAX)
        self.path = part.path
        self.ratio = ratio
        self.limit = max(part.size * ratio, EXPANSION_FREE_BYTES)
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count decompressed bytes; raise beyond the limit."""
        self.bytes += size
        self.check(self.bytes)

    def check(self, size: int) -> None:
        """Raise if `size` bytes are more than this file may contain."""
        if size > self.limit:
            raise BadFile(
                self.path,
                f"expands to more than {size_text(self.limit)}, {self.ratio} times its size: this"
                " may be an archive bomb; increase max_expansion_ratio if its contents are as"
                " expected",
            )


class _BoundedGzip:
    """A gzip stream below a tar archive, with limited expansion.

    The archive's index is only found by reading all of it.
    """

    def __init__(self, file: IO[bytes], expansion: ExpansionLimit) -> None:
        self.stream = gzip.GzipFile(fileobj=file, mode="rb")
        self.expansion = expansion

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.expansion.check(self.stream.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self.expansion.check(offset)
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def archive_members(
    file: IO[bytes], part: FilePart, values: Mapping[str, Any], expansion: ExpansionLimit
) -> Iterator[tuple[str, Any]]:
    """Yield the files in an archive with their names; without an archive, the file itself.

    Only files with a suffix of the format, or all files if none has one.
    """
    archive, form, path = values["archive_compress_codec"], values["file_format_type"], part.path
    try:
        match archive:
            case "zip":
                with zipfile.ZipFile(file) as packed:
                    for name in _members_of_format(
                        [i.filename for i in packed.infolist() if not i.is_dir()], form
                    ):
                        with packed.open(name) as member:
                            yield name, member
            case "tar" | "tar_gz":
                stream: Any = _BoundedGzip(file, expansion) if archive == "tar_gz" else file
                with tarfile.open(fileobj=stream, mode="r:") as tar:
                    for name in _members_of_format(
                        [m.name for m in tar.getmembers() if m.isfile()], form
                    ):
                        yield name, tar.extractfile(name)
            case _:
                yield "", file
    except RuntimeError as error:  # zipfile raises it for passwords
        raise BadFile(path, f"cannot be unpacked as {archive}: {error}") from error
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        NotImplementedError,
    ) as error:
        raise BadFile(path, f"is not a complete {archive} archive: {error}") from error


def _members_of_format(names: list[str], form: str) -> list[str]:
    shown = [n for n in names if not os.path.basename(n).startswith((".", "_"))]
    named = [n for n in shown if n.lower().endswith(_SUFFIXES_BY_FORMAT.get(form, ()))]
    return sorted(named or shown)


def read_blocks(
    file: Any, part: FilePart, codec: Any, expansion: ExpansionLimit | None = None
) -> Iterator[bytes]:
    """Yield the raw bytes of a part, in blocks; `file` is at its beginning."""
    if codec:
        for block in _decompressed(file, part, codec):
            if expansion:
                expansion.add(len(block))
            yield block
        return
    if part.start:
        file.seek(part.start)
    left = part.end - part.start if part.end >= 0 else None
    while left is None or left > 0:
        block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
        if not block:
            return
        left = None if left is None else left - len(block)
        if expansion:
            expansion.add(len(block))
        yield block


def _decompressed(file: Any, part: FilePart, codec: Any) -> Iterator[bytes]:
    if codec == "lzo":
        try:
            yield from lzo.decompressed_blocks(file)
        except ValueError as error:
            raise BadFile(part.path, f"is not a complete lzo file: {error}") from error
        return
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block
    except (OSError, ValueError) as error:
        raise BadFile(part.path, f"is not a complete {codec} file: {error}") from error


def decode_to_utf8(blocks: Iterator[bytes], encoding: str, part: FilePart) -> Iterator[bytes]:
    """Convert blocks to UTF-8; refuses a file whose beginning contradicts its encoding."""
    first = next(blocks, b"")
    problem = encoding_problem(first, encoding) if part.start == 0 else ""
    if problem:
        raise BadFile(part.path, problem)
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        if first:
            yield first
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    lines = 1
    block = first
    try:
        while block:
            text = decoder.decode(block).encode()
            lines += text.count(b"\n")
            yield text
            block = next(blocks, b"")
        yield decoder.decode(b"", True).encode()
    except UnicodeDecodeError as error:
        lines += error.object[: error.start].decode(encoding, "replace").count("\n")
        where = f" of this part (byte {part.start} on)" if part.start else ""
        wrong = error.object[error.start : error.end]
        raise BadFile(
            part.path,
            f"line {lines}{where}: the bytes {wrong!r} are not {encoding}: set `encoding`",
        ) from error


class RecordTooLong(Exception):
    """A record is longer than allowed.

    It begins at `offset` of the text; `open_at` is its unclosed quote, or -1.
    """

    def __init__(self, offset: int, open_at: int) -> None:
        super().__init__(f"a record at {offset} is too long")
        self.offset = offset
        self.open_at = open_at


class RecordBlocks:
    """Blocks that begin and end at record boundaries.

    `blocks` begin with a record; the last record may lack its terminator. `faulty` says whether a
    quote in the latest block is misplaced or unclosed.
    """

    def __init__(self, blocks: Iterator[bytes], dialect: DelimitedDialect) -> None:
        self.blocks = blocks
        self.dialect = dialect
        self.faulty = False
        self.offset = 0

    def __iter__(self) -> Iterator[bytes]:
        dialect = self.dialect
        rest = b""
        pending: list[bytes] = []
        wanted = 0
        for block in self.blocks:
            end = (
                block.rfind(dialect.terminator) + 1
                if not pending and self._unquoted(rest, block)
                else 0
            )
            if end:  # the common case, which saves a copy of the bytes
                yield self._emit(b"".join([rest, memoryview(block)[:end]]), False)
                rest = block[end:]
                continue
            pending = [*(pending or [rest]), block]
            held = sum(map(len, pending))
            if held < wanted:
                continue  # in the middle of a very long record
            joined = b"".join(pending)
            cut = find_cut(joined, dialect)
            if cut.end == 0:
                self._check(held, cut.open_at)
                pending = [joined]
                wanted = min(2 * held, dialect.record_bytes_max + 1)  # so that retries cost little
                continue
            pending, wanted = [], 0
            yield self._emit(joined[: cut.end] if cut.end < len(joined) else joined, cut.misplaced)
            rest = joined[cut.end :]
        last = b"".join(pending or [rest])
        if last:
            yield from self._last(last)

    def _last(self, block: bytes) -> Iterator[bytes]:
        """Yield what is left at the end: possibly many records, if retries were postponed."""
        cut = RecordCut(0) if self.dialect.plain else find_cut(block, self.dialect)
        if cut.end == 0:
            self._check(len(block), cut.open_at)
        yield self._emit(block, cut.misplaced or cut.open_at >= 0)

    def _unquoted(self, rest: bytes, block: bytes) -> bool:
        """Report whether every terminator in these bytes ends a record."""
        marks = [mark for mark in (self.dialect.quote, self.dialect.escape) if mark]
        return len(self.dialect.terminator) == 1 and not any(
            mark in rest or mark in block for mark in marks
        )

    def _emit(self, block: bytes, faulty: bool) -> bytes:
        self.faulty = faulty
        self.offset += len(block)
        return block

    def _check(self, held: int, open_at: int) -> None:
        if held > self.dialect.record_bytes_max:
            raise RecordTooLong(self.offset, self.offset + open_at if open_at >= 0 else -1)


def record_blocks(blocks: Iterator[bytes], dialect: DelimitedDialect) -> RecordBlocks:
    return RecordBlocks(blocks, dialect)


class _LineCounter:
    r"""Counts the lines of a text that comes in pieces; \n, \r\n and \r end a line."""

    def __init__(self) -> None:
        self.line = 1
        self.last = b""

    def add(self, piece: bytes) -> None:
        if not piece:
            return
        self.line += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
        self.line -= self.last == b"\r" and piece[:1] == b"\n"
        self.last = piece[-1:]


def line_numbers(part: FilePart, blocks: Iterator[bytes], offsets: Sequence[int]) -> list[int]:
    """Find the line numbers of offsets in a part's text.

    Reads all lines before them, so it is for errors only.
    """
    lines = _LineCounter()
    if part.start:
        with open_part(part) as file:
            for block in read_blocks(
                file, FilePart(part.path, part.size, part.mtime_ns, 0, part.start), ""
            ):
                lines.add(block)
    found: dict[int, int] = {}
    waiting = sorted(set(offsets))
    seen = 0
    for block in blocks:
        start = 0
        while waiting and waiting[0] <= seen + len(block):
            position = waiting.pop(0) - seen
            lines.add(block[start:position])
            found[seen + position] = lines.line
            start = position
        if not waiting:
            break
        lines.add(block[start:])
        seen += len(block)
    return [found.get(offset, lines.line) for offset in offsets]
