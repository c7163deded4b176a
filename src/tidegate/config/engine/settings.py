"""Load the engine's file as EngineSettings, with the source of every value.

Callers: cli (server, worker, run, config show). Also returns all problems. Reads the file and those
that `${file:...}` names; the environment is an argument. Starts nothing, and never raises for what
it reads: callers must check for problems of Severity.ERROR first.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidegate.config.engine.checks import check, slots
from tidegate.config.engine.flat_keys import FlatSettings, flatten
from tidegate.config.engine.options import (
    IGNORED,
    KEYS,
    NAMESPACE,
    OPTIONS,
    SPARK,
    Key,
    ignored_by,
    with_value,
)
from tidegate.config.engine.storage import checkpoint_storage
from tidegate.config.engine.yaml_reader import parse_yaml
from tidegate.home import Home
from tidegate.model.engine import EngineSettings, ScheduleStrategy
from tidegate.model.errors import UserError
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, closest_match
from tidegate.plugin.option import Block, OptionKind, Values, as_text, coerce

CONFIG_VARIABLE = "TIDEGATE_CONFIG"
FILE_NAMES = ("tidegate.yaml", "seatunnel.yaml")


class ValueOrigin(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"  # a variable, or another file, that the file refers to
    COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value came from."""

    origin: ValueOrigin = ValueOrigin.DEFAULT
    at: Location | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.names:
            return f"{', '.join(f'${{{name}}}' for name in self.names)} in {self.at}"
        return str(self.at or self.origin)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSources:
    """Where the settings came from.

    `file` is empty if there is none; `ignored` are its keys without effect.
    """

    file: str = ""
    origins: Mapping[str, ValueSource] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def of(self, key: str) -> ValueSource:
        """Return the source of a key: `http.port`, or an entry of a block: `spark.master`."""
        return self.origins.get(key, ValueSource())


LoadedSettings = tuple[EngineSettings, EngineSources, list[Problem]]


def load_engine(
    path: Path | None, environ: Mapping[str, str], *, home: Home | None = None, strict: bool = False
) -> LoadedSettings:
    """Load the settings in effect.

    They come from `path`, else TIDEGATE_CONFIG, else `tidegate.yaml` or `seatunnel.yaml` in the
    home, else defaults. Without `home`, it is determined by the environment. `strict` makes unknown
    keys errors. A missing file is a problem too.
    """
    file = find_file(path, environ, home or Home.find(None, environ))
    if file is None:
        return EngineSettings(), EngineSources(), []
    try:
        text = _text_of(file)
    except UserError as error:
        problem = Problem(kind=ProblemKind.SYNTAX, message=str(error), at=Location(str(file)))
        return EngineSettings(), EngineSources(file=str(file)), [problem]
    return read_engine(text, str(file), environ, strict=strict)


def find_file(path: Path | None, environ: Mapping[str, str], home: Home) -> Path | None:
    """Find the engine's file. A requested one need not exist; those of the home must."""
    requested = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    return requested or next(
        (file for name in FILE_NAMES if (file := home.root / name).is_file()), None
    )


def read_engine(
    text: str, name: str, environ: Mapping[str, str], *, strict: bool = False
) -> LoadedSettings:
    """Read the settings of a text."""
    flat = flatten(parse_yaml(text, name), environ, strict=strict)
    ours = {key: leaf for key, leaf in flat.leaves.items() if not ignored_by(key)}
    block = Block(
        {key: leaf.value for key, leaf in ours.items() if not key.startswith(f"{SPARK}.")},
        flat.locate,
        flat.root,
    )
    values, problems = OPTIONS.read(block, strict=strict, also=IGNORED)
    settings = replace(_settings(values, block), spark=_spark(flat))
    ignored = tuple(dict.fromkeys(entry for key in flat.leaves if (entry := ignored_by(key))))
    found = [*flat.problems, *problems, *check(settings, values, block), *_notice(flat, ignored)]
    refused = {problem.path for problem in problems if problem.severity is Severity.ERROR}
    sources = EngineSources(file=name, origins=_origins(flat, refused), ignored=ignored)
    return settings, sources, sorted(found, key=lambda problem: problem.at.line)


