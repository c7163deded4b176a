"""Secret options in a plan: packed where the plan is made, unpacked where an operator is built, so that no record, file or answer shows them by chance.

Packed is not encrypted: whoever may read the store can undo it, as a driver must. The store and the home directory are what has to be guarded.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tidegate.plugin.option import OptionSet, Values

_MARK = "packed-secret"


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
