"""Encode frozen dataclasses as JSON documents for everything that is stored; decode them.

Every stored document begins with its version; a reader rejects a newer one by name. A field is
stored under the name of its attribute, or under `field(metadata={"key": ...})`. An attribute that
is renamed keeps its stored key: unknown keys are ignored, so its value would be lost. Called by
pipeline, coordinator, checkpoints.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from tidegate.model.errors import TerminalError

T = TypeVar("T")
WRONG_TYPE = "one of its fields has a value of the wrong type"
_PLAIN = frozenset({str, int, float, bool, type(None)})
_kind: Callable[[Any], type] = type  # mypy takes what `type` gives for something unhashable


class NewerDocument(TerminalError):
    """A document in a format version newer than this release supports."""

    condition = "newer-document"

    def __init__(self, what: str, version: object, supported: int) -> None:
        super().__init__(
            f"{what} has format version {version}; this Tidegate supports up to {supported}:"
            " upgrade Tidegate"
        )
        self.what = what
        self.version = version
        self.supported = supported


class UnreadableDocument(TerminalError, ValueError):
    """A document of another kind than expected: fields are missing or have the wrong type."""

    condition = "unreadable-document"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} cannot be read: {why}; it is damaged, or it was not written by Tidegate"
        )
        self.what = what
        self.why = why


def to_document(value: Any) -> Any:
    """Encode a value as JSON data, including fields with default values.

    Defaults are written so that a document explains itself.
    """
    kind: type = type(value)
    return value if kind in _PLAIN else _encoder(kind)(value)


def from_document(kind: type[T], data: Mapping[str, Any], what: str = "") -> T:
    """Decode a document that `to_document` wrote.

    Unknown keys are ignored, missing keys take their default, a newer `version` is rejected.
    """
    plain: type = kind
    if type(data) is not dict and not isinstance(data, Mapping):
        raise UnreadableDocument(
            what or kind.__name__, f"it is {_json_kind(data)} and not an object"
        )
    supported, found = _version(plain), data.get("version")
    if isinstance(supported, int):
        if not isinstance(found, int):
            raise UnreadableDocument(what or kind.__name__, "it has no format version")
        if found > supported:
            raise NewerDocument(what or kind.__name__, found, supported)
    try:
        result: T = _decoder(plain)(data)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise UnreadableDocument(what or kind.__name__, _reason(error)) from error
    return result


def _json_kind(value: object) -> str:
    return {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
    }.get(type(value), "nothing")


def _reason(error: Exception) -> str:
    """Describe the error without Python's own wording."""
    return str(error) if isinstance(error, _FieldError) else WRONG_TYPE


class _FieldError(ValueError):
    pass


def stored_key(field: "dataclasses.Field[Any]") -> str:
    """Return the key under which a field is stored in its document."""
    return str(field.metadata.get("key", field.name))


@cache
def _fields(kind: type) -> tuple[tuple[str, str], ...]:
    """Return attribute name and stored key of each field."""
    return tuple((field.name, stored_key(field)) for field in dataclasses.fields(kind))


@cache
def _version(kind: type) -> object:
    """Return the newest supported version of a kind of document; None if it has no version."""
    return next((f.default for f in dataclasses.fields(kind) if f.name == "version"), None)


@cache
def _encoder(kind: type) -> Callable[[Any], Any]:
    """Return the encoder of a type; built once for each type, like the decoders."""
    if issubclass(kind, Enum):
        return attrgetter("_value_")  # `value` without the call of a property
    if issubclass(kind, Mapping):
        return lambda value: {
            str(key): each if type(each) in _PLAIN else _encoder(_kind(each))(each)
            for key, each in value.items()
        }
    if issubclass(kind, list | tuple):
        return lambda value: [
            each if type(each) in _PLAIN else _encoder(_kind(each))(each) for each in value
        ]
    if dataclasses.is_dataclass(kind):
        return _record_encoder(kind)
    return lambda value: value


def _record_encoder(kind: type) -> Callable[[Any], Any]:
    fields = _fields(kind)
    if len(fields) < 2:  # attrgetter returns a tuple for two names or more
        return lambda value: {key: to_document(getattr(value, name)) for name, key in fields}
    keys = tuple(key for _, key in fields)
    values = attrgetter(*(name for name, _ in fields))
    return lambda value: {
        key: each if type(each) in _PLAIN else _encoder(_kind(each))(each)
        for key, each in zip(keys, values(value), strict=True)
    }


@cache
def _decoder(hint: Any) -> Callable[[Any], Any]:
    """Return the decoder of a type, built once for each type: thousands of records are read."""

    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = _decoder(next(a for a in arguments if a is not type(None)))
        return lambda data: None if data is None else inner(data)
    if origin is tuple:
        item = _decoder(arguments[0])
        return lambda data: tuple(map(item, data))
    if origin in (dict, Mapping):
        value = _decoder(arguments[1])
        return lambda data: {key: value(each) for key, each in data.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _record_decoder(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum_decoder(hint)
    return _identity


def _record_decoder(kind: type) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    fields = [
        (name, key, None if (decode := _decoder(hints[name])) is _identity else decode)
        for name, key in _fields(kind)
    ]
    known = {key for _, key, _ in fields}
    decoders = [(name, key, decode) for name, key, decode in fields if decode or name != key]

    def read(data: Any) -> Any:
        try:
            if type(data) is dict and data.keys() <= known:
                # The usual case: only keys that are renamed or decoded are touched.
                values = data.copy()
                for name, key, decode in decoders:
                    if key in values:
                        each = values.pop(key)
                        values[name] = decode(each) if decode else each
                return kind(**values)
            return kind(
                **{
                    name: decode(data[key]) if decode else data[key]
                    for name, key, decode in fields
                    if key in data
                }
            )
        except TypeError as error:
            if not isinstance(data, Mapping):
                raise _FieldError(
                    f"there is {_json_kind(data)} instead of {kind.__name__}"
                ) from error
            missing = _missing(kind, data)
            raise _FieldError(
                f"it has no {', '.join(missing)}" if missing else WRONG_TYPE
            ) from error

    return read


def _missing(kind: type, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the required fields that a document lacks."""
    return tuple(
        stored_key(field)
        for field in dataclasses.fields(kind)
        if stored_key(field) not in data
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )


def _enum_decoder(kind: type[Enum]) -> Callable[[Any], Any]:
    members = {member.value: member for member in kind}  # three times as fast as kind(data)

    def read(data: Any) -> Any:
        try:
            return members[data]
        except (KeyError, TypeError) as error:
            raise _FieldError(f"{data!r} is not a {kind.__name__}") from error

    return read


def _identity(data: Any) -> Any:
    return data
