"""Savepoints on disk: whole or none, every damage is named, every step can be broken off and
repeated.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoints import paths, savepoints
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.savepoints import NoSavepoint, Savepoint, SavepointExists, Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.model.document import NewerDocument
from tidegate.model.records import CheckpointKind

STATES = {"Source[0]-FakeSource": {"offset": {"at": 7}}, "Sink[0]-LocalFile": {"state": None}}
JOB = 5


class BrokenOff(BaseException):
    pass


@pytest.fixture
def there(tmp_path: Path) -> Savepoints:
    return Savepoints(tmp_path / "storage")


def checkpoint(there: Savepoints, number: int, pipeline: int = 1) -> str:
    manifest = Manifest(
        job_id=JOB,
        pipeline=pipeline,
        checkpoint=number,
        lineage="5-a",
        generation=1,
        begun_ms=1,
        files={},
    )
    return there.storage.publish(manifest, STATES).path


def head(id: str = "100", lineage: str = "5-a") -> Savepoint:
    return Savepoint(
        id=id,
        path="",
        job_id=JOB,
        lineage=lineage,
        name="orders",
        made_ms=int(id),
        pipelines={},
        plan={"job_name": "orders"},
    )


def make(there: Savepoints, id: str = "100", number: int = 3, lineage: str = "5-a") -> Savepoint:
    points = {
        pipeline: there.copy(checkpoint(there, number, pipeline), JOB, id, pipeline)
        for pipeline in (1, 2)
    }
    return there.read(there.seal(replace(head(id, lineage), pipelines=points)))


def break_off(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def failpoint(name: str) -> None:
        if name == place:
            raise BrokenOff

    monkeypatch.setattr(savepoints, "failpoint", failpoint)


def test_what_was_saved_is_read_back_from_where_the_layout_says(
    there: Savepoints, tmp_path: Path
) -> None:
    made = make(there)
    assert made.path == "savepoint/5/100"
    assert {
        pipeline: (point.checkpoint, point.path) for pipeline, point in made.pipelines.items()
    } == {
        1: (3, "savepoint/5/100/1"),
        2: (3, "savepoint/5/100/2"),
    }
    whole = there.storage.read(made.pipelines[1].path)
    assert (whole.states, whole.manifest.kind) == (STATES, CheckpointKind.SAVEPOINT)
    written = (tmp_path / "storage/savepoint/5/100/1").rglob("*")
    assert made.pipelines[1].bytes == sum(f.stat().st_size for f in written if f.is_file())
    assert (there.list(), there.list(JOB), there.list(6)) == ((made,), (made,), ())


def test_a_copy_outlives_its_checkpoint(there: Savepoints) -> None:
    made = make(there)
    there.storage.delete_job(JOB, below=100)
    assert there.read(made.path) == made


def test_without_its_head_it_is_no_savepoint(there: Savepoints) -> None:
    there.copy(checkpoint(there, 3), JOB, "100", 1)
    assert (there.list(), there.damaged(), there.newest(JOB)) == ((), (), "100")
    with pytest.raises(NoSavepoint, match="there are: none"):
        there.find(JOB, "100")


@pytest.mark.parametrize("harm", ["truncate", "empty", "missing", "flip"])
@pytest.mark.parametrize("which", range(7))
def test_every_damage_to_every_file_is_detected_and_named(
    there: Savepoints, tmp_path: Path, harm: str, which: int
) -> None:
    made = make(there)
    victim = sorted(f for f in (tmp_path / "storage" / made.path).rglob("*") if f.is_file())[which]
    data = victim.read_bytes()
    if harm == "missing":
        victim.unlink()
    else:
        victim.write_bytes(
            {"truncate": data[:-3], "empty": b"", "flip": bytes([data[0] ^ 1]) + data[1:]}[harm]
        )
    with pytest.raises(Damaged, match=victim.name):
        there.read(made.path)


def test_a_part_that_was_exchanged_for_a_sound_one_is_found_out(
    there: Savepoints, tmp_path: Path
) -> None:
    made = make(there)
    other = there.copy(checkpoint(there, 4), JOB, "200", 1)
    for file in (tmp_path / "storage" / other.path).rglob("*"):
        if file.is_file():
            (
                tmp_path
                / "storage"
                / made.pipelines[1].path
                / file.relative_to(tmp_path / "storage" / other.path)
            ).write_bytes(file.read_bytes())
    with pytest.raises(Damaged, match="is not the one that"):
        there.read(made.path)


def test_a_head_of_a_newer_version_is_refused_by_name(there: Savepoints, tmp_path: Path) -> None:
    made = make(there)
    file = tmp_path / "storage" / made.path / paths.SAVEPOINT_HEAD
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
    with pytest.raises(NewerDocument, match="has format version 2; this Tidegate supports up to 1"):
        there.read(made.path)
    assert there.list() == ()
    assert [path for path, _ in there.damaged()] == [made.path]


def test_it_is_found_by_id_by_path_and_by_address_and_what_there_is_is_told(
    there: Savepoints, tmp_path: Path
) -> None:
    made = make(there)
    for word in (
        "100",
        "savepoint/5/100",
        "savepoint/5/100/",
        str(tmp_path / "storage/savepoint/5/100"),
        f"file://{tmp_path}/storage/savepoint/5/100",
    ):
        assert there.find(JOB, word) == made
    assert there.find(None, "savepoint/5/100") == made
    for word in ("101", "", "..", "5/1/3", "savepoint/5/../100", "/savepoint/9/1", "x"):
        with pytest.raises(NoSavepoint, match="there are: 100"):
            there.find(JOB, word)


@pytest.mark.parametrize(
    "place",
    [
        "savepoint.copy.before",
        "savepoint.copy.middle",
        "savepoint.copy.after",
        "savepoint.seal.before",
        "savepoint.seal.after",
    ],
)
def test_making_one_can_be_broken_off_anywhere_and_repeated(
    there: Savepoints, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with monkeypatch.context() as patch:
        break_off(patch, place)
        with pytest.raises(BrokenOff):
            make(there)
    assert all(there.read(found.path) == found for found in there.list())
    assert make(there).pipelines.keys() == {1, 2}


def test_a_part_of_another_checkpoint_takes_the_place_of_one_that_was_chosen_before(
    there: Savepoints,
) -> None:
    there.copy(checkpoint(there, 3), JOB, "100", 1)
    point = there.copy(checkpoint(there, 4), JOB, "100", 1)
    assert there.storage.read(point.path).manifest.checkpoint == 4


def test_deleting_one_can_be_broken_off_and_leaves_no_half_savepoint(
    there: Savepoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, place in enumerate(
        ("savepoint.delete.before", "savepoint.delete.middle", "savepoint.delete.after")
    ):
        made = make(there, str(100 + number))
        with monkeypatch.context() as patch:
            break_off(patch, place)
            with pytest.raises(BrokenOff):
                there.delete(made)
        assert (made in there.list()) is (place == "savepoint.delete.before")
        there.delete(made)
        assert not (tmp_path / "storage" / made.path).exists()
    assert not (tmp_path / "storage/savepoint/5").exists()


def take_there_and_back(there: Savepoints, tmp_path: Path) -> Savepoint:
    made = there.list()[0]
    there.export(made, tmp_path / "exported")
    return Savepoints(tmp_path / "other").import_from(tmp_path / "exported")


@pytest.mark.parametrize(
    "place",
    [
        "",
        "savepoint.export.before",
        "savepoint.export.after",
        "savepoint.import.before",
        "savepoint.import.after",
    ],
)
def test_one_that_was_exported_and_imported_is_the_same(
    there: Savepoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    made = make(there)
    with monkeypatch.context() as patch:
        break_off(patch, place)
        if place:
            with pytest.raises(BrokenOff):
                take_there_and_back(there, tmp_path)
    assert take_there_and_back(there, tmp_path) == made
    assert take_there_and_back(there, tmp_path) == made


def test_what_was_exported_and_damaged_is_not_imported(there: Savepoints, tmp_path: Path) -> None:
    there.export(make(there), tmp_path / "exported")
    (tmp_path / "exported/2/_manifest.json").unlink()
    other = Savepoints(tmp_path / "other")
    with pytest.raises(Damaged, match="is missing"):
        other.import_from(tmp_path / "exported")
    assert other.newest(JOB) == ""


def test_another_savepoint_of_the_same_id_is_not_overwritten(
    there: Savepoints, tmp_path: Path
) -> None:
    there.export(make(there), tmp_path / "exported")
    other = Savepoints(tmp_path / "other")
    make(other, number=9)
    with pytest.raises(SavepointExists, match="job 5 has another savepoint 100"):
        other.import_from(tmp_path / "exported")


def test_a_restore_marks_later_savepoints_as_superseded(
    there: Savepoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, foreign = (
        make(there, "100", 3),
        make(there, "200", 6),
        make(there, "300", 6, lineage="5-b"),
    )
    with monkeypatch.context() as patch:
        break_off(patch, "savepoint.overtake.before")
        with pytest.raises(BrokenOff):
            there.mark_superseded("5-a", {1: 4}, job_id=JOB, at_ms=9)
    assert [marked.id for marked in there.mark_superseded("5-a", {1: 4}, job_id=JOB, at_ms=9)] == [
        "200"
    ]
    assert there.mark_superseded("5-a", {1: 4}, job_id=JOB, at_ms=10) == ()
    mark = there.read(after.path).superseded
    assert mark is not None
    assert (mark.job_id, dict(mark.checkpoints), mark.at_ms) == (JOB, {"1": 4}, 9)
    assert (there.find(JOB, "100").superseded, there.find(JOB, "300").superseded) == (None, None)
    assert (before.superseded, foreign.superseded) == (None, None)


def test_ids_only_grow_whatever_the_clock_says() -> None:
    assert paths.savepoint_name(1_000) == "1000"
    assert paths.savepoint_name(1_000, "1000") == "1001"
    assert paths.savepoint_name(900, "1001") == "1002"
    assert [paths.is_savepoint_name(name) for name in ("1", "0" * 20, "..", "a", "", "1/2")] == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]


def test_a_savepoint_needs_a_sound_checkpoint(there: Savepoints, tmp_path: Path) -> None:
    path = checkpoint(there, 3)
    (tmp_path / "storage" / path / "_manifest.json").unlink()
    with pytest.raises(Damaged):
        there.copy(path, JOB, "100", 1)
    assert CheckpointStorage(tmp_path / "storage").jobs() == [JOB]
