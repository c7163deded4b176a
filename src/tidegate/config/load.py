"""Load a job file as a JobSpec, or report everything that is wrong with it.

Callers: cli, api, coordinator. `load_job` raises BadJob with all problems; `read_job` returns what
could be read together with the problems, so that `tidegate validate` can add the planner's. Nothing
here reads the process environment: it is an argument.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path as FilePath
from typing import TypeAlias

from tidegate.config.document import Document
from tidegate.config.encryption import decode
from tidegate.config.hocon.parse import Read, Unreadable, no_includes, parse_hocon
from tidegate.config.json_form import parse_json
from tidegate.config.sql_form import parse_sql
from tidegate.config.structure import Structure
from tidegate.config.variables import Variables, fill
from tidegate.model.errors import UserError
from tidegate.model.job import JobSpec
from tidegate.model.problem import BadJob, Location, Problem, ProblemKind, Severity

ReadBytes: TypeAlias = Callable[[str], bytes]
NO_VALUES: Mapping[str, str] = {}


class Format(StrEnum):
    """The three forms of a job file."""

    HOCON = "hocon"
    JSON = "json"
    SQL = "sql"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """Result of reading a job file. `spec` is None if the text could not be parsed."""

    spec: JobSpec | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> list[Problem]:
        """The problems that prevent the job from starting."""
        return [problem for problem in self.problems if problem.severity is Severity.ERROR]


def read_bytes(path: str) -> bytes:
    """Read a file from disk."""
    return FilePath(path).read_bytes()


def format_of(path: str) -> Format:
    """Determine the form by the suffix; HOCON if it is neither .json nor .sql."""
    suffix = FilePath(path).suffix.lower()
    return {".json": Format.JSON, ".sql": Format.SQL}.get(suffix, Format.HOCON)


def load_job(
    path: str,
    *,
    variables: Mapping[str, str] = NO_VALUES,
    environment: Mapping[str, str] = NO_VALUES,
    read: ReadBytes = read_bytes,
    strict: bool = False,
) -> JobSpec:
    """Load the job of a file; BadJob with all problems, UserError if the file does not exist."""
    return _spec_of(
        read_job(path, variables=variables, environment=environment, read=read, strict=strict)
    )


def load_text(
    text: str,
    name: str,
    format: Format = Format.HOCON,
    *,
    variables: Mapping[str, str] = NO_VALUES,
    environment: Mapping[str, str] = NO_VALUES,
    strict: bool = False,
) -> JobSpec:
    """Load the job of a text without a file, as submitted by REST; it cannot include anything."""
    return _spec_of(
        read_text(text, name, format, variables=variables, environment=environment, strict=strict)
    )


def read_job(
    path: str,
    *,
    variables: Mapping[str, str] = NO_VALUES,
    environment: Mapping[str, str] = NO_VALUES,
    read: ReadBytes = read_bytes,
    strict: bool = False,
) -> LoadResult:
    """Read a job file and its problems."""
    try:
        text = _decoded(_bytes_of(path, read))
    except Unreadable as error:
        return LoadResult(
            spec=None,
            problems=(Problem(kind=ProblemKind.SYNTAX, message=str(error), at=Location(path)),),
        )
    reader = _include_reader(read)
    return read_text(
        text,
        path,
        format_of(path),
        variables=variables,
        environment=environment,
        read=reader,
        strict=strict,
    )


def resolved_json(
    path: str,
    *,
    variables: Mapping[str, str] = NO_VALUES,
    environment: Mapping[str, str] = NO_VALUES,
    read: ReadBytes = read_bytes,
) -> str:
    """Return a valid job file as one JSON text, with includes and variables resolved.

    It can be sent to hosts that lack them. Shaded values stay shaded.
    """
    sources = Variables(variables, environment)
    document = _parse(
        _decoded(_bytes_of(path, read)), path, format_of(path), sources, _include_reader(read)
    )
    return json.dumps(
        {
            key: value
            for key, value in fill(document, sources).data.items()
            if key in ("env", "source", "transform", "sink")
        }
    )


def read_text(
    text: str,
    name: str,
    format: Format = Format.HOCON,
    *,
    variables: Mapping[str, str] = NO_VALUES,
    environment: Mapping[str, str] = NO_VALUES,
    read: Read = no_includes,
    strict: bool = False,
) -> LoadResult:
    """Read the text of a job file and its problems."""
    if "\x00" in text:
        problem = Problem(
            kind=ProblemKind.SYNTAX,
            message="the file contains NUL characters: it is binary, not a job file",
            at=Location(name),
        )
        return LoadResult(spec=None, problems=(problem,))
    sources = Variables(variables, environment)
    document = _parse(text, name, format, sources, read)
    if any(problem.kind is ProblemKind.SYNTAX for problem in document.problems):
        return LoadResult(spec=None, problems=_sorted(document.problems))
    document = decode(fill(document, sources))
    structure = Structure(document, strict)
    spec = structure.spec()
    # A missing variable would also be reported as a value of the wrong type.
    missing = {problem.path for problem in document.problems if problem.path}
    problems = _sorted(
        [
            *document.problems,
            *(problem for problem in structure.problems if problem.path not in missing),
        ]
    )
    notices = tuple(problem for problem in problems if problem.severity is not Severity.ERROR)
    return LoadResult(spec=replace(spec, notices=notices), problems=problems)


def _parse(text: str, name: str, format: Format, sources: Variables, read: Read) -> Document:
    match format:
        case Format.JSON:
            return parse_json(text, name)
        case Format.SQL:
            return parse_sql(text, name, lookup=sources.lookup, read=read)
        case Format.HOCON:
            return parse_hocon(text, name, lookup=sources.lookup, read=read)


def _spec_of(reading: LoadResult) -> JobSpec:
    if reading.errors or reading.spec is None:
        raise BadJob(list(reading.problems))
    return reading.spec


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (problem.at.file, problem.at.line)))


def _bytes_of(path: str, read: ReadBytes) -> bytes:
    try:
        return read(path)
    except FileNotFoundError:
        raise UserError(f"the job file {path} does not exist") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, not a job file") from None
    except OSError as error:
        raise UserError(f"the job file {path} cannot be read: {error.strerror or error}") from None


def _include_reader(read: ReadBytes) -> Read:
    def reader(path: str) -> str | None:
        try:
            return _decoded(read(path))
        except OSError:
            return None

    return reader


def _decoded(raw: bytes) -> str:
    """Decode a file; Unreadable with the reason if it is not text."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("the file is UTF-16 text: save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable(
            f"the file is not UTF-8 text: the byte 0x{raw[error.start]:02x} on line {line} does not"
            " belong to it"
        ) from None
