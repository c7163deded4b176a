"""Secret options in a plan: packed where the plan is made, unpacked where an operator is built, so that no record, file or answer shows them by chance.

Packed is not encrypted: whoever may read the store can undo it, as a driver must. The store and the home directory are what has to be guarded.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

from tidegate.model.plan import Plan
from tidegate.plugin.option import OptionSet, Values

_MARK = "packed-secret"
# Names of entries whose values are secrets although their connector does not call them so: blocks with free keys, parameters of addresses.
DELICATE = re.compile(r"pass|secret|token|credential|auth|cookie|signature|jaas|(access|private|account|api).?key", re.IGNORECASE)
_USER_PART = re.compile(r"://[^/\s:@?#]*:([^@\s]*)@")
_PARAMETER = re.compile(r"[?&;]([^=&;\s]+)=([^&;\s]*)")


def packed(values: Mapping[str, Any], options: OptionSet) -> Values:
    """The values with those of secret options packed."""
    secret = {option.key for option in options.options if option.secret}
    return {key: _pack(value) if key in secret and value else value for key, value in values.items()}


def unpacked(values: Mapping[str, Any]) -> Values:
    """The values as their operator reads them."""
    return {key: _unpack(value) for key, value in values.items()}


def _pack(value: Any) -> dict[str, str]:
    return {_MARK: base64.b64encode(json.dumps(value).encode()).decode("ascii")}


def _unpack(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {_MARK}:
        return json.loads(base64.b64decode(value[_MARK]))
    return value


def secret_texts(options: Mapping[str, Any]) -> frozenset[str]:
    """Every text in these options that must not be seen, packed or not, however deep, and in addresses too: for masking it in what others say."""
    return frozenset(text for key, value in options.items() for text in _texts(key, value) if text)


def plan_texts(plan: Plan) -> frozenset[str]:
    """The same for a whole job."""
    blocks = [action.options for pipeline in plan.pipelines for action in pipeline.actions]
    return frozenset().union(secret_texts(plan.env.spark), *(secret_texts(block) for block in blocks))


def _texts(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        inner = _unpack(value)
        if isinstance(inner, str):
            yield inner  # its connector calls it secret
        elif isinstance(inner, Mapping):
            for name, each in inner.items():
                yield from _texts(str(name), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(key, each)
    elif isinstance(value, str):
        yield from (value,) if DELICATE.search(key) else _in_address(value)


def _in_address(text: str) -> Iterator[str]:
    """Passwords of an address: before its host, and among its parameters; as they are written, and as they are meant."""
    for found in _USER_PART.findall(text):
        yield from (found, unquote(found))
    for name, found in _PARAMETER.findall(text):
        if DELICATE.search(name):
            yield from (found, unquote_plus(found))
