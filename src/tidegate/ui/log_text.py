"""Human-readable log lines from JSON lines: time, level, event, fields, and stack traces. Pure."""

import json
from typing import Any

HEAD = ("at", "level", "event")
MULTILINE = ("trace",)


def readable(text: str) -> str:
    """Convert each JSON line to readable text. Other lines are unchanged."""
    return "\n".join(_line(line) for line in text.splitlines())


def _line(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    return _entry(entry) if isinstance(entry, dict) else line


def _entry(entry: dict[str, Any]) -> str:
    head = [str(entry[key]) for key in HEAD if entry.get(key)]
    fields = [
        f"{key}={_text(value)}" for key, value in entry.items() if key not in (*HEAD, *MULTILINE)
    ]
    folded = [
        part for key in MULTILINE if entry.get(key) for part in str(entry[key]).rstrip().split("\n")
    ]
    return "\n    ".join(
        [" ".join([*head, *(field.replace("\n", "\n    ") for field in fields)]), *folded]
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
