"""What is wrong with a document, a disk or a home is a sentence, without the words of Python."""

import errno
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.home import Home
from tidegate.logs import BoundedFile
from tidegate.model.document import NewerDocument, UnreadableDocument, from_document
from tidegate.model.errors import system_sentence
from tidegate.model.records import CheckpointRef, JobState, PipelineState
from tidegate.pipeline.attempts import failure_of

SOUND = {"version": 1, "job_id": 7, "pipeline": 1, "lineage": "7-1", "generation": 1}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "it has no format version"),
        ({"version": "x"}, "it has no format version"),
        ({"version": 1}, "it has no job_id, pipeline, lineage"),
        ({**SOUND, "retained": [{"checkpoint": 3}]}, "it has no path"),
        ({**SOUND, "retained": [7]}, "a number in the place of CheckpointRef"),
        ({**SOUND, "retained": 7}, "holds what it cannot"),
        ({**SOUND, "status": "HAPPY"}, "'HAPPY' is no PipelineStatus"),
        ({**SOUND, "volumes": []}, "holds what it cannot"),
        ([], "it is a list and not an object"),
        ("text", "it is a text and not an object"),
    ],
)
def test_a_document_of_another_shape_is_named_in_words(document: object, words: str) -> None:
    with pytest.raises(UnreadableDocument, match=words) as error:
        from_document(PipelineState, document, "pipeline 7/1")  # type: ignore[arg-type]  # that is the point
    assert str(error.value).startswith("pipeline 7/1 cannot be read: ")
    assert "__init__" not in str(error.value)


def test_a_newer_document_is_no_damage() -> None:
    with pytest.raises(NewerDocument):
        from_document(JobState, {"version": 99}, "state of job 7")


def test_a_sound_reference_is_read() -> None:
    ref = {"checkpoint": 3, "path": "7/1/3", "generation": 1, "begun_ms": 1, "completed_ms": 2}
    assert from_document(PipelineState, {**SOUND, "retained": [ref]}).retained == (
        from_document(CheckpointRef, ref),
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device (the disk is full: make room)",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/a", None, "/b"),
            (
                "/a and /b: Read-only file system (the disk is mounted read-only: mount it for"
                " writing)"
            ),
        ),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (OSError("no number"), "no number"),
    ],
)
def test_an_error_of_the_system_is_a_sentence(error: OSError, text: str) -> None:
    assert system_sentence(error) == text
    failure = failure_of(error, 1, 1)
    assert (failure.message, failure.domain) == (text, "external")


@dataclass
class Full:
    """A stream on a full disk."""

    lines: list[str] = field(default_factory=list)

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def tell(self) -> int:
        return 0

    def close(self) -> None:
        pass


def test_a_line_that_the_disk_does_not_take_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = BoundedFile(tmp_path / "a.log", maxBytes=100, backupCount=1)
    stream, handler.stream = handler.stream, Full()  # type: ignore[assignment]  # stands in for a file
    handler.emit(logging.makeLogRecord({"msg": "lost"}))
    handler.stream = stream
    handler.emit(logging.makeLogRecord({"msg": "written"}))
    handler.close()
    assert (tmp_path / "a.log").read_text() == "written\n"
    assert capsys.readouterr().err == ""


def test_a_home_with_jobs_and_without_a_store_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.lost_store_warning(home.store_url) == ""
    home.create()
    assert home.lost_store_warning(home.store_url) == ""
    (home.checkpoints / "7").mkdir()
    home.logs(8).mkdir()
    assert "there is no store" in (said := home.lost_store_warning(home.store_url))
    assert "(7, 8)" in said
    assert home.lost_store_warning("postgresql://elsewhere/db") == ""
    (home.root / "store" / "tidegate.db").touch()
    assert home.lost_store_warning(home.store_url) == ""
