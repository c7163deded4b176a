"""Names and documents as they are stored: what is allowed, and the one text of each document.

Called by the front (base.py) and by follow.py only, so that all backends take and refuse the same
things. Pure.

**Checksum.** The last field of a stored document, `"~crc~"`, is the CRC-32 of its map, its key and all that stands before this field, so a
changed character, a shortened text, and a text that belongs to another key or map are found. Every backend keeps the text as it is given (SQLite
and PostgreSQL in a column of type text, etcd as bytes), so the bytes are checked and nothing is encoded twice. Documents of releases before
0.2 have no such field and are read without it; a text that was written with it and has lost it in part is damage.
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
# etcd takes requests of 1.5 MiB and 128 operations by default: what does not fit there is refused
# everywhere.
VALUE_BYTES_MAX = 1024 * 1024
OPERATIONS_MAX = 100
DEPTH_MAX = 64
CHECKSUM = "~crc~"
_SUM_START = f'"{CHECKSUM}":"'
_SUM_CHARS = len(_SUM_START) + len('01234567"}')
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def check_map(name: object) -> None:
    """Refuse a name of a map that is not lower-case words with dashes."""
    if not (isinstance(name, str) and MAP_NAME.fullmatch(name)):
        raise StoreRefused(
            f"{name!r} cannot name a map: lower-case letters, digits and dashes, a letter first, at"
            " most 63"
        )


def check_key(key: object) -> None:
    """Refuse an empty key, and what `check_prefix` refuses."""
    check_prefix(key)
    if not key:
        raise StoreRefused("a key cannot be empty")


def check_prefix(prefix: object) -> None:
    """Refuse control characters, text that is not Unicode, and what is too long."""
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
    """The JSON of a document and its checksum: names in their order (a schema is an ordered thing),
    no spaces, no NaN. Tuples become arrays.
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
    """The document of a stored text.

    What `encode` has not written for this very map and key is DocumentDamaged.
    """
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
    elif any(
        "~" in name for name in value
    ):  # no record has such a field: it is the rest of a checksum
        raise DocumentDamaged(map, key, "its checksum is damaged")
    return value


def verify(map: str, key: str, text: str) -> None:
    """DocumentDamaged where `decode` would raise it; without reading the document, where its
    checksum tells enough.
    """
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
    """json.dumps would turn the name 1 into "1" silently, and the document would not come back as
    it was.
    """
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
        if type(item) not in _PLAIN:  # most are, and every document that is written passes here
            _check_names(where, item, depth + 1)


_NAMES = frozenset({str})
_PLAIN = frozenset({str, int, float, bool, type(None)})
