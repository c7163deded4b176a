"""Names that the file sink gives: table and partition directories, file names.

Called by the sink and its writer. Pure: no files, no clock. Nothing that comes from data or from a
table's name can leave the directory that the job file names: such texts are escaped as Hive does.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tidegate.connectors.localfile.option_syntax import to_strptime
from tidegate.model.errors import UserError
from tidegate.plugin import placeholders

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Directory of rows without a value."""
_ALL_KEYS = "${kn}"
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_SUFFIXES = {"csv": ".csv", "text": ".txt", "json": ".json", "parquet": ".parquet", "orc": ".orc"}
_CODEC_SUFFIXES = {
    "none": "",
    "gzip": ".gz",
    "brotli": ".br",
    "zstd": ".zstd",
    "lz4": ".lz4",
    "snappy": ".snappy",
    "zlib": ".zlib",
    "bz2": ".bz2",
    "lzo": ".lzo",
}


def escape(text: str) -> str:
    """Escape any text as one component of a path.

    Hive's escapes, and no leading dot, which would hide the component or lead upwards.
    """
    escaped = _UNSAFE.sub(lambda m: f"%{ord(m[0]):02X}", text)
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def for_table(text: str, words: Mapping[str, str], *, in_path: bool = False) -> str:
    """Replace the placeholders of a text.

    In a path, values are escaped so that they cannot leave it.
    """
    return placeholders.for_table(text, words, escape if in_path else str)


def list_for_table(items: Sequence[Any] | None, words: Mapping[str, str]) -> list[str]:
    """Replace placeholders in a list; a single placeholder may expand to several names."""
    texts = [str(item) for item in items or ()]
    if len(texts) == 1 and placeholders.PLACEHOLDER.fullmatch(texts[0].strip()):
        return [part for part in for_table(texts[0].strip(), words).split(",") if part]
    return [for_table(text, words) for text in texts]


def fixed_directory(path: str) -> str:
    """Return the part of a path that is the same for all tables: before the first placeholder."""
    first = placeholders.PLACEHOLDER.search(path)
    return path if first is None else path[: first.start()].rpartition("/")[0] or "/"


def depends_on_table(path: str) -> bool:
    """Report whether tables have directories of their own."""
    return placeholders.PLACEHOLDER.search(path) is not None


def partition_directory(expression: str, keys: Sequence[str], values: Sequence[str | None]) -> str:
    """Name the directory of rows with these values, relative to the table's: `day=3/hour=4`."""
    safe = [DEFAULT_PARTITION if v is None or v == "" else escape(v) for v in values]
    if not expression.strip() or _ALL_KEYS in expression:
        return "/".join(f"{escape(k)}={v}" for k, v in zip(keys, safe, strict=True))
    words = {f"k{i}": escape(k) for i, k in enumerate(keys)} | {
        f"v{i}": v for i, v in enumerate(safe)
    }

    def word(match: re.Match[str]) -> str:
        if match[1] not in words:
            raise UserError(
                f"partition_dir_expression has {match[0]}, but partition_by has only {len(keys)}"
                " columns"
            )
        return words[match[1]]

    return "/".join(
        _visible(part, re.sub(r"\$\{([kv]\d+)\}", word, part))
        for part in expression.split("/")
        if part
    )


def _visible(pattern: str, component: str) -> str:
    """Escape the first character of a component that a value would hide or redirect.

    Readers ignore names that begin with . or _.
    """
    hidden = component.startswith(".") or (component.startswith("_") and pattern.startswith("${"))
    return f"%{ord(component[0]):02X}{component[1:]}" if hidden else component


def file_name(
    expression: str,
    *,
    transaction: str,
    transactional: bool,
    now: datetime,
    time_format: str,
    unique: str,
) -> str:
    """Make a file's name without index and suffix.

    With transactions it always contains the transaction id, which makes it unique in the lineage.
    """
    pattern = expression.strip() or "${transactionId}"
    if transactional and "${transactionId}" not in pattern:
        pattern = "${transactionId}_" + pattern
    try:
        time = now.strftime(to_strptime(time_format))
    except ValueError as error:
        raise UserError(f"filename_time_format: {error}") from error
    words = {"${transactionId}": transaction, "${now}": time, "${uuid}": unique}
    for word, text in words.items():
        pattern = pattern.replace(word, text)
    return re.sub(r"[/\x00]", lambda m: f"%{ord(m[0]):02X}", pattern)


def suffix(file_format: str, codec: str) -> str:
    """Return the suffix of a file's name.

    Columnar formats are compressed inside and have the codec before their suffix; text is
    compressed as a whole and has it at the end.
    """
    if file_format in ("parquet", "orc"):
        return _CODEC_SUFFIXES[codec] + _SUFFIXES[file_format]
    return _SUFFIXES[file_format] + _CODEC_SUFFIXES[codec].replace(".zstd", ".zst")
