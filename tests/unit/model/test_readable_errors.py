"""Errors about documents, disks and homes are sentences without Python's own wording."""

import errno
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tidegate.home import Home
from tidegate.logs import BoundedFile
from tidegate.model.document import NewerDocument, UnreadableDocument, from_document
from tidegate.model.errors import describe_os_error
from tidegate.model.records import CheckpointRef, JobState, PipelineState
from tidegate.pipeline.attempts import failure_of

SOUND = {"version": 1, "job_id": 7, "pipeline": 1, "lineage": "7-1", "generation": 1}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "it has no format version"),
        ({"version": "x"}, "it has no format version"),
        ({"version": 1}, "it has no job_id, pipeline, lineage"),
        ({**SOUND, "retained": [{"checkpoint": 3}]}, "it has no path"),
        ({**SOUND, "retained": [7]}, "a number instead of CheckpointRef"),
        ({**SOUND, "retained": 7}, "value of the wrong type"),
        ({**SOUND, "status": "HAPPY"}, "'HAPPY' is not a PipelineStatus"),
        ({**SOUND, "volumes": []}, "value of the wrong type"),
        ([], "it is a list and not an object"),
        ("text", "it is a string and not an object"),
    ],
)
def test_malformed_document_is_named_in_a_sentence(document: object, expected: str) -> None:
    with pytest.raises(UnreadableDocument, match=expected) as error:
        from_document(PipelineState, cast(Any, document), "pipeline 7/1")
    assert str(error.value).startswith("pipeline 7/1 cannot be read: ")
    assert "__init__" not in str(error.value)


def test_newer_document_is_not_reported_as_damaged() -> None:
    with pytest.raises(NewerDocument):
        from_document(JobState, {"version": 99}, "state of job 7")


def test_valid_reference_is_decoded() -> None:
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
def test_operating_system_error_is_a_sentence(error: OSError, text: str) -> None:
    assert describe_os_error(error) == text
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


def test_log_line_is_dropped_when_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = BoundedFile(tmp_path / "a.log", maxBytes=100, backupCount=1)
    stream, handler.stream = handler.stream, Full()  # type: ignore[assignment]  # replaces a file
    handler.emit(logging.makeLogRecord({"msg": "lost"}))
    handler.stream = stream
    handler.emit(logging.makeLogRecord({"msg": "written"}))
    handler.close()
    assert (tmp_path / "a.log").read_text() == "written\n"
    assert capsys.readouterr().err == ""


def test_home_with_jobs_but_no_store_produces_a_warning(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.lost_store_warning(home.store_url) == ""
    home.create()
    assert home.lost_store_warning(home.store_url) == ""
    (home.checkpoints / "7").mkdir()
    home.logs(8).mkdir()
    assert "there is no store" in (warning := home.lost_store_warning(home.store_url))
    assert "(7, 8)" in warning
    assert home.lost_store_warning("postgresql://elsewhere/db") == ""
    (home.root / "store" / "tidegate.db").touch()
    assert home.lost_store_warning(home.store_url) == ""
