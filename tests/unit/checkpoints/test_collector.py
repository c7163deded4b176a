"""The collector on a namespace where everything is mixed: what it takes, what it never takes, what
it leaves when it is killed at any step.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoints.files.base import FileEntry
from tidegate.checkpoints.files.fsspec import FsspecFiles
from tidegate.checkpoints.files.local import TEMPORARY, LocalFiles
from tidegate.checkpoints.gc import collector as collector_module
from tidegate.checkpoints.gc import quarantine as quarantine_module
from tidegate.checkpoints.gc.classify import QUARANTINE, Facts, JobFacts, Policy, UnitKind, unit_of
from tidegate.checkpoints.gc.collector import Collector, CollectorSettings, Report
from tidegate.checkpoints.gc.quarantine import NoQuarantine, QuarantinePhase, Quarantines
from tidegate.checkpoints.gc.usage import Quota, Usage, quota_age_ms

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STEPS = re.findall(
    r'failpoint\("(collector\.\w+\.\w+)"\)', Path(quarantine_module.__file__).read_text()
)


class Store:
    """What the store would say; tests change it in between."""

    def __init__(self) -> None:
        self.facts = Facts(
            jobs={
                1: JobFacts(running=True, named=frozenset({"1/1/5"})),
                2: JobFacts(running=False, named=frozenset({"2/1/7"})),
            },
            claimed=frozenset({"4/1/3"}),
        )
        self.asked: Callable[[int | None], None] = lambda _job: None

    def everything(self) -> Facts:
        return self.facts

    def of_job(self, job_id: int | None) -> Facts:
        self.asked(job_id)
        return self.facts


def put(root: Path, path: str, age_ms: int = 30 * DAY_MS, size: int = 100) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    os.utime(file, ns=(0, (NOW_MS - age_ms) * 1_000_000))


def checkpoint(root: Path, path: str, age_ms: int = 30 * DAY_MS, *, whole: bool = True) -> None:
    put(root, f"{path}/Source[0]/state-data", age_ms)
    if whole:
        put(root, f"{path}/_manifest.json", age_ms)


KEPT = {
    "1/1/5": UnitKind.LIVE,
    "1/1/4": UnitKind.LIVE,  # pending deletion by its driver
    "1/1/.6-g2-abcdef01": UnitKind.LIVE,
    "2/1/7": UnitKind.RETAINED,
    "4/1/3": UnitKind.CLAIMED,
    "savepoint/1/1700000000000": UnitKind.SAVEPOINT,
    "savepoint/9/1700000000000": UnitKind.SAVEPOINT,
    "savepoint/1/1700000000009": UnitKind.LIVE,  # being made
    "5/1/8": UnitKind.ORPHAN,  # young
    "notes": UnitKind.UNKNOWN,
    "3/readme.txt": UnitKind.UNKNOWN,
    "3/1/backup": UnitKind.UNKNOWN,
    "_installation.json": UnitKind.RECORD,
}
TAKEN = [
    "2/1/6",
    "3/1/1",
    "3/1/2",
    "3/2/.9-g4-abcdef01",
    "6/1/1",
    "savepoint/9/1700000000005",
    "._installation.json.abcdef01.tmp",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Live jobs, retained ones, jobs whose history has expired, savepoints, half-written
    directories, foreign files.
    """
    root = tmp_path / "namespace"
    for path in ("1/1/5", "1/1/4", "2/1/7", "2/1/6", "3/1/1", "3/1/2", "4/1/3"):
        checkpoint(root, path)
    for path in ("1/1/.6-g2-abcdef01", "3/2/.9-g4-abcdef01", "6/1/1"):
        checkpoint(root, path, whole=False)
    checkpoint(root, "5/1/8", age_ms=HOUR_MS * 2)
    for path in ("savepoint/1/1700000000000", "savepoint/9/1700000000000"):
        checkpoint(root, f"{path}/1")
        put(root, f"{path}/_savepoint.json")
    checkpoint(root, "savepoint/1/1700000000009/1")
    checkpoint(root, "savepoint/9/1700000000005/1")
    for path in (
        "notes/todo.txt",
        "3/readme.txt",
        "3/1/backup/a/b",
        "_installation.json",
        "._installation.json.abcdef01.tmp",
    ):
        put(root, path)
    return root


def rules(
    now_ms: int = NOW_MS, ttl_ms: int | None = 7 * DAY_MS, quota: Quota | None = None
) -> CollectorSettings:
    return CollectorSettings(
        policy=Policy(now_ms=now_ms, grace_ms=HOUR_MS, ttl_ms=ttl_ms),
        delay_ms=DAY_MS,
        orphans_ms=7 * DAY_MS,
        quota=quota or Quota(),
    )


