"""One garbage collection pass: quarantine orphans that are due, delete quarantines that are due.

Callers: the leader's loop (coordinator/collector) and `tidegate state gc`. Two passes at once are
harmless: every move is checked against the store right before and right after it. A job is in the
store before it has a directory, so a unit that the store does not know, and that has not changed
for the grace period, is an orphan. What cannot be moved or deleted is reported, and the pass
continues.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.errors import StorageRefused
from tidegate.checkpoints.gc.classify import (
    Facts,
    Policy,
    UnitKind,
    UnitShape,
    UnitVerdict,
    classify,
    units,
)
from tidegate.checkpoints.gc.quarantine import Quarantine, QuarantinePhase, Quarantines
from tidegate.checkpoints.gc.usage import Quota, Usage, quota_age_ms

FAILURES_MAX = 20  # listed by name; the rest are counted


class Witness(Protocol):
    """Reads the current facts from the store."""

    def everything(self) -> Facts: ...

    def of_job(self, job_id: int | None) -> Facts:
        """Return the facts about one job, and all claims of restores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectorSettings:
    """Settings of a pass.

    `delay_ms` is how long a quarantine is kept; `orphans_ms` how long restored units are kept.
    """

    policy: Policy
    delay_ms: int
    orphans_ms: int
    quota: Quota = field(default_factory=Quota)


@dataclass(slots=True)
class Report:
    """The result of a pass."""

    usage: Usage = field(default_factory=Usage)
    quarantine: str = ""
    moved: int = 0
    moved_bytes: int = 0
    put_back: int = 0
    deleted: int = 0
    whole: bool = False  # the pass was not interrupted
    failed: list[str] = field(default_factory=list)
    failures: int = 0

    def fail(self, what: str) -> None:
        """Record a failure of one unit."""
        self.failures += 1
        if len(self.failed) < FAILURES_MAX:
            self.failed.append(what)


class Collector:
    """The collector of one namespace.

    `may_continue` is called between units: a leader that may have lost its lease stops.
    """

    def __init__(
        self, files: Files, witness: Witness, may_continue: Callable[[], bool] = lambda: True
    ) -> None:
        self.files = files
        self.witness = witness
        self.may_continue = may_continue
        self.quarantines = Quarantines(files)

    def survey(self, rules: CollectorSettings, facts: Facts | None = None) -> Iterator[UnitVerdict]:
        """Iterate over the verdicts of all units without changing anything."""
        known = self.held(rules, facts or self.witness.everything())
        for unit in units(self.files.walk("")):
            yield classify(unit, known, rules.policy)

    def apply_quota(self, rules: CollectorSettings) -> CollectorSettings:
        """Return the rules adapted to the quota; needs one more listing if there is a quota."""
        if not rules.quota.bytes:
            return rules
        usage = Usage()
        for verdict in self.survey(rules):
            usage.add(verdict)
        return replace(
            rules, policy=replace(rules.policy, sooner_ms=quota_age_ms(usage, rules.quota))
        )

    def held(self, rules: CollectorSettings, facts: Facts) -> Facts:
        """Add to the facts what users restored from quarantine."""
        back = [each for each in self.quarantines.all() if each.phase is QuarantinePhase.RESTORED]
        return replace(
            facts,
            held={
                place: each.closed_ms + rules.orphans_ms for each in back for place in each.places
            },
        )

    def collect(self, rules: CollectorSettings) -> Report:
        """Run one pass. If it is interrupted, the next one continues."""
        report = Report()
        rules = self.apply_quota(rules)
        self._finish_older(rules, report)
        quarantine: Quarantine | None = None
        for verdict in self.survey(rules):
            if not self.may_continue():
                return report
            report.usage.add(verdict)
            if not verdict.due:
                continue
            quarantine = quarantine or self.quarantines.open(rules.policy.now_ms)
            report.quarantine = quarantine.id
            self._collect(quarantine, verdict, rules, report)
        if self.may_continue():
            for each in self.quarantines.all():
                if each.phase is QuarantinePhase.OPEN:  # also of a pass that died
                    self.quarantines.close(each, rules.policy.now_ms)
            report.whole = True
        return report

    def delete_only(self, rules: CollectorSettings) -> Report:
        """Delete quarantines that are due, without collecting."""
        report = Report()
        self._finish_older(rules, report)
        return report

    def _collect(
        self, quarantine: Quarantine, verdict: UnitVerdict, rules: CollectorSettings, report: Report
    ) -> None:
        """Move one unit to quarantine if it is still due; back if it is needed meanwhile."""
        unit = verdict.unit
        if not self._still_due(verdict, rules):
            return
        try:
            self.quarantines.put(quarantine, unit)
            if self._wanted(verdict):
                self.quarantines.put_back(quarantine, unit.path)
                report.put_back += 1
                return
        except (OSError, StorageRefused) as error:
            report.fail(f"{unit.path}: {error}")
            return
        report.moved += 1
        report.moved_bytes += unit.bytes
        self._prune(unit.path)

    def _still_due(self, verdict: UnitVerdict, rules: CollectorSettings) -> bool:
        now = next(units(self.files.walk(verdict.unit.path)), None)
        if now is None and verdict.unit.shape is UnitShape.LEFTOVER:
            now = verdict.unit  # a file, not a directory
        if now is None or now.newest_ms != verdict.unit.newest_ms:
            return False
        return (
            classify(
                now, replace(self.witness.of_job(verdict.unit.job_id), expired={}), rules.policy
            ).kind
            is UnitKind.ORPHAN
        )

    def _wanted(self, verdict: UnitVerdict) -> bool:
        """Whether the store names the unit now, because a restore began after the survey."""
        return (
            classify(verdict.unit, self.witness.of_job(verdict.unit.job_id), Policy(now_ms=0)).kind
            is not UnitKind.ORPHAN
        )

    def _prune(self, path: str) -> None:
        above = path.split("/")[:-1]
        for depth in range(len(above), 0, -1):
            self.files.prune("/".join(above[:depth]))

    def _finish_older(self, rules: CollectorSettings, report: Report) -> None:
        """Put back quarantined units that are named again; delete quarantines that are due."""
        for quarantine in self.quarantines.all():
            if not self.may_continue():
                return
            waited_ms = rules.policy.now_ms - quarantine.closed_ms
            if quarantine.phase is QuarantinePhase.RESTORED:
                if waited_ms >= rules.orphans_ms:
                    self.quarantines.forget(quarantine)
                continue
            over = quarantine.phase is QuarantinePhase.CLOSED and waited_ms >= rules.delay_ms
            if quarantine.phase is QuarantinePhase.OPEN or over:
                self._return_named(quarantine, report)
            if over:
                failed = self.quarantines.delete(quarantine)
                report.deleted += quarantine.units - len(failed)
                for what in failed:
                    report.fail(what)

    def _return_named(self, quarantine: Quarantine, report: Report) -> None:
        """Put back what the store names: an earlier pass may have died before its second check."""
        for held in self.quarantines.contents(quarantine):
            facts = self.witness.of_job(held.unit.job_id)
            job = facts.jobs.get(held.unit.job_id) if held.unit.job_id is not None else None
            named = held.origin in facts.claimed or (job is not None and held.origin in job.named)
            if named and self.quarantines.free(held):
                try:
                    self.quarantines.put_back(quarantine, held.origin)
                    report.put_back += 1
                except (OSError, StorageRefused) as error:
                    report.fail(f"{held.origin}: {error}")
