"""Formats the output of `tidegate state`: human-readable tables and JSON documents.

Reads nothing, changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidegate.checkpoints.gc.classify import UnitKind, UnitVerdict
from tidegate.checkpoints.gc.quarantine import Quarantine, QuarantinePhase
from tidegate.checkpoints.gc.usage import AGES, OLDEST, Sum, Usage
from tidegate.model.byte_size import format_size as size
from tidegate.store.base import MapSize

JOBS_SHOWN_MAX = 20
LISTED_MAX = 50


def age(age_ms: int | None) -> str:
    """Format an age: `3 min`, `5 h`, `12 days`."""
    if age_ms is None:
        return "-"
    minutes = age_ms // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Format a table with fixed columns; the first `left` are texts, the others numbers."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = [
            f"{cell:<{width}}" if column < left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def sums(by_name: Mapping[str, Sum], head: str) -> Iterator[str]:
    """Format a table of sums by name."""
    rows = [
        (name, f"{each.units:,}", f"{each.files:,}", size(each.bytes))
        for name, each in by_name.items()
    ]
    yield from table((head, "units", "files", "size"), rows)


def usage_lines(
    namespace: str,
    usage: Usage,
    names: Mapping[int, tuple[str, str]],
    store: Mapping[str, MapSize],
    warning: str,
) -> Iterator[str]:
    yield f"namespace {namespace}: {size(usage.total.bytes)} in {usage.total.files:,} files"
    if warning:
        yield f"  {warning}"
    yield ""
    yield from sums(
        {kind.value: usage.by_kind[kind] for kind in UnitKind if kind in usage.by_kind}, "kind"
    )
    yield ""
    yield from sums(
        {name: usage.by_age[name] for name, _ in (*AGES, (OLDEST, 0)) if name in usage.by_age},
        "age",
    )
    yield ""
    yield from _job_lines(usage, names)
    yield (
        f"store: {size(sum(each.bytes for each in store.values()))} in"
        f" {sum(each.entries for each in store.values()):,} documents"
    )
    yield ""
    yield from table(
        ("map", "documents", "size"),
        [(name, f"{each.entries:,}", size(each.bytes)) for name, each in sorted(store.items())],
    )


def _job_lines(usage: Usage, names: Mapping[int, tuple[str, str]]) -> Iterator[str]:
    by_size = sorted(usage.by_job.items(), key=lambda item: (-item[1].bytes, item[0]))
    rows = []
    for job_id, job in by_size[:JOBS_SHOWN_MAX]:
        name, status = names.get(job_id, ("", "not in the store"))
        kinds = ", ".join(f"{each.units} {kind.value}" for kind, each in job.by_kind.items())
        rows.append((str(job_id), name, status, kinds, size(job.bytes), age(job.youngest_ms)))
    yield from table(("job", "name", "status", "units", "size", "youngest"), rows, left=4)
    if len(by_size) > JOBS_SHOWN_MAX:
        yield f"  and {len(by_size) - JOBS_SHOWN_MAX} more jobs; --json has all of them"
    yield ""


def verdict_lines(verdicts: Sequence[UnitVerdict], more: int) -> Iterator[str]:
    """Format a table of units with their kind and its reason."""
    yield from table(
        ("path", "kind", "why", "size", "age"),
        [
            (v.unit.path, v.kind.value, v.reason, size(v.unit.bytes), age(v.age_ms))
            for v in verdicts
        ],
        left=3,
    )
    if more:
        yield f"  and {more} more"


def quarantine_lines(
    quarantines: Sequence[Quarantine], delay_ms: int, now_ms: int
) -> Iterator[str]:
    """Describe the quarantines and when they are deleted."""
    for each in quarantines:
        if each.phase is QuarantinePhase.CLOSED:
            left_ms = max(0, each.closed_ms + delay_ms - now_ms)
            yield (
                f"quarantine {each.id}: {each.units} units, {size(each.bytes)}; deleted in"
                f" {age(left_ms)}"
            )
            yield f"  restore it with: tidegate state gc --undo {each.id}"
        elif each.phase is QuarantinePhase.OPEN:
            yield (
                f"quarantine {each.id}: a pass is running, or was interrupted; the next pass"
                " continues it"
            )
        else:
            yield f"quarantine {each.id}: restored; its units are not collected again for a while"


def usage_document(usage: Usage, names: Mapping[int, tuple[str, str]]) -> dict[str, Any]:
    return {
        "total": asdict(usage.total),
        "due": asdict(usage.due),
        "kinds": {kind.value: asdict(each) for kind, each in usage.by_kind.items()},
        "ages": {name: asdict(each) for name, each in usage.by_age.items()},
        "jobs": [
            {
                "job_id": job_id,
                "name": names.get(job_id, ("", ""))[0],
                "status": names.get(job_id, ("", ""))[1],
                "bytes": job.bytes,
                "kinds": {kind.value: asdict(each) for kind, each in job.by_kind.items()},
                "youngest_ms": job.youngest_ms,
            }
            for job_id, job in sorted(usage.by_job.items())
        ],
    }


def verdict_document(verdict: UnitVerdict) -> dict[str, Any]:
    unit = verdict.unit
    return {
        "path": unit.path,
        "kind": verdict.kind.value,
        "reason": verdict.reason,
        "job_id": unit.job_id,
        "files": unit.files,
        "bytes": unit.bytes,
        "age_ms": verdict.age_ms,
        "due": verdict.due,
    }
