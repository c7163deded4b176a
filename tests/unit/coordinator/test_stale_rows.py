"""Rows that a new snapshot leaves in a target are announced before the job starts."""

from dataclasses import replace

import pytest
from coordinator_parts import Installation
from restore_parts import checkpoints

from tidegate.config.load import load_text
from tidegate.coordinator.restore.options import RestoreOptions, RestoreSource
from tidegate.coordinator.restore.planning import RestoreRequest, prepare_restore
from tidegate.model.plan import Plan
from tidegate.model.records import JobStatus
from tidegate.model.restore import OnIncompatible, OnPositionLost, RestoreReport
from tidegate.planner.plan import plan

CDC = (
    'MySQL-CDC { url = "jdbc:mysql://h/shop", username = "u", password = "p", table-names ='
    ' ["shop.orders"] }'
)
FAKE = "FakeSource { row.num = 1, schema { fields { id = bigint } } }"
KEYED = (
    'Jdbc { url = "jdbc:postgresql://h/t", driver = "org.postgresql.Driver", database = "t", table'
    ' = "orders", generate_sink_sql = true, primary_keys = ["id"] '
)


def job(source: str = CDC, sink: str = KEYED + "}") -> Plan:
    found = plan(
        load_text(
            f'env {{ job.mode = "STREAMING", job.name = "a job" }}\nsource {{ {source} }}\nsink {{'
            f" {sink} }}",
            "job",
        )
    )
    assert found.plan is not None, found.problems
    return found.plan


def planned(here: Installation, of: Plan, options: RestoreOptions) -> RestoreReport:
    return prepare_restore(
        here.store,
        here.storage,
        RestoreRequest(
            snapshot=here.snapshot(), name="a job", plan=of, options=options, status="FAILED"
        ),
    ).report


def told(report: RestoreReport) -> bool:
    return any("in the target" in note for note in report.notes)


def test_a_first_run_has_nothing_to_announce(here: Installation) -> None:
    assert not told(planned(here, job(), RestoreOptions.parse("fresh")))


@pytest.mark.parametrize(
    ("of", "announced"),
    [
        (job(), True),
        (job(sink=KEYED + ', data_save_mode = "DROP_DATA" }'), False),
        (job(sink=KEYED + ', schema_save_mode = "RECREATE_SCHEMA" }'), False),
        (job(source=FAKE), False),
        (job(sink="Console {}"), False),
    ],
)
def test_a_fresh_start_after_a_run_announces_rows_that_stay(
    here: Installation, of: Plan, announced: bool
) -> None:
    here.submit(of=of)
    checkpoints(here, 1)
    here.ended(JobStatus.FAILED)
    report = planned(here, of, RestoreOptions.parse("fresh"))
    assert told(report) is announced, report.notes
    if announced:
        assert any("set data_save_mode = DROP_DATA" in note for note in report.notes)


def test_a_new_snapshot_after_a_lost_log_announces_rows_that_stay(here: Installation) -> None:
    of = job()
    here.submit(of=of)
    checkpoints(here, 1)
    here.ended(JobStatus.FAILED)
    options = RestoreOptions(RestoreSource.LATEST, on_incompatible=OnIncompatible.DROP)
    assert not told(planned(here, of, options))
    report = planned(here, of, replace(options, on_position_lost=OnPositionLost.INITIAL))
    assert any(
        "rows that were deleted meanwhile stay in the target" in note for note in report.notes
    ), report.notes
