"""The only author of checkpoint paths. Pure."""

import re
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

MANIFEST = "_manifest.json"
STATE = "state-data"
SAVEPOINTS = "savepoint"
SAVEPOINT_HEAD = "_savepoint.json"
OVERTAKEN = "_overtaken.json"


def job_directory(job_id: int) -> PurePosixPath:
    return PurePosixPath(str(job_id))


def pipeline_directory(job_id: int, pipeline: int) -> PurePosixPath:
    """All checkpoints of one pipeline."""
    return job_directory(job_id) / str(pipeline)


def checkpoint_directory(job_id: int, pipeline: int, checkpoint: int) -> PurePosixPath:
    return pipeline_directory(job_id, pipeline) / str(checkpoint)


def savepoints_directory(job_id: int) -> PurePosixPath:
    """All savepoints of one job."""
    return PurePosixPath(SAVEPOINTS) / str(job_id)


def savepoint_directory(job_id: int, savepoint: str) -> PurePosixPath:
    return savepoints_directory(job_id) / savepoint


def saved_directory(job_id: int, savepoint: str, pipeline: int) -> PurePosixPath:
    """What one pipeline has put into a savepoint."""
    return savepoint_directory(job_id, savepoint) / str(pipeline)


def savepoint_name(now_ms: int, newest: str = "") -> str:
    """The id of a savepoint: the time at which it was asked for, but always after the newest one
    that there is, whatever the clocks say.
    """
    return str(max(now_ms, int(newest) + 1 if is_savepoint_name(newest) else 0))


def is_savepoint_name(name: str) -> bool:
    """Whether this can be the id of a savepoint: so that no id can lead out of its directory."""
    return re.fullmatch(r"\d{1,19}", name) is not None


def draft_name(checkpoint: int, generation: int, token: str) -> str:
    """The hidden name under which a checkpoint is written before it gets its own."""
    return f".{checkpoint}-g{generation}-{token}"


def draft_generation(name: str) -> int | None:
    """Whose draft this is; None where it is none."""
    found = re.fullmatch(r"\.\d+-g(\d+)-\w+", name)
    return int(found[1]) if found else None


def checkpoint_of(name: str) -> int | None:
    """The checkpoint of a directory or draft; None where the name is neither."""
    found = re.fullmatch(r"(\d+)|\.(\d+)-g\d+-\w+", name)
    return int(found[1] or found[2]) if found else None


def operator_directory(operator: str) -> str:
    """An operator id as one path segment that cannot leave its directory."""
    return quote(operator, safe="[]-_ ").replace(".", "%2E")


def operator_of(segment: str) -> str:
    """The operator id of a path segment."""
    return unquote(segment)
