"""Keeps registered secrets out of everything this process writes: logs, messages, standard error.

A process that knows secrets registers them (`register_secrets`). From then on `redact` masks them,
the log formatter passes every line through it, and `redact_stderr` covers uncaught tracebacks.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

MASK = "******"
SECRET_CHARS_MIN = 4  # shorter texts occur everywhere and are not secrets
SECRETS_MAX = 4_000  # only the newest are kept, because each of them slows down every log line
# values of options that are named like secrets but hold a switch
NOT_SECRET = frozenset({"true", "false", "null", "none"})

_secrets: tuple[str, ...] = ()


def register_secrets(secrets: Iterable[str]) -> None:
    """Mask these texts from now on, in every spelling.

    Thread-safe: other threads see all of the new secrets or none.
    """
    global _secrets
    new = [form for form in spellings(secrets) if form not in _secrets]
    if new:
        _secrets = (*new, *_secrets)[:SECRETS_MAX]


def spellings(secrets: Iterable[str]) -> list[str]:
    """Return every way to write these texts: plain, URL-quoted, in JSON, in a Python repr.

    The longest come first, because one may contain another.
    """
    found: set[str] = set()
    for text in secrets:
        if len(text) >= SECRET_CHARS_MIN and text.lower() not in NOT_SECRET:
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
    """Mask the registered secrets, and those in `also`."""
    for secret in (*spellings(also), *_secrets) if also else _secrets:
        text = text.replace(secret, MASK)
    return text


class RedactingStream:
    """Standard error without secrets, because uncaught tracebacks end there."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def redact_stderr() -> None:
    """Mask secrets in everything this process writes to standard error from now on."""
    if not isinstance(sys.stderr, RedactingStream):
        sys.stderr = cast(TextIO, RedactingStream(sys.stderr))