def there(root: Path) -> set[str]:
    return {
        unit_of(p.relative_to(root).as_posix()).path for p in root.rglob("*") if p.is_file()
    } - {QUARANTINE}


def outside(root: Path) -> set[str]:
    return {path for path in there(root) if not path.startswith(QUARANTINE)}


def inside(root: Path) -> set[str]:
    held = Quarantines(LocalFiles(root))
    return {each.origin for quarantine in held.all() for each in held.contents(quarantine)}


def bytes_of(root: Path, paths: dict[str, UnitKind]) -> dict[str, bytes]:
    files = [
        p
        for path in paths
        for p in ([root / path] if (root / path).is_file() else (root / path).rglob("*"))
        if p.is_file()
    ]
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in files}


def collect(root: Path, store: Store | None = None, now_ms: int = NOW_MS) -> Report:
    return Collector(LocalFiles(root), store or Store()).collect(rules(now_ms))


class Crash(BaseException):
    pass


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`crash_at(step)`: the next passage of this failpoint is the last thing that the process does."""
    armed: list[str] = []

    def passed(name: str) -> None:
        if name in armed:
            armed.remove(name)
            raise Crash

    monkeypatch.setattr(quarantine_module, "failpoint", passed)
    return armed.append


def test_everything_is_classified_and_only_old_orphans_are_due(root: Path) -> None:
    seen = {
        verdict.unit.path: verdict
        for verdict in Collector(LocalFiles(root), Store()).survey(rules())
    }
    assert {path: seen[path].kind for path in KEPT} == KEPT
    assert {path for path, verdict in seen.items() if verdict.due} == set(TAKEN)
    assert {seen[path].kind for path in TAKEN} == {UnitKind.ORPHAN}
    assert set(seen) == {*KEPT, *TAKEN}


def test_a_survey_changes_nothing(root: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    list(Collector(LocalFiles(root), Store()).survey(rules()))
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before


def test_orphans_go_into_quarantine_and_are_deleted_after_the_delay(root: Path) -> None:
    kept = bytes_of(root, KEPT)
    report = collect(root)
    assert (report.moved, report.failures, report.whole) == (len(TAKEN), 0, True)
    assert outside(root) == set(KEPT)
    assert inside(root) == set(TAKEN)
    assert collect(root, now_ms=NOW_MS + DAY_MS - 1).deleted == 0
    last = collect(root, now_ms=NOW_MS + DAY_MS)
    assert last.deleted == len(TAKEN)
    assert not (root / QUARANTINE).exists()
    assert bytes_of(root, KEPT) == kept
    assert not (root / "6").exists(), "directories that became empty go too"


def test_without_a_time_to_live_nothing_is_moved(root: Path) -> None:
    assert Collector(LocalFiles(root), Store()).collect(rules(ttl_ms=None)).moved == 0
    assert not (root / QUARANTINE).exists()


def test_the_time_of_an_idle_job_begins_when_the_store_forgets_it(root: Path) -> None:
    store = Store()
    store.facts = replace(store.facts, expired={3: NOW_MS - DAY_MS})
    collect(root, store)
    assert {"3/1/1", "3/1/2"} <= outside(root)


def test_collected_state_can_be_restored_and_is_then_kept(root: Path) -> None:
    before = bytes_of(root, dict.fromkeys(TAKEN, UnitKind.ORPHAN))
    collect(root)
    held = Quarantines(LocalFiles(root))
    assert held.restore(held.find("latest"), NOW_MS + 1) == (len(TAKEN), [])
    assert bytes_of(root, dict.fromkeys(TAKEN, UnitKind.ORPHAN)) == before
    assert collect(root, now_ms=NOW_MS + DAY_MS).moved <= 1, (
        "only the file without a name, which belongs to no job"
    )
    assert {"3/1/1", "2/1/6"} <= outside(root)
    assert collect(root, now_ms=NOW_MS + 8 * DAY_MS).moved > 0, "its time has come again"


def test_a_unit_whose_place_was_taken_meanwhile_stays_in_quarantine(root: Path) -> None:
    collect(root)
    checkpoint(root, "3/1/1", age_ms=0)
    held = Quarantines(LocalFiles(root))
    moved, failed = held.restore(held.find("latest"), NOW_MS)
    assert (moved, len(failed)) == (len(TAKEN) - 1, 1)
    assert "another unit has this path now" in failed[0]
    assert inside(root) == {"3/1/1"}


def test_a_quarantine_that_is_not_there_is_named_with_those_that_are(root: Path) -> None:
    collect(root)
    held = Quarantines(LocalFiles(root))
    with pytest.raises(NoQuarantine, match=rf"no quarantine 'x'; there are: {held.all()[0].id}"):
        held.find("x")


@pytest.mark.parametrize(
    "step", [step for step in STEPS if not step.startswith(("collector.undo", "collector.return"))]
)
def test_a_pass_that_is_killed_at_any_step_is_ended_by_the_next(
    root: Path, step: str, crash_at: Callable[[str], None]
) -> None:
    kept = bytes_of(root, KEPT)
    crash_at(step)
    crashes, now_ms = 0, NOW_MS
    for _ in range(6):
        try:
            collect(root, now_ms=now_ms)
        except Crash:
            crashes += 1
        assert bytes_of(root, KEPT) == kept
        now_ms += DAY_MS // 2
    assert crashes == 1
    assert (outside(root), inside(root)) == (set(KEPT), set())
    assert not (root / QUARANTINE).exists()


@pytest.mark.parametrize(
    "step", [step for step in STEPS if step.startswith(("collector.undo", "collector.return"))]
)
def test_taking_back_that_is_killed_at_any_step_is_ended_by_the_next(
    root: Path, step: str, crash_at: Callable[[str], None]
) -> None:
    before = bytes_of(root, dict.fromkeys(TAKEN, UnitKind.ORPHAN))
    collect(root)
    held = Quarantines(LocalFiles(root))
    crash_at(step)
    with pytest.raises(Crash):
        held.restore(held.find("latest"), NOW_MS)
    if step != "collector.undo.before":
        assert collect(root, now_ms=NOW_MS + 2 * DAY_MS).deleted == 0, (
            "what is being taken back is not deleted"
        )
    held.restore(held.find("latest"), NOW_MS)
    assert bytes_of(root, dict.fromkeys(TAKEN, UnitKind.ORPHAN)) == before


def test_one_thing_that_cannot_be_moved_is_reported_and_does_not_keep_the_rest(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = LocalFiles.move_tree

    def refuse(self: LocalFiles, source: str, target: str) -> None:
        if source == "3/1/1":
            raise PermissionError(1, "Operation not permitted", source)
        move(self, source, target)

    monkeypatch.setattr(LocalFiles, "move_tree", refuse)
    report = collect(root)
    assert (report.moved, report.failures, report.whole) == (len(TAKEN) - 1, 1, True)
    assert "3/1/1" in report.failed[0]
    assert "3/1/1" in outside(root)


def test_one_thing_that_cannot_be_deleted_is_reported_and_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(root)
    remove = LocalFiles.remove_tree
    bad = ["3/1/1"]

    def refuse(self: LocalFiles, path: str) -> None:
        if bad and path.endswith(bad[0]):
            raise PermissionError(1, "Operation not permitted", path)
        remove(self, path)

    monkeypatch.setattr(LocalFiles, "remove_tree", refuse)
    report = collect(root, now_ms=NOW_MS + DAY_MS)
    assert (report.deleted, report.failures) == (len(TAKEN) - 1, 1)
    assert inside(root) == {"3/1/1"}
    bad.clear()
    collect(root, now_ms=NOW_MS + DAY_MS)
    assert inside(root) == set()


def test_a_job_that_comes_back_between_the_listing_and_the_move_keeps_its_state(root: Path) -> None:
    store = Store()

    def submitted(job_id: int | None) -> None:
        if job_id == 3:
            store.facts = replace(store.facts, jobs={**store.facts.jobs, 3: JobFacts(running=True)})

    store.asked = submitted
    collect(root, store)
    assert {"3/1/1", "3/1/2"} <= outside(root)


def test_a_restore_that_begins_in_the_moment_of_the_move_gets_its_state_back(root: Path) -> None:
    store = Store()
    asked: list[int | None] = []

    def claim_after_the_first_look(job_id: int | None) -> None:
        asked.append(job_id)
        if asked.count(3) == 2:
            store.facts = replace(store.facts, claimed=frozenset({"3/1/1", "4/1/3"}))

    store.asked = claim_after_the_first_look
    report = collect(root, store)
    assert report.put_back == 1
    assert "3/1/1" in outside(root)


def test_a_crash_between_a_move_and_its_second_look_is_made_good(
    root: Path, crash_at: Callable[[str], None]
) -> None:
    store = Store()
    crash_at("collector.move.after")
    with pytest.raises(Crash):
        collect(root, store)
    moved = inside(root)
    assert len(moved) == 1
    store.facts = replace(store.facts, claimed=frozenset({*moved, "4/1/3"}))
    assert collect(root, store).put_back == 1
    assert moved <= outside(root)


def test_what_is_written_to_after_the_listing_is_left_alone(root: Path) -> None:
    store = Store()

    def touched(job_id: int | None) -> None:
        if job_id == 3:  # asked about 3/1/1, when the files of 3/1/2 have been listed already
            put(root, "3/1/2/Source[0]/state-data", age_ms=0)

    store.asked = touched
    collect(root, store)
    assert "3/1/1" not in outside(root)
    assert "3/1/2" in outside(root)


def test_a_leader_without_lease_stops_and_the_next_one_continues(root: Path) -> None:
    turns = iter([True] * 12)
    report = Collector(LocalFiles(root), Store(), lambda: next(turns, False)).collect(rules())
    assert not report.whole
    assert 0 < report.moved < len(TAKEN)
    assert [each.phase for each in Quarantines(LocalFiles(root)).all()] == [QuarantinePhase.OPEN]
    assert collect(root).moved == len(TAKEN) - report.moved
    assert [each.phase for each in Quarantines(LocalFiles(root)).all()] == [QuarantinePhase.CLOSED]


class Copied(FsspecFiles):
    """A file system without a rename.

    `dying`: the process ends between the copy and the deletion, when some files are deleted.
    """

    dying = False

    def remove_tree(self, path: str) -> None:
        if self.dying:
            self.dying = False
            self.remove(f"{path}/Source[0]/state-data")
            raise Crash
        super().remove_tree(path)


def test_moves_that_are_copies_and_are_broken_off_are_ended_too() -> None:
    files = Copied("memory://collector", {})
    try:
        for name in ("Source[0]/state-data", "Sink[0]/state-data", "_manifest.json"):
            files.write(f"3/1/1/{name}", name.encode())
        whole = {path: files.read(path) for path, _ in files.walk("")}
        later_ms = 4_000_000_000_000
        collector, held = Collector(files, Store()), Quarantines(files)
        files.dying = True
        with pytest.raises(Crash):
            collector.collect(rules(later_ms))
        assert collector.collect(rules(later_ms)).moved == 1
        assert not files.exists("3/1/1")
        files.dying = True
        with pytest.raises(Crash):
            held.restore(held.find("latest"), later_ms)
        assert held.restore(held.find("latest"), later_ms) == (1, [])
        assert {path: files.read(path) for path, _ in files.walk("3")} == whole
    finally:
        files.dying = False
        files.remove_tree("")


def test_over_the_quota_the_oldest_orphans_go_before_their_time(tmp_path: Path) -> None:
    for number, days in enumerate((3, 2, 1), 1):
        checkpoint(tmp_path, f"{number}/1/1", age_ms=days * DAY_MS)  # 200 bytes each
    collector = Collector(LocalFiles(tmp_path), Store())
    assert collector.collect(rules(quota=Quota(bytes=600))).moved == 0
    store = Store()
    store.facts = Facts()
    report = Collector(LocalFiles(tmp_path), store).collect(
        rules(quota=Quota(bytes=590, warning_percent=60))
    )
    assert report.moved == 2
    assert outside(tmp_path) == {"3/1/1"}


def test_the_quota_warns_before_it_is_reached() -> None:
    quota = Quota(bytes=1000, warning_percent=80)
    assert quota.warning(799) == ""
    assert quota.warning(800) == "the namespace is near its quota: 800 of 1,000 bytes (80 %)"
    assert quota.warning(1200).startswith("the namespace is over its quota: 1,200")
    assert Quota().warning(10**12) == ""
    assert quota_age_ms(Usage(), quota) is None


def test_the_hidden_name_of_an_unfinished_file_is_known_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", lambda *_: None)
    LocalFiles(tmp_path).write("_installation.json", b"x")
    (left,) = [p.name for p in tmp_path.iterdir()]
    assert left.endswith(TEMPORARY)
    assert unit_of(left).shape.value == "leftover"


def test_a_survey_of_many_objects_keeps_none_of_them() -> None:
    class Endless(LocalFiles):
        def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:  # noqa: ARG002  # a listing of its own
            for number in range(30_000):
                yield (
                    f"{number // 30}/1/{number % 30}/_manifest.json",
                    FileEntry(name="_manifest.json", bytes=1, modified_ms=1),
                )

        def entries(self, path: str) -> list[FileEntry]:  # noqa: ARG002  # no quarantine
            return []

    usage = Usage()
    count = 0
    for verdict in Collector(Endless(Path("/nowhere")), Store()).survey(rules()):
        usage.add(verdict)
        count += 1
    assert (count, len(usage.by_job)) == (30_000, 1000)


def test_every_step_of_the_quarantine_is_in_a_test() -> None:
    assert len(STEPS) == len(set(STEPS)) > 10
    assert "failpoint" not in Path(collector_module.__file__).read_text()
