"""Whether a store grows with time: a hundred jobs that make checkpoints and say that they live, a
thousand times and a million times. Called by __main__.py.

Every update is a transaction as a driver makes it (fleet.py), through the real store with its own
threshold, by several threads that have the jobs among them; nobody compacts it by hand.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from benchmarks.figures import Figure
from benchmarks.fleet import HOST, Hull
from benchmarks.parts import Bench
from benchmarks.stores import StorePlace, store_places
from tidegate.model.document import to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.records import (
    JOB_STATES,
    PIPELINES,
    JobState,
    JobStatus,
    PipelineState,
    ProcessRef,
)
from tidegate.pipeline.ledger import pipeline_key
from tidegate.store import Put, Store
from tidegate.store.backend import DEFAULT_COMPACTION_THRESHOLD
from tidegate.store.open import open_store

PART = "growth"
JOBS = 100
FIRST = 1_000
# The room that one change may take until the threshold is reached: a row of the change log, its
# token, their indexes. Etcd keeps the whole documents too, in every version, until it is
# compacted.
CHANGE_BYTES, CHANGE_BYTES_ETCD = 1_024, 3_072
WRITERS = 10
SHARES = {"etcd": 20}  # it takes so many times fewer updates: each costs an fsync of its own
MIB = 1 << 20


def growth(bench: Bench) -> None:
    """Each store with as many updates as it can take in the time."""
    for place in store_places(PART, bench.place, bench.shm, bench.stores):
        with place as store:
            grow(bench, store, max(FIRST, bench.updates // SHARES.get(store.name, 1)))


def grow(bench: Bench, place: StorePlace, updates: int) -> None:
    """Update, and measure the size at every power of ten."""
    store = open_store(place.url)
    try:
        made, sizes, began_s = 0, {}, time.perf_counter()
        shares = [
            acts([hull(store, job_id) for job_id in range(1 + writer, JOBS + 1, WRITERS)])
            for writer in range(WRITERS)
        ]
        with ThreadPoolExecutor(WRITERS) as writers:
            for mark in marks(updates):
                count = (mark - made) // WRITERS
                list(
                    writers.map(
                        lambda turns, count=count: [next(turns) for _ in range(count)], shares
                    )
                )
                made = mark
                sizes[mark] = place.bytes()
        rate = updates / (time.perf_counter() - began_s)
        documents = sum(size.bytes for size in store.size_by_map().values())
    finally:
        store.close()
    show(bench, place.name, sizes, rate, documents)


def marks(updates: int) -> list[int]:
    """A thousand, ten thousand, ..., all of them."""
    found = [FIRST]
    while found[-1] * 10 < updates:
        found.append(found[-1] * 10)
    return [*found, updates]


def acts(hulls: Sequence[Hull]) -> Iterator[None]:
    """Updates without end, one for each `next`."""
    for each in cycle(hulls):
        each.beat()
        yield
        each.begin()
        yield
        each.complete()
        yield
        each.beat()
        yield


def hull(store: Store, job_id: int) -> Hull:
    """A driver at its start."""
    state = JobState(job_id=job_id, status=JobStatus.SCHEDULED, generation=1)
    pipeline = PipelineState(job_id=job_id, pipeline=1, lineage=str(job_id), generation=1)
    store.transact(
        (),
        [
            Put(JOB_STATES, str(job_id), to_document(state)),
            Put(PIPELINES, pipeline_key(job_id, 1), to_document(pipeline)),
        ],
    )
    order = DriverSpec(home="", job_id=job_id, generation=1, store_url="", checkpoints_root="")
    started = Hull(store, order, "nobody", ProcessRef(pid=job_id, started=1, boot="", host=HOST))
    started.register()
    return started


def show(bench: Bench, name: str, sizes: dict[int, int], rate: float, documents: int) -> None:
    """Sizes, and their ratio to the first."""
    first, full = sizes[FIRST], sizes.get(DEFAULT_COMPACTION_THRESHOLD, sizes[FIRST])
    allowed = first + DEFAULT_COMPACTION_THRESHOLD * (
        CHANGE_BYTES_ETCD if name == "etcd" else CHANGE_BYTES
    )
    for mark, size in sizes.items():
        last = mark == max(sizes)
        bench.report.add(
            Figure(
                part=PART,
                name=f"{name}: after {mark:,} updates of {JOBS} jobs",
                value=size / MIB,
                unit="MiB",
                ratio=size / first,
                against=(
                    f"after {FIRST:,}; {size / full:.2f}x when the log was full; documents"
                    f" {documents / MIB:.2f} MiB"
                    if last
                    else f"after {FIRST:,}"
                ),
                aim=f"<= {allowed / MIB:.1f} MiB" if last else "",
                met=size <= allowed if last else None,
            )
        )
    bench.report.add(
        Figure(part=PART, name=f"{name}: updates by {WRITERS} writers", value=rate, unit="/s")
    )
