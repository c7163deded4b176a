"""Names and documents as they are stored: what is allowed, and the one text of each document.

Called by the front (base.py) only, so that all backends take and refuse the same things. Pure.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from tidegate.store.errors import StoreDamaged, StoreRefused

MAP_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
KEY_BYTES_MAX = 512
# etcd takes requests of 1.5 MiB and 128 operations by default: what does not fit there is refused everywhere.
VALUE_BYTES_MAX = 1024 * 1024
OPERATIONS_MAX = 100
DEPTH_MAX = 64
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def check_map(name: object) -> None:
    """Refuse a name of a map that is not lower-case words with dashes."""
    if not (isinstance(name, str) and MAP_NAME.fullmatch(name)):
        raise StoreRefused(f"{name!r} cannot name a map: lower-case letters, digits and dashes, a letter first, at most 63")


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
        raise StoreRefused(f"the key {prefix!r} holds half a surrogate pair, which is not text") from error
    if size > KEY_BYTES_MAX:
        raise StoreRefused(f"the key {prefix[:40]!r}... has {size} bytes, and at most {KEY_BYTES_MAX} are taken")
    if CONTROL.search(prefix):
        raise StoreRefused(f"the key {prefix!r} holds a control character")


def encode(map: str, key: str, value: dict[str, Any]) -> str:
    """The JSON of a document: names in their order (a schema is an ordered thing), no spaces, no NaN. Tuples become arrays."""
    where = f"the value of {map}/{key}"
    if not isinstance(value, dict):
        raise StoreRefused(f"{where} is a {type(value).__name__}; every value is a JSON object")
    _check_names(where, value, 1)
    try:
        text = _JSON.encode(value)
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise StoreRefused(f"{where} is not JSON: {error}") from error
    if size > VALUE_BYTES_MAX:
        raise StoreRefused(f"{where} has {size} bytes of JSON, and at most {VALUE_BYTES_MAX} are taken")
    return text


def decode(map: str, key: str, text: str) -> dict[str, Any]:
    """The document of a stored text. Anything but an object is damage: `encode` never writes it."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise StoreDamaged(f"the stored value of {map}/{key} is not JSON ({error}); the store is damaged") from error
    if not isinstance(value, dict):
        raise StoreDamaged(f"the stored value of {map}/{key} is not a JSON object; the store is damaged")
    return value


def _check_names(where: str, value: object, depth: int) -> None:
    """json.dumps would turn the name 1 into "1" silently, and the document would not come back as it was."""
    if depth > DEPTH_MAX:
        raise StoreRefused(f"{where} is nested more than {DEPTH_MAX} deep")
    items: Iterable[object] = ()
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise StoreRefused(f"{where} is not JSON: the name {name!r} of a field is not text")
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    for item in items:
        if type(item) not in _PLAIN:  # most are, and every document that is written passes here
            _check_names(where, item, depth + 1)


_PLAIN = frozenset({str, int, float, bool, type(None)})
