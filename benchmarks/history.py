"""Thousands of jobs that have ended, as their terminal transactions and cleanups leave them in the
store. Called by api.py, before a server is there.
"""

from itertools import islice

from tidegate.config.load import load_text
from tidegate.coordinator.job_snapshot import JobSnapshot, Stored
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.model.plan import Plan
from tidegate.model.records import (
    JOB_OUTCOMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    CheckpointRef,
    Failure,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
)
from tidegate.planner.plan import plan
from tidegate.store.base import Delete, Put
from tidegate.store.open import open_store

STATUSES = (*(JobStatus.FINISHED,) * 8, JobStatus.FAILED, JobStatus.CANCELED)  # in turn
# one has ended every so often: ten thousand of them are within the day that history is kept
EVERY_MS = 5_000
TOOK_MS = 60_000
ROWS = 1_000
AT_ONCE = 30  # jobs of one transaction, which takes 100 writes
JOB = """
env { job.mode = "BATCH", checkpoint.interval = 10000 }
source { FakeSource { plugin_output = "orders", row.num = 1000, schema {
  fields { id = bigint, customer = string, city = string, price = double, paid = boolean } } } }
transform { Sql { plugin_input = "orders", plugin_output = "paid"
  query = "select id, customer, price from orders where paid" } }
sink { Console { plugin_input = "paid" } }
"""


def put_history(store_url: str, count: int, now_ms: int) -> None:
    """So many ended jobs, the last one just now. Their ids count from 1."""
    planned = plan(load_text(JOB, "nightly")).plan
    assert planned is not None, "a job file of ours"
    store, each = open_store(store_url), iter(range(1, count + 1))
    try:
        while chunk := list(islice(each, AT_ONCE)):
            store.transact(
                [],
                [
                    write
                    for number in chunk
                    for write in left_of(planned, number, now_ms - (count - number) * EVERY_MS)
                ],
            )
    finally:
        store.close()


def left_of(planned: Plan, job_id: int, ended_ms: int) -> list[Put | Delete]:
    """What is left of one job after its cleanup: its outcome, and the place of one that can be
    resumed.
    """
    status, begun_ms = STATUSES[job_id % len(STATUSES)], ended_ms - TOOK_MS
    record = JobRecord(
        job_id=job_id,
        name=f"nightly-{job_id % 50}",
        initialization_ms=begun_ms,
        lineage=f"l{job_id}",
        plan=planned,
    )
    entered = {
        each.value: begun_ms + n
        for n, each in enumerate((JobStatus.CREATED, JobStatus.SCHEDULED, JobStatus.RUNNING))
    }
    state = JobState(
        job_id=job_id,
        status=JobStatus.RUNNING,
        initialization_ms=begun_ms,
        generation=1,
        entered=entered,
    )
    kept = CheckpointRef(
        checkpoint=6,
        path=f"{job_id}/1/6",
        generation=1,
        begun_ms=ended_ms - 900,
        completed_ms=ended_ms - 500,
        bytes=1_000,
        rows_read=ROWS,
    )
    pipeline = PipelineState(
        job_id=job_id,
        pipeline=1,
        lineage=record.lineage,
        generation=1,
        status=PipelineStatus.FINISHED if status is JobStatus.FINISHED else PipelineStatus.RUNNING,
        initial={},
        next_checkpoint=7,
        retained=(kept,),
        rows_read=ROWS,
        rows_written=ROWS,
        checkpoints=6,
    )
    snapshot = JobSnapshot(
        job_id=job_id,
        record=Stored(record, 1),
        state=Stored(state, 1),
        pipelines=(Stored(pipeline, 1),),
        outcome=None,
    )
    failure = (
        Failure(
            at_ms=ended_ms,
            generation=1,
            pipeline=1,
            condition="sink",
            message="the target did not answer",
        )
        if status is JobStatus.FAILED
        else None
    )
    writes = terminal_transaction(snapshot, status, ended_ms, failure=failure).writes
    resumable = any(
        write.map == PENDING_CLEANUPS and isinstance(write, Put) and write.value["resumable"]
        for write in writes
    )
    return [
        write
        for write in writes
        if write.map == JOB_OUTCOMES or (resumable and write.map in (JOB_STATES, PIPELINES))
    ]
