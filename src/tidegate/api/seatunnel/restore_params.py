"""Restore options of a submitted job as query parameters.

Both ours, and SeaTunnel's isStartWithSavePoint and restoreMode.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.datastructures import QueryParams

from tidegate.api.seatunnel.queries import job_id_of
from tidegate.coordinator.restore.options import (
    RestoreOptions,
    RestoreSource,
    parse_changes,
    parse_choice,
    parse_files,
)
from tidegate.model.errors import UserError
from tidegate.model.option_error import OptionError, OptionMention
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost, OnSinkLost

PARAMETERS = {
    "--restore-from": "restoreFrom",
    "--restore": "restore",
    "--on-missing": "onMissing",
    "--on-damaged": "onDamaged",
    "--on-incompatible": "onIncompatible",
    "--on-not-held": "onNotHeld",
    "--skip-file": "skipFile",
    "--accept-file": "acceptFile",
    "--accept-change": "acceptChange",
    "--on-sink-lost": "onSinkLost",
}
FLAGS = {"--takeover": "takeover=true", "--allow-duplicates": "allowDuplicates=true"}


def flag(values: Mapping[str, Any], name: str) -> bool:
    """Parse a boolean or its text; false if it is missing."""
    match values.get(name, False):
        case bool(value):
            return value
        case "true" | "false" as text:
            return bool(text == "true")
        case other:
            raise UserError(f"{name} is {json.dumps(other)}; it must be true or false")


def submit_query(
    id: str | None, name: str | None, restore: str | None, on_sink_lost: str | None
) -> dict[str, str]:
    """Return the fields of a submission as query parameters."""
    given = {"jobId": id, "jobName": name, "restore": restore, "onSinkLost": on_sink_lost}
    return {key: value for key, value in given.items() if value}


def restore_options(query: Mapping[str, str]) -> RestoreOptions:
    """Parse the restore options of a request; UserError if they are invalid."""
    try:
        return _parse(query)
    except UserError as error:
        raise in_parameters(error) from error


def _parse(query: Mapping[str, str]) -> RestoreOptions:
    options = replace(
        RestoreOptions.parse(query.get("restore")),
        takeover=_flag(query, "takeover"),
        duplicates=_flag(query, "allowDuplicates"),
        skip_files=parse_files("--skip-file", _all(query, "skipFile")),
        accept_files=parse_files("--accept-file", _all(query, "acceptFile")),
        accept_changes=parse_changes(_all(query, "acceptChange")),
        on_missing=parse_choice(OnMissing, "--on-missing", query.get("onMissing"), OnMissing.FAIL),
        on_damaged=parse_choice(OnDamaged, "--on-damaged", query.get("onDamaged"), OnDamaged.OLDER),
        on_incompatible=parse_choice(
            OnIncompatible, "--on-incompatible", query.get("onIncompatible"), OnIncompatible.FAIL
        ),
        on_position_lost=parse_choice(
            OnPositionLost, "--on-not-held", query.get("onNotHeld"), OnPositionLost.FAIL
        ),
        on_sink_lost=parse_choice(
            OnSinkLost, "--on-sink-lost", query.get("onSinkLost"), OnSinkLost.FAIL
        ),
    )
    if _flag(query, "isStartWithSavePoint"):
        if "jobId" not in query:
            raise UserError("isStartWithSavePoint=true needs the jobId of the job to resume")
        if options.start is RestoreSource.ASK:
            options = replace(options, start=RestoreSource.LATEST)
    own = job_id_of(query["jobId"]) if "jobId" in query else None
    return options.from_job(_source(query), own)


def _all(query: Mapping[str, str], name: str) -> list[str]:
    """Return all values of a repeatable parameter; each line of a value is a value too."""
    given = query.getlist(name) if isinstance(query, QueryParams) else [query.get(name, "")]
    return [line for text in given for line in text.splitlines() if line.strip()]


def _source(query: Mapping[str, str]) -> int | None:
    """Return the job to restore from: restoreFrom, or SeaTunnel's restoreSourceJobId."""
    mode = query.get("restoreMode")
    if mode is None:
        if "restoreSourceJobId" in query:
            raise UserError("restoreSourceJobId needs restoreMode=CHECKPOINT")
        return job_id_of(query["restoreFrom"]) if "restoreFrom" in query else None
    if mode.upper() not in ("CHECKPOINT", "SAVEPOINT"):
        raise UserError(f"restoreMode={mode} is unknown: use CHECKPOINT")
    if "restoreSourceJobId" not in query:
        raise UserError(f"restoreMode={mode} needs restoreSourceJobId, the job to restore from")
    return job_id_of(query["restoreSourceJobId"])


def _flag(query: Mapping[str, str], name: str) -> bool:
    return flag({name: query.get(name, "false").lower()}, name)


def in_parameters(error: UserError) -> UserError:
    """Return the error with query parameters in place of options of the command line."""
    if not isinstance(error, OptionError):
        return error
    reworded = UserError(error.worded(_parameter))
    reworded.condition = error.condition
    return reworded


def _parameter(option: OptionMention) -> str:
    if option.flag in FLAGS:
        return FLAGS[option.flag]
    name = PARAMETERS[option.flag]
    return f"{name}={option.value}" if option.value else name
