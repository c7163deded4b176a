"""Structured logs: one JSON object per line, one event per transition, in a file of the job.

Called by composition roots. Nothing is written to the terminal. Every field that code passes in
`extra` is written, after secrets were masked (see redact.py).
"""

import json
import logging
import logging.handlers
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.redact import redact

FILE_BYTES_MAX = 10 * 1024 * 1024
FILES_MAX = 3
# what every log record has; all other attributes were passed in `extra`
RECORD_ATTRIBUTES = frozenset(
    {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
)


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_value(each) for key, each in value.items()}
    return [_redact_value(each) for each in value] if isinstance(value, list | tuple) else value


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Write time, level and event, then every field that was passed in `extra`."""
        line: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in RECORD_ATTRIBUTES:
                line.setdefault(name, value)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(
            _redact_value(line), default=lambda value: redact(str(value)), ensure_ascii=False
        )


class BoundedFile(logging.handlers.RotatingFileHandler):
    """A log file that rotates when it is full.

    It checks the size of the file and not of the next line, which would be formatted twice.
    """

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: ARG002  # of the base class
        """Return whether the file has reached its maximum size."""
        if self.stream is None:
            self.stream = self._open()
        return int(self.stream.tell() >= self.maxBytes)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a line that the disk does not take (full, read-only, gone).

        A log must not end or delay the work that it describes.
        """
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to(path: Path) -> None:
    """Send all logs of this process to one bounded file.

    Each process has its own file, because two cannot share one that rotates.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # no line shows these, and each of them costs time per line
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    handler = BoundedFile(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8")
    handler.setFormatter(JsonLines())
    log = logging.getLogger("tidegate")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
