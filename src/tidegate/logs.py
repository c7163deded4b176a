"""Structured logs: one JSON object a line, one event for each transition, in a file of the job.
Nothing goes to the terminal. Called by composition roots.

A process that knows secrets says so (`hide`): from then on no line of its logs, nothing that passes
`bare`, and nothing that it prints as an error shows them.
"""

import json
import logging
import logging.handlers
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

MASK = "******"
HIDDEN_CHARS_MIN = 4  # what is shorter is in every text, and no secret
HIDDEN_MAX = 4_000  # the newest; each costs every line a moment
PLAIN_WORDS = frozenset(
    {"true", "false", "null", "none"}
)  # values of options that only sound like secrets

FILE_BYTES_MAX = 10 * 1024 * 1024
FILES_MAX = 3
FIELDS = (
    "job_id",
    "job",
    "pipeline",
    "generation",
    "checkpoint",
    "office",
    "term",
    "worker",
    "host",
    "from",
    "to",
    "why",
    "by",
    "role",
    "token",
    "request",
    "what",
    "asked",
    "answer",
    "condition",
    "map",
    "key",
    "attempts",
    "rows_read",
    "rows_written",
    "bytes",
    "restarts",
)


_hidden: tuple[str, ...] = ()


def register_secrets(secrets: Iterable[str]) -> None:
    """Never show these texts again, however they are written.

    Any thread may call it; others see all of them or none.
    """
    global _hidden
    new = [form for form in forms(secrets) if form not in _hidden]
    if new:
        _hidden = (*new, *_hidden)[:HIDDEN_MAX]


def forms(secrets: Iterable[str]) -> list[str]:
    """The ways in which these texts may be written: as they are, in an address, in JSON, in a
    message of Python. The longest first, as one may hold another.
    """
    found: set[str] = set()
    for text in secrets:
        if len(text) >= HIDDEN_CHARS_MIN and text.lower() not in PLAIN_WORDS:
            found |= {
                text,
                quote(text, safe=""),
                quote_plus(text),
                json.dumps(text)[1:-1],
                json.dumps(text, ensure_ascii=False)[1:-1],
                repr(text)[1:-1],
            }
    return sorted(found, key=lambda text: (-len(text), text))


def redact(text: str, also: Iterable[str] = ()) -> str:
    """The text without what is hidden, and without these secrets."""
    for secret in (*forms(also), *_hidden) if also else _hidden:
        text = text.replace(secret, MASK)
    return text


class RedactingStream:
    """Standard error without secrets: a trace that nobody caught ends there."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def redact_stderr() -> None:
    """From now on this process complains without secrets."""
    if not isinstance(sys.stderr, RedactingStream):
        sys.stderr = cast(TextIO, RedactingStream(sys.stderr))


def _bare_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _bare_value(each) for key, each in value.items()}
    return [_bare_value(each) for each in value] if isinstance(value, list | tuple) else value


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, event, and the fields that are there."""
        line: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        given = record.__dict__
        line |= {name: given[name] for name in FIELDS if name in given}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(
            _bare_value(line), default=lambda value: redact(str(value)), ensure_ascii=False
        )


class BoundedFile(logging.handlers.RotatingFileHandler):
    """A file that makes room when it is full.

    It looks at what is there, not at what comes: else every line would be put into words twice.
    """

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: ARG002  # the name is its base's
        """Whether the file is full."""
        if self.stream is None:
            self.stream = self._open()
        return int(self.stream.tell() >= self.maxBytes)

    def handleError(self, record: logging.LogRecord) -> None:
        """A line that the disk does not take (full, read-only, gone) is dropped: no log ends or
        delays what it tells of.
        """
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to(path: Path) -> None:
    """Send all logs of this process to one file; bounded.

    One file for each process, as two cannot share one that rotates.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = (
        False  # no line shows them, and each costs every line a moment
    )
    handler = BoundedFile(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8")
    handler.setFormatter(JsonLines())
    log = logging.getLogger("tidegate")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
