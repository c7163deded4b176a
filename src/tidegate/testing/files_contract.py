"""The contract of the files that checkpoints are written with, as a suite: every kind of them
passes all of it.

A test module derives a class from `FilesContract` and gives it the fixture `files`: an empty root.
`FencedFilesContract` is for files on which two simultaneous writers are distinguished, and for the
checkpoints on top of them.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.model.errors import Fenced

STATES = {"Source[0]-FakeSource": {"offset": {"at": 7}}, "my sink/../x": {"state": None}}
RIVALS = 8


def manifest(checkpoint: int = 1, generation: int = 1) -> Manifest:
    """A checkpoint of job 5."""
    return Manifest(
        job_id=5,
        pipeline=1,
        checkpoint=checkpoint,
        lineage="5-a",
        generation=generation,
        begun_ms=1,
        files={},
    )


class FilesContract:
    def test_a_file_that_is_written_is_read_and_replaced(self, files: Files) -> None:
        files.write("a/b/c", b"one")
        files.write("a/b/c", b"")
        assert files.read("a/b/c") == b""
        assert [path for path, _ in files.walk("")] == ["a/b/c"]

    @pytest.mark.parametrize("path", ["no", "a/no", "a/b/c/no", "a/b"])
    def test_what_is_not_there_is_said_to_be_missing(self, files: Files, path: str) -> None:
        files.write("a/b/c", b"one")
        with pytest.raises(FileNotFoundError):
            files.read(path)
        assert files.read_versioned(path) is None

    def test_no_path_leads_out_of_the_root(self, files: Files) -> None:
        for path in ("../a", "a/../../b", "/etc/passwd"):
            with pytest.raises(ValueError, match="below the root"):
                files.read(path)

    def test_only_the_first_creates(self, files: Files) -> None:
        assert files.create("a/b", b"one")
        assert not files.create("a/b", b"two")
        assert files.read("a/b") == b"one"

    def test_only_what_was_seen_is_swapped(self, files: Files) -> None:
        assert files.replace_if("a/b", b"one", None)
        seen = files.read_versioned("a/b")
        assert seen is not None
        assert seen.data == b"one"
        assert files.replace_if("a/b", b"two", seen)
        assert not files.replace_if("a/b", b"three", seen)
        assert not files.replace_if("a/b", b"three", None)
        assert not files.replace_if("a/c", b"three", seen)
        assert not files.replace_if("x/y/z", b"three", seen)
        assert [(path, files.read(path)) for path, _ in files.walk("")] == [("a/b", b"two")]

    def test_directories_are_listed_by_name_with_sizes(self, files: Files) -> None:
        files.write_tree("top", {"b": b"12345", "a/x": b"", "a/y/z": b"1", ".hidden": b"1"})
        assert [(e.name, e.directory, e.bytes) for e in files.entries("top")] == [
            (".hidden", False, 1),
            ("a", True, 0),
            ("b", False, 5),
        ]
        assert all(e.modified_ms > 0 for e in files.entries("top") if not e.directory)
        assert [e.name for e in files.entries("")] == ["top"]
        assert files.entries("to") == files.entries("nowhere") == files.entries("top/b") == []
        assert sorted((path, e.name, e.bytes) for path, e in files.walk("top/a")) == [
            ("top/a/x", "x", 0),
            ("top/a/y/z", "z", 1),
        ]

    def test_what_is_removed_is_gone_and_its_neighbours_stay(self, files: Files) -> None:
        for path in ("a/1/x", "a/1/y/z", "a/10/x", "a/2"):
            files.write(path, b"1")
        files.remove("a/2")
        files.remove("a/2")
        files.remove("nowhere/2")
        files.remove_tree("a/1")
        files.remove_tree("a/1")
        files.remove_tree("nowhere")
        assert [path for path, _ in files.walk("")] == ["a/10/x"]
        assert (
            files.exists("a/1"),
            files.exists("a/10"),
            files.exists("a/10/x"),
            files.exists("a/2"),
        ) == (False, True, True, False)

    def test_an_empty_directory_can_be_pruned_and_a_full_one_stays(self, files: Files) -> None:
        files.write("a/b/c", b"1")
        files.prune("a/b")
        files.prune("nowhere")
        assert files.read("a/b/c") == b"1"
        files.remove("a/b/c")
        files.prune("a/b")
        assert not files.exists("a/b")

    def test_a_tree_is_copied_and_moved_and_both_can_be_repeated(self, files: Files) -> None:
        files.write_tree("from/1", {"_manifest.json": b"m", "a/b": b"1", "z": b"2"})
        for _ in range(2):
            files.copy_tree("from/1", "savepoint/x/1")
        assert {path: files.read(path) for path, _ in files.walk("savepoint")} == {
            "savepoint/x/1/_manifest.json": b"m",
            "savepoint/x/1/a/b": b"1",
            "savepoint/x/1/z": b"2",
        }
        for _ in range(2):
            files.move_tree("from/1", "gone/1")
        assert sorted(path for path, _ in files.walk("gone")) == [
            "gone/1/_manifest.json",
            "gone/1/a/b",
            "gone/1/z",
        ]
        assert not files.exists("from/1")

    def test_places_are_for_people(self, files: Files) -> None:
        assert files.describe("a/b") == f"{files.describe()}/a/b"

    def test_a_checkpoint_is_published_read_listed_and_deleted(self, files: Files) -> None:
        storage = CheckpointStorage(files)
        paths = [storage.publish(manifest(n), STATES).path for n in (1, 2, 10)]
        assert all(storage.read(path).states == STATES for path in paths)
        assert storage.operators(paths[0]) == set(STATES)
        assert (storage.jobs(), storage.pipelines(5), storage.checkpoints(5, 1)) == (
            [5],
            [1],
            [(1, "5/1/1"), (2, "5/1/2"), (10, "5/1/10")],
        )
        assert (storage.highest_ids(5).checkpoint, storage.highest_ids(5).generation) == (10, 1)
        storage.delete(paths[0], 1)
        assert paths[1] in storage.sweep(5, 1, {paths[2]}, 1)
        assert [storage.damage(path) == "" for path in paths] == [False, False, True]
        storage.delete_job(5, below=11)
        assert [*files.walk("")] == []  # some servers list the empty directories for a while

    def test_what_an_older_generation_left_is_replaced_and_what_a_newer_one_made_stays(
        self, files: Files
    ) -> None:
        storage = CheckpointStorage(files)
        path = storage.publish(manifest(generation=1), {"a": {"offset": 1}}).path
        storage.publish(manifest(generation=2), STATES)
        storage.publish(manifest(generation=2), STATES)
        assert (storage.read(path).states, storage.damage(path)) == (STATES, "")
        with pytest.raises(Fenced):
            storage.publish(manifest(generation=1), {"a": {"offset": 1}})
        storage.delete(path, 1)
        assert (storage.read(path).states, storage.read(path).manifest.generation) == (STATES, 2)

    def test_a_checkpoint_of_another_job_is_adopted_under_its_own_id(self, files: Files) -> None:
        storage = CheckpointStorage(files)
        source = storage.publish(manifest(7), STATES).path
        files.copy_tree(source, "savepoint/5/20261116/1")
        for _ in range(2):
            ref = storage.adopt("savepoint/5/20261116/1", 6, 2, 4, lineage="6-b")
            assert (ref.checkpoint, ref.path, ref.generation) == (7, "6/2/7", 4)
        adopted = storage.read("6/2/7")
        assert (
            adopted.states,
            adopted.manifest.lineage,
            adopted.manifest.job_id,
            adopted.manifest.pipeline,
        ) == (STATES, "6-b", 6, 2)
        again = storage.adopt("6/2/7", 6, 2, 5)
        assert (
            again.path,
            storage.read("6/2/7").manifest.generation,
            storage.read("6/2/7").manifest.lineage,
        ) == ("6/2/7", 5, "6-b")
        assert storage.read(source).manifest == replace(
            storage.read(source).manifest, job_id=5, lineage="5-a", generation=1
        )


class FencedFilesContract(FilesContract):
    """What holds where an exclusive write is exclusive."""

    def test_of_many_at_the_same_moment_one_creates(self, files: Files) -> None:
        won = _at_once([partial(files.create, "a/b", b"%d" % n) for n in range(RIVALS)])
        assert sorted(won) == [False] * (RIVALS - 1) + [True]
        assert files.read("a/b") == b"%d" % won.index(True)

    def test_of_many_at_the_same_moment_one_swaps(self, files: Files) -> None:
        files.write("a/b", b"before")
        seen = files.read_versioned("a/b")
        won = _at_once([partial(files.replace_if, "a/b", b"%d" % n, seen) for n in range(RIVALS)])
        assert sorted(won) == [False] * (RIVALS - 1) + [True]
        assert files.read("a/b") == b"%d" % won.index(True)

    def test_of_many_generations_at_the_same_moment_the_newest_stays(self, files: Files) -> None:
        storage = CheckpointStorage(files)

        def publish(generation: int) -> bool:
            try:
                storage.publish(manifest(generation=generation), {"a": {"offset": generation}})
            except Fenced:
                return False
            return True

        won = _at_once([partial(publish, n) for n in range(1, RIVALS + 1)])
        assert won[-1]
        assert storage.read("5/1/1").states == {"a": {"offset": RIVALS}}


def _at_once(acts: list[Callable[[], bool]]) -> list[bool]:
    """The results of acts that begin together."""
    gate = threading.Barrier(len(acts))
    results: list[bool | BaseException] = [False] * len(acts)

    def one(index: int) -> None:
        gate.wait()
        try:
            results[index] = acts[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [result for result in results if isinstance(result, BaseException)]
    if failed:
        raise failed[0]
    return [result for result in results if isinstance(result, bool)]
