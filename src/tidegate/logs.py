"""Structured logs: one JSON object a line, one event for each transition, in a file of the job. Nothing goes to the terminal. Called by composition roots."""

import json
import logging
import logging.handlers
from pathlib import Path

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


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, event, and the fields that are there."""
        line: dict[str, object] = {"at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def log_to(path: Path) -> None:
    """Send all logs of this process to one file; bounded. One file for each process, as two cannot share one that rotates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8")
    handler.setFormatter(JsonLines())
    log = logging.getLogger("tidegate")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
