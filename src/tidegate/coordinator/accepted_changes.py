"""Table changes at which a job stopped, and whether a decision matches them.

Called by commands, restore planning, the CLI and displays. Pure.
"""

from collections.abc import Iterable

from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.model.errors import UserError
from tidegate.model.option_error import MessagePart, OptionError, OptionMention
from tidegate.model.records import JobOutcome, JobStatus
from tidegate.model.table_changes import AcceptedChange, ChangeChoice, ChangeStop


class NotStopped(UserError):
    """The job is not stopped at this change: there is nothing to decide."""

    condition = "not-stopped-at-change"

    def __init__(self, job_id: int, change: AcceptedChange, why: str) -> None:
        table = f" of {change.table}" if change.table else ""
        super().__init__(
            f"job {job_id} is not stopped at a change{table} at {change.at}: {why}. Nothing was"
            " done"
        )
        self.job_id = job_id


class ChoiceNotOffered(OptionError):
    """The change does not allow this choice."""

    condition = "choice-not-offered"

    def __init__(self, change: AcceptedChange, stop: ChangeStop) -> None:
        offered: list[MessagePart] = [", ".join(choice.value for choice in stop.choices)]
        if not stop.choices:
            offered = ["none: start with ", OptionMention("--restore", "fresh")]
        super().__init__(
            f"{change.choice.value} is not possible at {stop.at} of {stop.table}"
            f" ({stop.statement}): the choices are ",
            *offered,
            ". Nothing was done",
        )
        self.stop = stop


def table_stops(outcome: JobOutcome | None) -> tuple[ChangeStop, ...]:
    """Return the changes that ended a job, one for each table; empty for another cause."""
    if outcome is None or outcome.status is not JobStatus.FAILED or not outcome.failures:
        return ()
    last = outcome.failures[-1].generation
    found = [
        failure.change
        for failure in outcome.failures
        if failure.generation == last and failure.change is not None
    ]
    return tuple(dict.fromkeys(found))


def stopped_job(snapshot: JobSnapshot, change: AcceptedChange) -> JobOutcome:
    """Return the outcome that a decision applies to; raise NotStopped or ChoiceNotOffered."""
    if snapshot.record is not None:
        status = snapshot.state.value.status.value if snapshot.state else "there"
        raise NotStopped(snapshot.job_id, change, f"it is {status}")
    outcome = snapshot.outcome
    if outcome is None:
        raise NotStopped(snapshot.job_id, change, "there is no such job here")
    stops = table_stops(outcome)
    if not stops:
        why = f": {outcome.failures[-1].message.splitlines()[0]}" if outcome.failures else ""
        raise NotStopped(snapshot.job_id, change, f"it has ended as {outcome.status.value}{why}")
    answered = [stop for stop in stops if change.applies_to(stop.table, stop.at)]
    if not answered:
        raise NotStopped(
            snapshot.job_id,
            change,
            "it is stopped at " + ", ".join(f"{stop.at} of {stop.table}" for stop in stops),
        )
    check_offered(change, answered)
    return outcome


def check_offered(change: AcceptedChange, stops: Iterable[ChangeStop]) -> None:
    """Raise ChoiceNotOffered if a change covered by the decision does not allow the choice."""
    for stop in stops:
        if change.applies_to(stop.table, stop.at) and change.choice not in stop.choices:
            raise ChoiceNotOffered(change, stop)


def acceptance_notes(
    changes: Iterable[AcceptedChange], outcome: JobOutcome | None, *, resumed: bool
) -> tuple[str, ...]:
    """Return the notes of a restore plan about decisions."""
    notes = []
    stops = table_stops(outcome)
    for change in changes:
        if not resumed:
            notes.append(
                f"warning: --accept-change {change} has no effect: the job starts from the"
                " beginning"
            )
            continue
        what = (
            f"the change at {change.at}{' of ' + change.table if change.table else ''} is accepted"
            f" ({change.choice.value}): {change.choice.meaning}"
        )
        notes.append(f"warning: {what}" if change.choice is ChangeChoice.REREAD else what)
        if not any(change.applies_to(stop.table, stop.at) for stop in stops):
            notes.append(
                f"warning: the last run did not stop at {change.at}: the decision counts only if"
                " the log comes to a change there"
            )
    return tuple(notes)
