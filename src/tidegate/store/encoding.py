"""Names and documents as they are stored: validation, encoding and checksums. Pure.

Called by base.py and follow.py only, so that all backends accept and reject the same input.

**Checksum.** The last field of a stored document, `"~crc~"`, is the CRC-32 of its map, its key and
everything before this field. It detects changed characters, truncated text, and text that belongs
to another key or map. Every backend keeps the text unchanged (SQLite and PostgreSQL in a column of
type text, etcd as bytes), so the bytes are verified without encoding again. Documents of releases
before 0.2 have no such field and are accepted without it; a text with a partial field is damaged.
"""

import json
import re
import zlib
from collections.abc import Iterable
from typing import Any

from tidegate.store.errors import DocumentDamaged, StoreRefused

MAP_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
KEY_BYTES_MAX = 512
# etcd accepts requests of 1.5 MiB and 128 operations by default; the limits hold for all backends
VALUE_BYTES_MAX = 1024 * 1024
OPERATIONS_MAX = 100
DEPTH_MAX = 64
CHECKSUM = "~crc~"
_SUM_START = f'"{CHECKSUM}":"'
_SUM_CHARS = len(_SUM_START) + len('01234567"}')
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def check_map(name: object) -> None:
    """Reject a map name that is not lower-case words with dashes."""
    if not (isinstance(name, str) and MAP_NAME.fullmatch(name)):
        raise StoreRefused(
            f"{name!r} cannot name a map: lower-case letters, digits and dashes, a letter first, at"
            " most 63"
        )


def check_key(key: object) -> None:
    """Reject an empty key, and what `check_prefix` rejects."""
    check_prefix(key)
    if not key:
        raise StoreRefused("a key cannot be empty")


def check_prefix(prefix: object) -> None:
    """Reject control characters, text that is not Unicode, and text that is too long."""
    if not isinstance(prefix, str):
        raise StoreRefused(f"a key is text, and {prefix!r} is not")
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError as error:
        raise StoreRefused(
            f"the key {prefix!r} holds half a surrogate pair, which is not text"
        ) from error
    if size > KEY_BYTES_MAX:
        raise StoreRefused(
            f"the key {prefix[:40]!r}... has {size} bytes, and at most {KEY_BYTES_MAX} are taken"
        )
    if CONTROL.search(prefix):
        raise StoreRefused(f"the key {prefix!r} holds a control character")


def encode(map: str, key: str, value: dict[str, Any]) -> str:
    """Encode a document as JSON with its checksum: no spaces, no NaN; tuples become arrays.

    The order of names is kept, because schemas are ordered.
    """
    where = f"the value of {map}/{key}"
    if not isinstance(value, dict):
        raise StoreRefused(f"{where} is a {type(value).__name__}; every value is a JSON object")
    _check_names(where, value, 1)
    if CHECKSUM in value:
        raise StoreRefused(f"{where} has a field {CHECKSUM!r}, which is the store's own")
    try:
        text = _JSON.encode(value)
        head = f"{text[:-1]}," if value else "{"
        data = head.encode()
    except (TypeError, ValueError) as error:
        raise StoreRefused(f"{where} is not JSON: {error}") from error
    if len(data) > VALUE_BYTES_MAX:
        raise StoreRefused(
            f"{where} has {len(data)} bytes of JSON, and at most {VALUE_BYTES_MAX} are taken"
        )
    return f'{head}{_SUM_START}{_checksum(map, key, data):08x}"}}'


def decode(map: str, key: str, text: str) -> dict[str, Any]:
    """Decode a stored text; DocumentDamaged unless `encode` wrote it for this map and key."""
    summed = text.startswith(_SUM_START, len(text) - _SUM_CHARS)
    if summed:
        _verify(map, key, text)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DocumentDamaged(map, key, f"it is not JSON: {error}") from error
    except RecursionError:
        raise DocumentDamaged(map, key, f"it is nested more than {DEPTH_MAX} deep") from None
    if not isinstance(value, dict):
        raise DocumentDamaged(map, key, "it is not a JSON object")
    if summed:
        del value[CHECKSUM]
    elif any("~" in name for name in value):  # no record has such a field: a damaged checksum
        raise DocumentDamaged(map, key, "its checksum is damaged")
    return value


def verify(map: str, key: str, text: str) -> None:
    """Raise DocumentDamaged if `decode` would; if possible, by the checksum alone."""
    if text.startswith(_SUM_START, len(text) - _SUM_CHARS):
        _verify(map, key, text)
    else:
        decode(map, key, text)


def _verify(map: str, key: str, text: str) -> None:
    try:
        # As `_checksum`, in one pass.
        found = zlib.crc32(f"{map}/{key}{text[:-_SUM_CHARS]}".encode())
    except UnicodeEncodeError as error:
        raise DocumentDamaged(map, key, "it is not text") from error
    if text[-10:] != f'{found:08x}"}}':
        raise DocumentDamaged(
            map, key, "its checksum does not match: it was changed, or it belongs to another key"
        )


def _checksum(map: str, key: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{map}/{key}".encode(errors="replace")))


def _check_names(where: str, value: object, depth: int) -> None:
    """Reject names that are not text: json.dumps would silently turn 1 into "1"."""
    if depth > DEPTH_MAX:
        raise StoreRefused(f"{where} is nested more than {DEPTH_MAX} deep")
    items: Iterable[object] = ()
    if isinstance(value, dict):
        if not _NAMES.issuperset(map(type, value)):
            for name in value:
                if not isinstance(name, str):
                    raise StoreRefused(
                        f"{where} is not JSON: the name {name!r} of a field is not text"
                    )
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    for item in items:
        if type(item) not in _PLAIN:  # most are; this is a hot path
            _check_names(where, item, depth + 1)


_NAMES = frozenset({str})
_PLAIN = frozenset({str, int, float, bool, type(None)})
