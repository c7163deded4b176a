"""Secret options in a plan: packed where the plan is made, unpacked where an operator is built, so that no record, file or answer shows them by chance.

An address that holds a password is packed as a whole, whatever its option is called. Packed is not encrypted: whoever may read the store can undo it, as a
driver must. The store and the home directory are what has to be guarded.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

from tidegate.model.plan import Plan
from tidegate.plugin.option import OptionSet, Values

MASK = "******"
# Names of entries whose values are secrets although their connector does not call them so: blocks with free keys, parameters of addresses.
DELICATE = re.compile(r"pass|pwd|secret|token|credential|auth|cookie|signature|jaas|(access|private|account|api).?key", re.IGNORECASE)
_MARK = "packed-secret"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:\S*", re.IGNORECASE)
_USER_PART = re.compile(r"(?P<before>://[^:/@?#\s]*:)(?P<secret>[^@/\s]+)@")
_ORACLE = re.compile(r"(?P<before>jdbc:oracle:[a-z0-9]+:[^:/@\s]+/)(?P<secret>[^@\s]+)@", re.IGNORECASE)
_PARAMETER = re.compile(r"(?P<before>[?&;,](?P<name>[^=&;,\s]*)=)(?P<secret>[^&;,\s]+)")


def packed(values: Mapping[str, Any], options: OptionSet) -> Values:
    """The values with those of secret options packed, and with addresses that hold a password."""
    secret = {option.key for option in options.options if option.secret}
    return {key: _pack(value) if value and (key in secret or _holds_secret(value)) else value for key, value in values.items()}


def unpacked(values: Mapping[str, Any]) -> Values:
    """The values as their operator reads them."""
    return {key: _unpack(value) for key, value in values.items()}


def secrets_in(address: str) -> list[str]:
    """The passwords that an address holds: before its host, or among its parameters."""
    if "@" not in address and "=" not in address:  # most texts: there is none in what these expressions look for
        return []
    found = [match["secret"] for pattern in (_USER_PART, _ORACLE) for match in pattern.finditer(address)]
    return found + [match["secret"] for match in _PARAMETER.finditer(address) if DELICATE.search(match["name"])]


def shown(address: str) -> str:
    """An address without its secrets, for messages."""
    for pattern in (_USER_PART, _ORACLE):
        address = pattern.sub(rf"\g<before>{MASK}@", address)
    return _PARAMETER.sub(lambda m: m["before"] + MASK if DELICATE.search(m["name"]) else m[0], address)


def secret_texts(options: Mapping[str, Any]) -> frozenset[str]:
    """Every text in these options that must not be seen, packed or not, however deep, and in addresses too: for masking it in what others say."""
    told = ((key, value) for key, value in options.items() if isinstance(value, str | Mapping | list | tuple))  # the others, which are most, have no text
    return frozenset(text for key, value in told for text in _texts(key, value) if text)


def plan_texts(plan: Plan) -> frozenset[str]:
    """The same for a whole job."""
    blocks = [action.options for pipeline in plan.pipelines for action in pipeline.actions]
    return frozenset().union(secret_texts(plan.env.spark), *(secret_texts(block) for block in blocks))


def _texts(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        inner = _unpack(value)
        if isinstance(inner, str):
            yield from _in_address(inner) if _holds_secret(inner) else (inner,)  # or its connector calls it secret
        elif isinstance(inner, Mapping):
            for name, each in inner.items():
                yield from _texts(str(name), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(key, each)
    elif isinstance(value, str):
        yield from (value,) if DELICATE.search(key) else _in_address(value)


def _in_address(text: str) -> Iterator[str]:
    """Passwords of an address: as they are written, and as they are meant."""
    for found in secrets_in(text):
        yield from (found, unquote(found), unquote_plus(found))


def _holds_secret(value: Any) -> bool:
    """Only what looks like an address: a statement may have a word before an = too."""
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None and bool(secrets_in(value))


def _pack(value: Any) -> dict[str, str]:
    return {_MARK: base64.b64encode(json.dumps(value).encode()).decode("ascii")}


def _unpack(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {_MARK}:
        return json.loads(base64.b64decode(value[_MARK]))
    return value