def override(
    settings: EngineSettings, sources: EngineSources, given: Mapping[str, Any]
) -> tuple[EngineSettings, EngineSources]:
    """Apply the command line's values for keys such as `http.port`; None means not set.

    UserError for an invalid value.
    """
    origins = dict(sources.origins)
    for name, raw in given.items():
        if raw is None:
            continue
        key = next((key for key in KEYS if key.name == name and key.field), None)
        if key is None:
            raise UserError(f"{name} is not a key of the engine{_hint(name)}")
        try:
            settings = with_value(settings, key.field, _converted(key, coerce(key.option, raw)))
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None
        origins[name] = ValueSource(ValueOrigin.COMMAND_LINE)
    return settings, replace(sources, origins=origins)


def _hint(name: str) -> str:
    close = closest_match(name, [key.name for key in KEYS])
    return f"; did you mean {close!r}?" if close else ""


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"the engine's file {path} does not exist") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, not an engine's file") from None
    except OSError as error:
        raise UserError(
            f"the engine's file {path} cannot be read: {error.strerror or error}"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"the engine's file {path} is not UTF-8 text") from None


def _settings(values: Values, block: Block) -> EngineSettings:
    """Apply the file's values to the defaults."""
    settings = EngineSettings()
    for key in KEYS:
        if key.field and any(block.find(name) for name in (key.name, *key.option.fallbacks)):
            settings = with_value(settings, key.field, _converted(key, values[key.name]))
    where = checkpoint_storage(values)
    settings = with_value(settings, "worker.slots", slots(values, os.cpu_count() or 1))
    settings = with_value(settings, "checkpoint.storage_type", where.type)
    complete: EngineSettings = with_value(settings, "checkpoint.storage_root", where.root)
    return complete


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "job-schedule-strategy": ScheduleStrategy,
    "checkpoint.min-pause": lambda pause: max(0, pause),
    "http.allowed-hosts": lambda names: tuple(as_text(name).strip() for name in names),
    "http.context-path": lambda path: f"/{path.strip('/')}" if path.strip("/") else "",
}


def _converted(key: Key, value: Any) -> Any:
    """Convert the value of an option to the setting."""
    if key.option.kind is OptionKind.MAP:
        return {
            name: as_text(inner)
            for name, inner in (value or {}).items()
            if f"{key.name}.{name}" != NAMESPACE
        }
    return _CONVERTERS[key.name](value) if key.name in _CONVERTERS else value


def _spark(flat: FlatSettings) -> dict[str, str]:
    """Collect all keys below `spark`, with that prefix.

    It may be written twice: `spark: {spark.master: ...}`.
    """
    found: dict[str, str] = {}
    for key, leaf in flat.leaves.items():
        if key.startswith(f"{SPARK}."):
            found[_spark_key(key)] = (
                ",".join(map(as_text, leaf.value))
                if isinstance(leaf.value, list)
                else as_text(leaf.value)
            )
    return found


def _spark_key(key: str) -> str:
    return f"{SPARK}.{key.removeprefix(f'{SPARK}.').removeprefix(f'{SPARK}.')}"


def _origins(flat: FlatSettings, refused: set[str]) -> dict[str, ValueSource]:
    """Return the sources of the file's values, except those that were refused."""
    names = {fallback: key.name for key in KEYS for fallback in key.option.fallbacks}
    origins: dict[str, ValueSource] = {}
    for key, leaf in flat.leaves.items():
        name = _spark_key(key) if key.startswith(f"{SPARK}.") else names.get(key, key)
        if f"{flat.root}.{key}" not in refused:
            origins[name] = ValueSource(
                ValueOrigin.ENVIRONMENT if leaf.names else ValueOrigin.FILE, leaf.at, leaf.names
            )
    return origins


def _notice(flat: FlatSettings, ignored: tuple[str, ...]) -> Iterator[Problem]:
    """Report all keys without effect in a single notice."""
    if ignored:
        listed = ", ".join(f"{key} (line {flat.locate((key,)).line})" for key in ignored)
        text = f"these keys have no meaning here and are ignored: {listed}"
        yield Problem(
            kind=ProblemKind.OPTION, message=text, at=Location(flat.file), severity=Severity.NOTICE
        )
