"""Frozen dataclasses to JSON documents and back, for everything that is stored: plans, records, checkpoints.

Every stored document begins with its version; a reader refuses a newer one by name. Called by pipeline, coordinator, checkpoints.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from tidegate.model.errors import TerminalError

T = TypeVar("T")


class NewerDocument(TerminalError):
    """A document of a newer version of Tidegate."""

    condition = "newer-document"

    def __init__(self, what: str, found: object, known: int) -> None:
        super().__init__(f"{what} has format version {found}; this Tidegate reads up to {known}: upgrade it")
        self.what, self.found, self.known = what, found, known


def to_document(value: Any) -> Any:
    """Plain JSON data; fields that have their default are written too, so that a document explains itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_document(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_document(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_document(v) for v in value]
    return value


def from_document(kind: type[T], data: Mapping[str, Any], what: str = "") -> T:
    """The dataclass that `to_document` wrote. Unknown keys are ignored, a newer `version` is refused, missing ones take their default."""
    known = next((f.default for f in dataclasses.fields(kind) if f.name == "version"), None)  # type: ignore[arg-type]  # kind is a dataclass
    found = data.get("version")
    if isinstance(known, int) and (not isinstance(found, int) or found > known):
        raise NewerDocument(what or kind.__name__, found, known)
    result: T = _decode(kind, data)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, data: Any) -> Any:
    if isinstance(hint, typing.NewType):
        return _decode(hint.__supertype__, data)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return None if data is None else _decode(next(a for a in arguments if a is not type(None)), data)
    if origin is tuple:
        return tuple(_decode(arguments[0], item) for item in data)
    if origin in (dict, Mapping):
        return {key: _decode(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        return hint(**{f.name: _decode(hints[f.name], data[f.name]) for f in dataclasses.fields(hint) if f.name in data})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    return data
