"""The collector over a namespace of many objects: time and peak memory of a look, of a pass that
moves everything, and of one that deletes it.

Called by __main__.py. Each act is a process of its own (`python -m benchmarks.collector <act>
<place>`), so that its peak memory is its own; the same over a hundredth of the objects says what of
it does not depend on their number.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.parts import Bench
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.gc.classify import Policy
from tidegate.checkpoints.gc.collector import Collector, CollectorSettings
from tidegate.checkpoints.gc.usage import Usage
from tidegate.coordinator.collector import StoreFacts
from tidegate.store.open import open_store

PART = "collector"
FILES = (
    "Source[0]-FakeSource/state-data",
    "Sink[0]-LocalFile/state-data",
    "_manifest.json",
)  # of a checkpoint
OF_A_JOB = 10  # checkpoints
ACTS = ("look", "collect", "delete")
EXTRA_MIB_MAX = 64
LATER_MS = 4_000_000_000_000


def collector(bench: Bench) -> None:
    """A small namespace, then the big one."""
    few, many = max(300, bench.updates // 100), bench.updates
    small = {act: measured(bench.shm / "few", act, few) for act in ACTS}
    for act in ACTS:
        seconds, cpu_s, rss_mib = measured(bench.shm / "many", act, many)
        aim = small[act][2] + EXTRA_MIB_MAX
        bench.report.add(
            Figure(
                part=PART,
                name=f"{act}: {many:,} objects, {many / seconds:,.0f} /s",
                value=seconds,
                unit="s",
                cpu_s=cpu_s,
                ratio=rss_mib / small[act][2],
                against=f"memory over {few:,} objects",
                aim=f"<= {aim} MiB",
                met=rss_mib <= aim,
                rss_mib=rss_mib,
                uss_mib=rss_mib,
            )
        )


def measured(place: Path, act: str, objects: int) -> tuple[float, float, int]:
    """Seconds, processor time and peak memory of one act, after the namespace was made."""
    if not place.exists():
        fill(place, objects)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collector", act, str(place)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    return told["seconds"], told["cpu_s"], told["rss_mib"]


def fill(place: Path, objects: int) -> None:
    """Checkpoints of jobs that no store knows."""
    for number in range(objects // len(FILES)):
        top = place / str(number // OF_A_JOB + 1) / "1" / str(number % OF_A_JOB + 1)
        for name in FILES:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(b"{}")


def act_on(act: str, place: Path) -> dict[str, float]:
    """In the process that is measured."""
    store = open_store("memory:")
    files = LocalFiles(place)
    worker = Collector(files, StoreFacts(store))
    now_ms = LATER_MS if act != "delete" else LATER_MS + 10
    rules = CollectorSettings(
        policy=Policy(now_ms=now_ms, grace_ms=0, ttl_ms=0), delay_ms=1, orphans_ms=1
    )
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    if act == "look":
        usage = Usage()
        for verdict in worker.survey(rules):
            usage.add(verdict)
    else:
        report = worker.collect(rules)
        assert not report.failures
        assert report.moved or report.deleted
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    store.close()
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    print(json.dumps(act_on(sys.argv[1], Path(sys.argv[2]))))
