"""Human-readable numbers, times and states. Pure; used as filters in templates."""

from datetime import UTC, datetime

from tidegate.model.byte_size import format_size
from tidegate.model.records import JobStatus

UNKNOWN_TEXT = "\u2013"
SIGNS = {
    "RUNNING": "▶",
    "FINISHED": "✓",
    "FAILED": "✗",
    "FAILING": "✗",
    "CANCELED": "■",
    "CANCELING": "■",
    "SAVEPOINT_DONE": "◆",
    "DOING_SAVEPOINT": "◇",
    "UNKNOWABLE": "?",
    "OK": "●",
    "LATE": "◐",
    "STALLED": "○",
}
KINDS = {
    "RUNNING": "good",
    "PENDING": "warn",
    "RECOVERING": "warn",
    "FINISHED": "done",
    "SAVEPOINT_DONE": "done",
    "FAILED": "bad",
    "FAILING": "bad",
    "UNKNOWABLE": "bad",
    "STALLED": "bad",
    "LATE": "warn",
    "OK": "good",
}


def symbol(status: str) -> str:
    """Return a symbol for a state, so that color is not the only mark."""
    return SIGNS.get(str(status), "…")


def kind(status: str) -> str:
    """Return the CSS class of a state: good, done, warn, bad, quiet."""
    return KINDS.get(str(status), "quiet")


def number(value: float | int | None) -> str:
    """Format a number with commas; a dash if it is unknown."""
    if value is None:
        return UNKNOWN_TEXT
    return (
        f"{value:,.1f}"
        if isinstance(value, float) and value < 1000 and value != int(value)
        else f"{round(value):,}"
    )


def size(count: int | None) -> str:
    return UNKNOWN_TEXT if count is None else format_size(count)


def span(seconds: float | None) -> str:
    """Format a duration in its two largest units."""
    if seconds is None:
        return "never"
    whole = int(seconds)
    if whole < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length, below, below_unit in (
        (" d", 86_400, 3_600, " h"),
        (" h", 3_600, 60, " min"),
        (" min", 60, 1, " s"),
    ):
        if whole >= length:
            rest = whole % length // below
            return (
                f"{whole // length}{unit} {rest}{below_unit}"
                if rest
                else f"{whole // length}{unit}"
            )
    return f"{whole} s"


def utc(moment: datetime | None) -> str:
    """Format a time with its zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if moment else ""


def iso(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def ago(moment: datetime | None, now: datetime) -> str:
    """Format the age of a time; live.js keeps it up to date."""
    return f"{span(max(0.0, (now - moment).total_seconds()))} ago" if moment else "never"


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def is_terminal(status: JobStatus) -> bool:
    """Return whether the status is final."""
    return status.terminal
