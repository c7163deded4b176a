"""Secret options in a plan: packed where the plan is made, unpacked where an operator is built, so that no record, file or answer shows them by chance.

An address that holds a password is packed as a whole, whatever its option is called. Packed is not encrypted: whoever may read the store can undo it, as a
driver must. The store and the home directory are what has to be guarded.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from tidegate.plugin.option import OptionSet, Values

MASK = "******"
_MARK = "packed-secret"
_DELICATE = re.compile(r"pass|pwd|secret|token|credential|access_?key|private_?key", re.IGNORECASE)
_USER_PART = re.compile(r"(?P<before>://[^:/@?\s]*:)(?P<secret>[^@/\s]+)@")
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
    found = [match["secret"] for pattern in (_USER_PART, _ORACLE) for match in pattern.finditer(address)]
    return found + [match["secret"] for match in _PARAMETER.finditer(address) if _DELICATE.search(match["name"])]


def shown(address: str) -> str:
    """An address without its secrets, for messages."""
    for pattern in (_USER_PART, _ORACLE):
        address = pattern.sub(rf"\g<before>{MASK}@", address)
    return _PARAMETER.sub(lambda m: m["before"] + MASK if _DELICATE.search(m["name"]) else m[0], address)


def _holds_secret(value: Any) -> bool:
    """Only what looks like an address: a statement may have a word before an = too."""
    return isinstance(value, str) and re.match(r"[a-z][a-z0-9+.-]*:\S*$", value, re.IGNORECASE) is not None and bool(secrets_in(value))


def _pack(value: Any) -> dict[str, str]:
    return {_MARK: base64.b64encode(json.dumps(value).encode()).decode("ascii")}


def _unpack(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {_MARK}:
        return json.loads(base64.b64decode(value[_MARK]))
    return value
