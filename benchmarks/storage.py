"""Checkpoints on local files and on S3: what it takes to publish one, and to find the place to go
on from. Called by __main__.py.

S3 is a SeaweedFS on this host: what is measured is the number of requests, not a network. A restore
is what a submit and the driver do before the first batch: the retained checkpoints are verified and
read, what no record names is swept, the job's own numbers are looked up. It must not get slower
with the namespace.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from benchmarks.figures import Figure, median
from benchmarks.parts import Bench
from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.testing.servers.seaweedfs import SeaweedServer

PART = "store"
SOURCES = (1, 100)
RETAINED = 3
NAMESPACES = (1, 100, 10_000)
TIMES, TIMES_QUICK = 100, 5
RESTORES = 20
GROWS_MAX = 1.5  # a restore in the largest namespace, against one in the smallest
CHUNK = 500
JOB = 1


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    open: Callable[[str], Files]


def storage(bench: Bench) -> None:
    """Both places, one after the other."""
    quick = bench.repeats < 3
    with places(bench) as found:
        for place in found:
            for sources in SOURCES:
                publish(bench, place, sources, TIMES_QUICK if quick else TIMES)
            restore(bench, place, NAMESPACES[:2] if quick else NAMESPACES)


@contextmanager
def places(bench: Bench) -> Iterator[list[Place]]:
    """A disk, and a server on it."""
    with SeaweedServer(bench.place / "weed") as server:
        bucket = server.bucket()
        yield [
            Place("local files", lambda name: LocalFiles(bench.place / name)),
            Place("S3", lambda name: open_files(f"s3://{bucket}/{name}", server.options)),
        ]


def states(sources: int) -> dict[str, object]:
    """Offsets as a database's log has them."""
    return {
        f"Source[{n}]-MySQL-CDC": {
            "offset": {"file": "binlog.000042", "position": 4_711 + n, "tables": ["shop.orders"]}
        }
        for n in range(sources)
    }


def manifest(job_id: int, checkpoint: int) -> Manifest:
    """Of the first pipeline of a job."""
    return Manifest(
        job_id=job_id,
        pipeline=1,
        checkpoint=checkpoint,
        lineage=str(job_id),
        generation=1,
        begun_ms=1,
        files={},
    )


def publish(bench: Bench, place: Place, sources: int, times: int) -> None:
    """One checkpoint after the other."""
    store, content = CheckpointStorage(place.open(f"publish-{sources}")), states(sources)
    store.publish(manifest(JOB, 1), content)
    taken = sorted(
        timed(lambda n=n: store.publish(manifest(JOB, n), content)) for n in range(2, times + 2)
    )  # type: ignore[misc]  # bound on purpose
    p99 = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    for word, value in (("p50", median(taken)), ("p99", p99)):
        name = f"{place.name}: publish, {sources} source{'s' if sources > 1 else ''}, {word}"
        bench.report.add(
            Figure(
                part=PART,
                name=name,
                value=value * 1000,
                unit="ms",
                spread=(taken[0] * 1000, taken[-1] * 1000),
            )
        )


def restore(bench: Bench, place: Place, namespaces: tuple[int, ...]) -> None:
    """The same job's restore, in a namespace that grows."""
    files = place.open("restore")
    store, made, first = CheckpointStorage(files), 0, 0.0
    for n in range(1, RETAINED + 1):
        store.publish(manifest(JOB, n), states(1))
    for size in namespaces:
        populate(files, store, made, size)
        made = size
        taken = sorted(timed(lambda: go_on(store)) for _ in range(RESTORES))
        value = median(taken)
        first = first or value
        largest = size == namespaces[-1]
        bench.report.add(
            Figure(
                part=PART,
                name=f"{place.name}: restore, {size:,} retained checkpoints in the namespace",
                value=value * 1000,
                unit="ms",
                spread=(taken[0] * 1000, taken[-1] * 1000),
                ratio=value / first,
                against="a namespace with one",
                aim=f"<= {GROWS_MAX}x" if largest else "",
                met=value / first <= GROWS_MAX if largest else None,
            )
        )


def populate(files: Files, store: CheckpointStorage, made: int, wanted: int) -> None:
    """Checkpoints of other jobs: copies of one, which nobody reads."""
    whole = store.read(f"{JOB}/1/1")
    contents = {
        name: files.read(f"{JOB}/1/1/{name}") for name in (*whole.manifest.files, "_manifest.json")
    }
    others = [f"{2 + n // RETAINED}/1/{n}" for n in range(made, wanted - 1)]
    for start in range(0, len(others), CHUNK):
        files.write_tree(
            "",
            {
                f"{path}/{name}": data
                for path in others[start : start + CHUNK]
                for name, data in contents.items()
            },
        )


def go_on(store: CheckpointStorage) -> None:
    """What happens between a submit and the first batch, as far as the storage is asked."""
    kept = {path for _, path in store.checkpoints(JOB, 1)}
    for path in kept:
        assert store.damage(path) == ""
        store.read(path)
    store.sweep(JOB, 1, kept, 1)
    assert store.highest_ids(JOB) == replace(store.highest_ids(JOB), checkpoint=RETAINED)


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
