"""Paths below the root of the checkpoint storage; no other module builds them. Pure."""

import re
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

MANIFEST = "_manifest.json"
STATE = "state-data"
SAVEPOINTS = "savepoint"
SAVEPOINT_HEAD = "_savepoint.json"
SUPERSEDED = "_overtaken.json"


def job_directory(job_id: int) -> PurePosixPath:
    return PurePosixPath(str(job_id))


def pipeline_directory(job_id: int, pipeline: int) -> PurePosixPath:
    return job_directory(job_id) / str(pipeline)


def checkpoint_directory(job_id: int, pipeline: int, checkpoint: int) -> PurePosixPath:
    return pipeline_directory(job_id, pipeline) / str(checkpoint)


def savepoints_directory(job_id: int) -> PurePosixPath:
    return PurePosixPath(SAVEPOINTS) / str(job_id)


def savepoint_directory(job_id: int, savepoint: str) -> PurePosixPath:
    return savepoints_directory(job_id) / savepoint


def saved_directory(job_id: int, savepoint: str, pipeline: int) -> PurePosixPath:
    """Return the directory of one pipeline in a savepoint."""
    return savepoint_directory(job_id, savepoint) / str(pipeline)


def savepoint_name(now_ms: int, newest: str = "") -> str:
    """Return the id of a new savepoint: the time of the request, but above the newest id.

    So ids ascend even if clocks do not.
    """
    return str(max(now_ms, int(newest) + 1 if is_savepoint_name(newest) else 0))


def is_savepoint_name(name: str) -> bool:
    """Whether this is a valid savepoint id, so that no id can lead out of its directory."""
    return re.fullmatch(r"\d{1,19}", name) is not None


def draft_name(checkpoint: int, generation: int, token: str) -> str:
    """Return the hidden name of a checkpoint directory until it is complete."""
    return f".{checkpoint}-g{generation}-{token}"


def draft_generation(name: str) -> int | None:
    """Return the generation that wrote a draft; None if the name is not a draft."""
    found = re.fullmatch(r"\.\d+-g(\d+)-\w+", name)
    return int(found[1]) if found else None


def checkpoint_of(name: str) -> int | None:
    """Return the checkpoint id of a directory or draft; None if the name is neither."""
    found = re.fullmatch(r"(\d+)|\.(\d+)-g\d+-\w+", name)
    return int(found[1] or found[2]) if found else None


def operator_directory(operator: str) -> str:
    """Encode an operator id as one path segment that cannot leave its directory."""
    return quote(operator, safe="[]-_ ").replace(".", "%2E")


def operator_of(segment: str) -> str:
    """Decode the operator id of a path segment."""
    return unquote(segment)
