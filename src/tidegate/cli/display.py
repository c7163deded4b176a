"""The live display of `tidegate run`: a table on a terminal, plain lines elsewhere, or JSON lines.

Rows of Console sinks go to standard output, everything about the run to standard error. With --json
all of it goes to standard output.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import TextIO

from tidegate.cli import output
from tidegate.cli.job_display import JobDisplay, PipelineView
from tidegate.model.document import to_document
from tidegate.model.records import JobOutcome, JobStatus

PLAIN_EVERY_S = 5.0
UNKNOWN = "\u2013"
REDRAWN_EVERY_S = 0.2
OnLost = Callable[[OSError], None]


def ignore_lost_output(error: OSError) -> None:
    """Do nothing when the output cannot be written."""


class Display(ABC):
    """Shows a run.

    A stream that cannot be written is silenced, and `on_lost` is called. No method raises an error
    for it, in any thread.
    """

    def __init__(self, on_lost: OnLost = ignore_lost_output) -> None:
        self._on_lost = on_lost

    def _guarded(self, stream: TextIO, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            output.silence(stream)
            self._on_lost(error)

    def _line(self, text: str, stream: TextIO) -> None:
        self._guarded(stream, lambda: print(text, file=stream, flush=True))

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a message to the user."""

    @abstractmethod
    def update(self, view: JobDisplay) -> None:
        """Show the current state; called a few times a second."""

    @abstractmethod
    def row(self, line: str) -> None:
        """Print a line of a Console sink."""

    @abstractmethod
    def end(self, outcome: JobOutcome, seconds: float, log: str, advice: str = "") -> None:
        """Show the summary; `advice` has the command that runs the job again."""

    def close(self) -> None:  # noqa: B027  # only a terminal has something to restore
        """Restore the terminal to its normal state."""


class PlainDisplay(Display):
    """Plain text for logs: a line for each pipeline every few seconds."""

    def __init__(self, on_lost: OnLost = ignore_lost_output) -> None:
        super().__init__(on_lost)
        self._shown_s = 0.0

    def note(self, text: str) -> None:
        self._line(text, sys.stderr)

    def update(self, view: JobDisplay) -> None:
        """Print one line for each pipeline, at most every PLAIN_EVERY_S."""
        if view.elapsed_s - self._shown_s < PLAIN_EVERY_S:
            return
        self._shown_s = view.elapsed_s
        for pipeline in view.pipelines:
            self.note(
                f"{view.status.lower()} {duration(view.elapsed_s)}  {describe_pipeline(pipeline)}"
            )

    def row(self, line: str) -> None:
        self._line(line, sys.stdout)

    def end(self, outcome: JobOutcome, seconds: float, log: str, advice: str = "") -> None:
        for line in summary(outcome, seconds, log, advice):
            self.note(line)


class JsonDisplay(Display):
    """One JSON object per line on standard output."""

    def __init__(self, on_lost: OnLost = ignore_lost_output) -> None:
        super().__init__(on_lost)
        self._last: object = None

    def note(self, text: str) -> None:
        """Print a message as a `note` event."""
        self._print({"event": "note", "text": text})

    def update(self, view: JobDisplay) -> None:
        shown = asdict(view)
        rest = {
            **shown,
            "elapsed_s": 0,
            "pipelines": [
                {**p, "checkpoint_age_s": 0, "rows_per_second": 0} for p in shown["pipelines"]
            ],
        }
        if rest != self._last:
            self._last = rest
            self._print({"event": "progress", **shown})

    def row(self, line: str) -> None:
        """Print a line of a Console sink as a `row` event."""
        self._print({"event": "row", "line": line})

    def end(self, outcome: JobOutcome, seconds: float, log: str, advice: str = "") -> None:
        failures = [
            {
                "condition": f.condition,
                "domain": f.domain,
                "pipeline": f.pipeline,
                "message": f.message,
                **({"change": to_document(f.change)} if f.change else {}),
            }
            for f in outcome.failures
        ]
        self._print(
            {
                "event": "end",
                "status": outcome.status.value,
                "job_id": outcome.job_id,
                "name": outcome.name,
                "rows_read": outcome.rows_read,
                "rows_written": outcome.rows_written,
                "rows_failed": 0,
                "checkpoints": outcome.checkpoints,
                "seconds": round(seconds, 3),
                "failures": failures,
                "log": log,
                "advice": advice,
            }
        )

    def _print(self, event: dict[str, object]) -> None:
        self._line(json.dumps(event, ensure_ascii=not _is_utf8(sys.stdout)), sys.stdout)


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


