"""Everything that is stored or sent as a document, by a name that no renaming of a class changes.

`python tests/golden/stored.py` writes `stored_fields.txt`, which pins all keys and types, and the
documents of this version, one of every kind with no field at its default. Documents of a release
are never made anew: later versions must read them, field by field
(tests/tidy/test_stored_documents.py).
"""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tidegate import __version__
from tidegate.api.planner_process import PlanningResult
from tidegate.checkpoints.gc.quarantine import Quarantine
from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.savepoints import SavepointSuperseded, _Head
from tidegate.coordinator.cluster_cache import KINDS
from tidegate.model.document import stored_key, to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.maintenance import (
    COLLECTOR,
    EXPIRED_JOBS,
    INSTALLATION,
    CollectorReport,
    ExpiredJob,
    InstallationRecord,
)
from tidegate.model.records import RESTORE_CLAIMS, ProcessRef, RestoreClaim

HERE = Path(__file__).parent
STORED: dict[str, type] = {
    **{f"map {name}": kind for name, kind in KINDS.items()},
    f"map {RESTORE_CLAIMS}": RestoreClaim,
    f"map {EXPIRED_JOBS}": ExpiredJob,
    f"map {COLLECTOR}": CollectorReport,
    f"map {INSTALLATION}": InstallationRecord,
    "file _manifest.json": Manifest,
    "file _savepoint.json": _Head,
    "file _overtaken.json": SavepointSuperseded,
    "file quarantine record": Quarantine,
    "file scratch owner": ProcessRef,
    "pipe driver order": DriverSpec,
    "pipe planner answer": PlanningResult,
}


def main() -> None:
    (HERE / "stored_fields.txt").write_text(stored_fields(), encoding="utf-8")
    target = HERE / __version__ / "documents.json"
    if target.exists():
        sys.exit(f"{target} is there already: golden documents are never made anew")
    target.parent.mkdir(exist_ok=True)
    made = {name: to_document(example(kind)) for name, kind in STORED.items()}
    target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def stored_fields() -> str:
    """All keys and types, one in a line."""
    return "".join(f"{line}\n" for name, kind in STORED.items() for line in lines(name, kind))


def lines(name: str, hint: Any, inside: tuple[type, ...] = ()) -> Iterator[str]:
    """One line for each stored value below a name: its path of keys, and its type."""
    hint = _plain(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        yield from lines(f"{name}?", next(a for a in arguments if a is not type(None)), inside)
    elif origin is tuple:
        yield from lines(f"{name}[]", arguments[0], inside)
    elif origin in (dict, Mapping):
        yield from lines(f"{name}{{}}", arguments[1], inside)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint in inside:
            yield f"{name}: as above"
            return
        hints = typing.get_type_hints(hint)
        for field in dataclasses.fields(hint):
            below = f"{name}.{stored_key(field)}"
            yield from lines(below, hints[field.name], (*inside, hint))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield f"{name}: {' | '.join(str(member.value) for member in hint)}"
    else:
        yield f"{name}: {getattr(hint, '__name__', hint)}"


def example(hint: Any, number: int = 3) -> Any:
    """A value of a type in which no field has its default."""
    hint = _plain(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return example(next(a for a in arguments if a is not type(None)), number)
    if origin is tuple:
        return (example(arguments[0], number),)
    if origin in (dict, Mapping):
        return {"name": example(arguments[1], number)}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    plain: dict[Any, Any] = {bool: True, int: number, float: number + 0.5, str: f"text {number}"}
    return plain.get(hint, {"any": number})


def _record(kind: type) -> Any:
    hints = typing.get_type_hints(kind)
    values = {}
    for number, field in enumerate(dataclasses.fields(kind), 11):
        default = field.default
        if field.name == "version":
            continue
        value = example(hints[field.name], number)
        if value == default:
            value = _another(hints[field.name], default)
        values[field.name] = value
    return kind(**values)


def _another(hint: Any, default: Any) -> Any:
    if isinstance(default, Enum):
        return next(member for member in type(default) if member is not default)
    return {True: False}.get(default, example(hint, 99))


def _plain(hint: Any) -> Any:
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint


if __name__ == "__main__":
    main()
