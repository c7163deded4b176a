"""The collector with a store: facts about jobs, namespace ownership, passes of the leader."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from coordinator_parts import Installation

from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.gc.classify import OWNER, UnitKind
from tidegate.checkpoints.gc.collector import Collector
from tidegate.checkpoints.gc.quarantine import Quarantines
from tidegate.coordinator.collector import (
    PASS_EVERY_MS,
    LeaderCollector,
    StoreFacts,
    last_report,
    rules_of,
)
from tidegate.coordinator.history_expiry import expire
from tidegate.coordinator.namespace_owner import OtherNamespace, claim_namespace, installation_id
from tidegate.election.elector import Elector
from tidegate.model.document import to_document
from tidegate.model.engine import CheckpointSettings, EngineSettings
from tidegate.model.maintenance import EXPIRED_JOBS
from tidegate.model.records import PENDING_CLEANUPS, RESTORE_CLAIMS, JobStatus, RestoreClaim
from tidegate.store.base import Delete, Put
from tidegate.store.open import open_store

DAY_MS = 24 * 3_600_000


def leaders(
    here: Installation, settings: EngineSettings | None = None
) -> tuple[LeaderCollector, Elector]:
    elector = Elector(here.store, "coordinator", "me", "", 3_000, here.clock)
    elector.claim()
    return (
        LeaderCollector(
            here.store,
            here.storage.files,
            settings or here.settings,
            here.clock,
            elector.leadership,
        ),
        elector,
    )


def turn(collector: LeaderCollector, elector: Elector) -> None:
    elector.claim()
    collector.step()


def aged(here: Installation, days: int) -> None:
    """Everything on disk was written so long ago, by the clock of the test."""
    root = Path(here.storage.files.describe())
    moment = here.clock.now_ms() - days * DAY_MS
    for path in root.rglob("*"):
        os.utime(path, ns=(0, moment * 1_000_000))


def kinds(here: Installation) -> dict[str, UnitKind]:
    collector = Collector(here.storage.files, StoreFacts(here.store))
    return {
        v.unit.path: v.kind
        for v in collector.survey(rules_of(here.settings.checkpoint, here.clock.now_ms()))
    }


def canceled(here: Installation, job_id: int = 7) -> None:
    """A job with two checkpoints that was cancelled and cleaned up."""
    here.submit(job_id, name=f"job {job_id}")
    here.checkpoint(job_id)
    here.checkpoint(job_id)
    here.ended(JobStatus.CANCELED, job_id)
    here.store.transact([], [Delete(PENDING_CLEANUPS, str(job_id))])


def forgotten(here: Installation, job_id: int = 7) -> None:
    """The same, and its history has expired."""
    canceled(here, job_id)
    here.clock.ms += 2 * DAY_MS
    assert expire(here.store, job_id, here.clock.now_ms(), here.clock.now_ms())


def test_a_job_is_live_then_retained_then_an_orphan(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    assert kinds(here) == {"7/1/1": UnitKind.LIVE}
    here.ended(JobStatus.CANCELED)
    assert kinds(here) == {"7/1/1": UnitKind.LIVE}, "its cleanup is still to come"
    here.store.transact([], [Delete(PENDING_CLEANUPS, "7")])
    assert kinds(here) == {"7/1/1": UnitKind.RETAINED}
    here.clock.ms += 2 * DAY_MS
    assert expire(here.store, 7, here.clock.now_ms(), here.clock.now_ms())
    assert kinds(here) == {"7/1/1": UnitKind.ORPHAN}


def test_a_claim_of_a_restore_keeps_state_of_another_job(here: Installation) -> None:
    forgotten(here)
    here.store.transact(
        [], [Put(RESTORE_CLAIMS, "8", to_document(RestoreClaim(job_id=8, paths=("7/1/2",))))]
    )
    assert kinds(here) == {"7/1/1": UnitKind.ORPHAN, "7/1/2": UnitKind.CLAIMED}


def test_the_leader_collects_old_orphans_and_reports(here: Installation) -> None:
    forgotten(here)
    canceled(here, 8)
    aged(here, 30)
    collector, elector = leaders(here)
    turn(collector, elector)
    assert (Path(here.storage.files.describe()) / "7" / "1").exists(), (
        "forgotten only now, however old its files are"
    )
    here.clock.ms += 7 * DAY_MS
    turn(collector, elector)
    report = last_report(here.store)
    assert report is not None
    assert (report.moved, report.whole, report.failures) == (2, True, 0)
    assert set(kinds(here)) - {OWNER} == {
        "8/1/1",
        "8/1/2",
        f"_quarantine/{here.clock.now_ms():013d}",
    }
    here.clock.ms += DAY_MS
    turn(collector, elector)
    assert set(kinds(here)) - {OWNER} == {"8/1/1", "8/1/2"}
    assert here.store.list(EXPIRED_JOBS) == [], "nothing of it is left"


def test_passes_are_timed_by_the_last_pass_of_any_leader(here: Installation) -> None:
    collector, elector = leaders(here)
    turn(collector, elector)
    first = last_report(here.store)
    here.clock.ms += PASS_EVERY_MS - 1
    turn(collector, elector)
    other = LeaderCollector(
        here.store, here.storage.files, here.settings, here.clock, elector.leadership
    )
    turn(other, elector)
    assert last_report(here.store) == first
    here.clock.ms += 60_001
    turn(other, elector)
    assert last_report(here.store) != first


def test_a_follower_collects_nothing(here: Installation) -> None:
    collector, elector = leaders(here)
    elector.resign()
    collector.step()
    assert last_report(here.store) is None


def test_another_store_does_not_collect_in_a_namespace_that_is_not_its_own(
    here: Installation,
) -> None:
    canceled(here)
    claim_namespace(here.storage.files, here.store)
    other = Installation(Path(here.storage.files.describe()).parent)
    aged(other, 30)
    with pytest.raises(OtherNamespace, match="--take-namespace"):
        claim_namespace(other.storage.files, other.store)
    collector, elector = leaders(other)
    turn(collector, elector)
    report = last_report(other.store)
    assert report is not None
    assert "belongs to the store" in report.warning
    assert (report.moved, report.due) == (0, 2)
    claim_namespace(other.storage.files, other.store, take=True)
    claim_namespace(other.storage.files, other.store)
    with pytest.raises(OtherNamespace):
        claim_namespace(here.storage.files, here.store)


def test_a_store_keeps_its_name(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    name = installation_id(store)
    assert installation_id(store) == name
    store.close()
    again = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    assert installation_id(again) == name
    again.close()


def test_a_namespace_whose_owner_cannot_be_read_is_nobodys(here: Installation) -> None:
    here.storage.files.write(OWNER, b"{")
    with pytest.raises(OtherNamespace, match="unreadable"):
        claim_namespace(here.storage.files, here.store)


def test_an_unreadable_namespace_is_reported_and_retried_later(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def refuse(_: LocalFiles, path: str) -> bytes:
        calls.append(path)
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(LocalFiles, "read", refuse)
    collector, elector = leaders(here)
    turn(collector, elector)
    turn(collector, elector)
    report = last_report(here.store)
    assert report is not None
    assert "cannot be read" in report.warning
    assert len(calls) == 1


def test_settings_become_the_rules() -> None:
    settings = CheckpointSettings(
        orphan_ttl_minutes=2, quarantine_minutes=3, quota_mb=4, quota_warning_percent=50
    )
    rules = rules_of(settings, 1000)
    assert (rules.policy.ttl_ms, rules.delay_ms, rules.quota.bytes, rules.quota.warning_bytes) == (
        120_000,
        180_000,
        4_000_000,
        2_000_000,
    )
    assert rules_of(replace(settings, orphan_ttl_minutes=0), 1000).policy.ttl_ms is None
    assert rules_of(settings, 1000, older_than_ms=0).policy.grace_ms == 0


def test_the_report_says_that_the_quota_is_near(here: Installation) -> None:
    canceled(here)
    here.storage.files.write("7/1/2/big", b"x" * 900_000)
    settings = replace(here.settings, checkpoint=CheckpointSettings(quota_mb=1))
    collector, elector = leaders(here, settings)
    turn(collector, elector)
    report = last_report(here.store)
    assert report is not None
    assert report.warning.startswith("the namespace is near its quota: 90")
    assert Quarantines(here.storage.files).all() == []
