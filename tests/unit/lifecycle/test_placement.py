"""Which worker takes which job, and why none does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lifecycle.observation import Placement, Unplaceable
from tidegate.lifecycle.placement import QueuedJob, WorkerOffer, missing_tags, place_jobs

TAGS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
QUEUES = st.lists(
    st.builds(
        QueuedJob,
        job_id=st.integers(1, 50),
        tags=TAGS,
        blocked=st.sampled_from(["", "", "old incarnation"]),
        avoid=st.frozensets(st.sampled_from("vw")),
    ),
    unique_by=lambda job: job.job_id,
    max_size=12,
)
WORKERS = st.lists(
    st.builds(
        WorkerOffer,
        id=st.sampled_from("uvwxyz"),
        slots=st.integers(0, 4),
        taken=st.integers(0, 5),
        tags=TAGS,
    ),
    unique_by=lambda o: o.id,
    max_size=5,
)


@given(QUEUES, WORKERS)
def test_no_worker_gets_more_than_its_slots_and_no_job_a_worker_without_its_tags(
    queue, workers
) -> None:
    answers = place_jobs(queue, workers)
    assert list(answers) == [job.job_id for job in queue]
    for worker in workers:
        mine = [job for job in queue if answers[job.job_id] == Placement(worker.id)]
        assert len(mine) <= worker.free
        assert [job for job in mine if missing_tags(job.tags, worker.tags) or job.blocked] == []


@given(QUEUES, WORKERS)
def test_a_job_that_cannot_run_never_blocks_one_that_can(queue, workers) -> None:
    answers = place_jobs(queue, workers)
    left = {
        w.id: w.free - sum(answer == Placement(w.id) for answer in answers.values())
        for w in workers
    }
    for job in queue:
        if isinstance(answers[job.job_id], Unplaceable) and not job.blocked:
            assert [
                w.id for w in workers if not missing_tags(job.tags, w.tags) and left[w.id]
            ] == []


@given(QUEUES, WORKERS)
def test_placement_does_not_depend_on_the_order_of_workers(queue, workers) -> None:
    assert place_jobs(queue, workers) == place_jobs(queue, list(reversed(workers)))


def test_the_least_loaded_worker_comes_first() -> None:
    workers = [
        WorkerOffer(id="full", slots=2, taken=2),
        WorkerOffer(id="half", slots=4, taken=2),
        WorkerOffer(id="quarter", slots=8, taken=2),
    ]
    answers = place_jobs([QueuedJob(job_id=n) for n in range(1, 8)], workers)
    assert [answers[n].worker for n in range(1, 8)] == [
        "quarter",
        "quarter",
        "quarter",
        "half",
        "quarter",
        "quarter",
        "half",
    ]


def test_of_equal_workers_the_one_with_more_slots_and_then_the_first_by_name() -> None:
    assert place_jobs(
        [QueuedJob(job_id=1)],
        [WorkerOffer(id="b", slots=2), WorkerOffer(id="a", slots=2), WorkerOffer(id="c", slots=3)],
    )[1] == Placement("c")
    assert place_jobs(
        [QueuedJob(job_id=1)], [WorkerOffer(id="b", slots=2), WorkerOffer(id="a", slots=2)]
    )[1] == Placement("a")


def test_where_the_last_driver_did_not_start_is_tried_last() -> None:
    again = QueuedJob(job_id=1, avoid=frozenset({"idle"}))
    assert place_jobs(
        [again], [WorkerOffer(id="idle", slots=9), WorkerOffer(id="busy", slots=2, taken=1)]
    )[1] == Placement("busy")
    assert place_jobs([again], [WorkerOffer(id="idle", slots=9)])[1] == Placement("idle")


@pytest.mark.parametrize(
    ("job", "workers", "reason"),
    [
        (QueuedJob(job_id=1), [], "no worker is running"),
        (
            QueuedJob(job_id=1),
            [WorkerOffer(id="w", slots=2, taken=2), WorkerOffer(id="v", slots=1, taken=1)],
            "all 3 slots are taken",
        ),
        (QueuedJob(job_id=1), [WorkerOffer(id="w", slots=0)], "the workers have no slots"),
        (
            QueuedJob(job_id=1, tags={"zone": "b", "disk": "ssd"}),
            [
                WorkerOffer(id="w", slots=2, tags={"zone": "a", "disk": "ssd"}),
                WorkerOffer(id="v", slots=2),
            ],
            "no worker has the tags that the job requires; the closest one lacks zone=b",
        ),
        (
            QueuedJob(job_id=1, tags={"zone": "b"}),
            [
                WorkerOffer(id="w", slots=2, taken=2, tags={"zone": "b"}),
                WorkerOffer(id="v", slots=2),
            ],
            "all 2 slots of the workers with its tags are taken",
        ),
        (
            QueuedJob(job_id=1, blocked="the old incarnation is being cleaned up"),
            [WorkerOffer(id="w", slots=2)],
            "the old incarnation is being cleaned up",
        ),
    ],
)
def test_an_unplaceable_job_has_a_reason(job, workers, reason) -> None:
    assert place_jobs([job], workers)[1] == Unplaceable(reason)


def test_a_job_that_must_not_wait_is_rejected_but_not_while_blocked() -> None:
    assert place_jobs([QueuedJob(job_id=1, reject_when_full=True)], [])[1] == Unplaceable(
        "no worker is running", rejected=True
    )
    assert place_jobs([QueuedJob(job_id=1, reject_when_full=True, blocked="cleanup")], [])[
        1
    ] == Unplaceable("cleanup")
