"""State that does not fit, and what the restore plan says of it: compatible changes pass, others
are named, and each has its option.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from coordinator_parts import Installation, plan
from restore_parts import checkpoints, damage, without_store

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.operator_identity import IDENTITY, identity_of
from tidegate.coordinator.cleanup import carry_out_cleanup
from tidegate.coordinator.restore.planning import Incompatible, NeedsConsent
from tidegate.coordinator.restore.points import NewestDamaged
from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import CheckpointRef, JobStatus, PipelineState
from tidegate.model.restore import OnDamaged, OnIncompatible, Verdict

SINK = "Sink[0]-LocalFile"


def test_on_damaged_fail_refuses_and_names_what_would_be_sound(here: Installation) -> None:
    here.submit()
    refs = checkpoints(here, 3)
    damage(here, refs[2])
    here.ended(JobStatus.FAILED)
    with pytest.raises(
        NewestDamaged, match=r"7/1/3 is damaged: .*checkpoint 2 is sound: with --on-damaged older"
    ):
        here.submit(restore="latest", on_damaged=OnDamaged.FAIL)
    assert here.submit(restore="latest").restored


def job(
    *,
    path: str = "/in",
    sink_path: str = "/out",
    keys: list[str] | None = None,
    more: tuple[Action, ...] = (),
    **options: object,
) -> Plan:
    """A source and a sink, both with names that do not depend on their place."""
    source = Action(
        operator="orders",
        label="Source[0]-LocalFile",
        kind=BlockKind.SOURCE,
        plugin="LocalFile",
        options={"path": path, **options},
    )
    sink = Action(
        operator="lake",
        label=SINK,
        kind=BlockKind.SINK,
        plugin="LocalFile",
        options={"path": sink_path, "primary_keys": keys, "is_enable_transaction": True, **options},
        inputs=("orders",),
    )
    return Plan(
        job_name="a job",
        env=plan().env,
        pipelines=(PipelinePlan(id=1, actions=(source, *more, sink)),),
    )


def run_of(here: Installation, of: Plan, count: int = 2) -> list[CheckpointRef]:
    """A job that has made checkpoints with state of its own operators, and failed."""
    here.submit(of=of)
    refs = []
    for _ in range(count):
        state = here.pipeline()
        number = state.next_checkpoint
        manifest = replace(_manifest(state), checkpoint=number)
        states = {
            a.operator: {
                ("offset" if a.kind is BlockKind.SOURCE else "state"): number,
                IDENTITY: identity_of(a),
            }
            for a in of.pipelines[0].actions
        }
        published = here.storage.publish(
            manifest, {k: v for k, v in states.items() if k != "filter"}
        )
        ref = CheckpointRef(
            checkpoint=number,
            path=published.path,
            generation=0,
            begun_ms=0,
            completed_ms=0,
            rows_read=10,
            rows_written=10,
        )
        refs.append(ref)
        here.put(
            replace(
                state,
                initial={"orders": 0},
                retained=(*state.retained, ref),
                next_checkpoint=number + 1,
                rows_read=number * 10,
            )
        )
    here.ended(JobStatus.FAILED)
    return refs


def _manifest(state: PipelineState) -> Manifest:
    return Manifest(
        job_id=state.job_id,
        pipeline=1,
        checkpoint=0,
        lineage=state.lineage,
        generation=state.generation,
        begun_ms=0,
        files={},
    )


FILTER = Action(
    operator="filter",
    label="Transform[0]-Filter",
    kind=BlockKind.TRANSFORM,
    plugin="FilterRowKind",
    options={},
    inputs=("orders",),
)


def test_compatible_changes_pass_and_are_reported(here: Installation) -> None:
    run_of(here, job())
    changed = job(more=(FILTER,), compress_codec="lz4")
    actions = tuple(replace(a, parallelism=4) for a in reversed(changed.pipelines[0].actions))
    record = here.submit(
        restore="latest", of=replace(changed, pipelines=(PipelinePlan(id=1, actions=actions),))
    )
    assert record.restore is not None
    assert record.restore.verdict is Verdict.OK
    told = {o.operator: o for o in record.restore.operators}
    assert told["lake"].resumes == "checkpoint 2"
    assert told["lake"].changes == ("options: compress_codec", "parallelism 1 -> 4")
    assert told["filter"].resumes == "nothing: it keeps no state"
    assert told["orders"].held == "asked when the driver starts"


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (
            job(path="/other"),
            r"orders: path is '/other' in the job file, and its state was made with '/in'",
        ),
        (job(sink_path="/elsewhere"), r"lake: path is '/elsewhere'"),
        (job(keys=["id"]), r"lake: primary_keys is another one"),
        (
            plan(),
            (
                r"lake has state in the unfinished run and is no longer in the job file\n  orders"
                r" has state"
            ),
        ),
    ],
)
def test_incompatible_state_is_named_and_can_be_dropped(
    here: Installation, changed: Plan, names: str
) -> None:
    run_of(here, job())
    before = here.stored()
    with pytest.raises(Incompatible, match=names):
        here.submit(restore="latest", of=changed)
    assert here.stored() == before
    record = here.submit(restore="latest", of=changed, on_incompatible=OnIncompatible.DROP)
    assert record.restore is not None
    assert record.restore.dropped_operators
    state = here.pipeline()
    assert set(state.dropped_operators) == set(record.restore.dropped_operators)
    assert not set(state.initial or ()) & set(state.dropped_operators)


def test_what_does_not_fit_may_be_started_over(here: Installation) -> None:
    run_of(here, job())
    here.clock.ms += 61_000
    carry_out_cleanup(here.store, here.storage, 7, keep_state=True)
    record = here.submit(
        restore="latest", of=job(path="/other"), on_incompatible=OnIncompatible.FRESH
    )
    assert not record.restored


def test_what_was_changed_is_found_even_without_a_store(here: Installation, tmp_path: Path) -> None:
    run_of(here, job())
    with pytest.raises(Incompatible, match="path is '/other'"):
        without_store(here, tmp_path / "other").submit(restore="auto", of=job(path="/other"))


def test_going_back_with_a_sink_that_cannot_roll_back_needs_consent(
    here: Installation,
) -> None:
    plain = job()
    console = replace(plain.pipelines[0].actions[1], plugin="Console", options={})
    of = replace(
        plain, pipelines=(PipelinePlan(id=1, actions=(plain.pipelines[0].actions[0], console)),)
    )
    run_of(here, of, 3)
    with pytest.raises(
        NeedsConsent,
        match=(
            r"lake cannot roll rows back: up to 20 rows after checkpoint 1 will be written"
            r" twice\nAgree with --allow-duplicates"
        ),
    ):
        here.submit(restore="checkpoint:1", of=of)
    record = here.submit(restore="checkpoint:1", of=of, duplicates=True)
    assert record.restore is not None
    assert record.restore.verdict is Verdict.REPLAY
    assert {o.operator: o.replays for o in record.restore.operators} == {
        "orders": "20 rows are read again",
        "lake": "duplicate: rows that it has are written again",
    }


def test_going_back_with_files_is_a_rewind_and_needs_no_consent(here: Installation) -> None:
    run_of(here, job(), 3)
    record = here.submit(restore="checkpoint:2", of=job())
    assert record.restore is not None
    assert record.restore.verdict is Verdict.REPLAY
    assert (
        record.restore.operators[-1].replays
        == "rewind: what is newer than checkpoint 2 is rolled back"
    )


def test_a_fork_may_write_elsewhere_but_reads_the_same(here: Installation) -> None:
    run_of(here, job())
    here.submit(restore="latest", of=job())
    fork = here.submit(8, source=7, of=job(sink_path="/elsewhere"))
    assert fork.restore is not None
    assert (fork.fork, fork.restore.dropped_operators) == (True, ("lake",))
    with pytest.raises(Incompatible, match="orders: path is '/other'"):
        here.submit(9, source=7, of=job(path="/other"))