class TerminalDisplay(Display):
    """A table that is redrawn in place, with messages above it.

    Rows appear above it too, unless standard output is redirected.
    """

    def __init__(self, on_lost: OnLost = ignore_lost_output) -> None:
        from rich.live import Live

        from tidegate.cli.pipe_console import PipeConsole

        super().__init__(on_lost)
        self._console = PipeConsole(stderr=True)
        # Without a refresh thread, whose errors would be lost; standard output is not redirected.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._drawn_s = float("-inf")
        self._guarded(sys.stderr, self._live.start)

    def note(self, text: str) -> None:
        self._guarded(sys.stderr, lambda: self._console.print(text, markup=False, highlight=False))

    def row(self, line: str) -> None:
        """Print above the table, or to a redirected standard output."""
        self.note(line) if sys.stdout.isatty() else self._line(line, sys.stdout)

    def update(self, view: JobDisplay) -> None:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if view.elapsed_s - self._drawn_s < REDRAWN_EVERY_S:
            return
        self._drawn_s = view.elapsed_s
        table = Table(
            box=None,
            title=f"{view.name} ({view.job_id})  {view.status}  {duration(view.elapsed_s)}",
            title_justify="left",
        )
        for column in (
            "pipeline",
            "doing",
            "rows in",
            "rows out",
            "rows/s",
            "checkpoint",
            "age",
            "done",
        ):
            table.add_column(
                column, justify="left" if column in ("pipeline", "doing", "done") else "right"
            )
        for p in view.pipelines:
            bar = ProgressBar(total=p.total, completed=p.done, width=24) if p.total else ""
            age = "" if p.checkpoint_age_s is None else duration(p.checkpoint_age_s)
            table.add_row(
                str(p.pipeline),
                p.phase,
                f"{p.rows_read:,}",
                f"{p.rows_written:,}",
                rate(p),
                str(p.checkpoint or "-"),
                age,
                bar,
            )
        self._guarded(sys.stderr, lambda: self._live.update(table, refresh=True))

    def end(self, outcome: JobOutcome, seconds: float, log: str, advice: str = "") -> None:
        """Remove the table and print the summary."""
        self.close()
        for line in summary(outcome, seconds, log, advice):
            self.note(line)

    def close(self) -> None:
        self._guarded(sys.stderr, self._live.stop)


def describe_pipeline(pipeline: PipelineView) -> str:
    """Describe a pipeline in one line."""
    text = (
        f"pipeline {pipeline.pipeline} {pipeline.phase}: {pipeline.rows_read:,} rows in,"
        f" {pipeline.rows_written:,} out, {rate(pipeline)}/s"
    )
    if pipeline.checkpoint_age_s is not None:
        text += f", checkpoint {pipeline.checkpoint} {duration(pipeline.checkpoint_age_s)} ago"
    if pipeline.waits_for:
        text += f"; {pipeline.waits_for}"
    if pipeline.total:
        text += f", {pipeline.done / pipeline.total:.0%} of {pipeline.total:,.0f} {pipeline.unit}"
    return text


def rate(pipeline: PipelineView) -> str:
    """Format rows per second; a dash while the rate is unknown."""
    return UNKNOWN if pipeline.rows_per_second is None else f"{pipeline.rows_per_second:,.0f}"


def summary(outcome: JobOutcome, seconds: float, log: str, advice: str = "") -> list[str]:
    """Summarize the end of a run in a few lines."""
    lines = [f"job {outcome.name!r} ({outcome.job_id}) {outcome.status.value}"]
    if outcome.status is JobStatus.FAILED:
        lines += [f"  error: {failure.message}" for failure in outcome.failures[-1:]] + [
            f"  more in {log}"
        ]
    checkpoints = f"{outcome.checkpoints} checkpoint{'s' if outcome.checkpoints != 1 else ''}"
    lines.append(
        f"  read {outcome.rows_read:,} rows, committed {outcome.rows_written:,}, failed 0, in"
        f" {seconds:.1f} s, {checkpoints}"
    )
    return [*lines, f"  {advice}"] if advice else lines


def duration(seconds: float) -> str:
    """Format a duration: `7 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def choose_display(*, as_json: bool, on_lost: OnLost = ignore_lost_output) -> Display:
    """Choose the display for this output: JSON, terminal or plain."""
    if as_json:
        return JsonDisplay(on_lost)
    return TerminalDisplay(on_lost) if sys.stderr.isatty() else PlainDisplay(on_lost)
