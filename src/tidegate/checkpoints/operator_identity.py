"""The identity of an operator: its plugin, and what it reads or writes. Pure; contains no secrets.

It is stored with the operator's state, so that a restore can compare it with the job file, even if
the store is lost.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tidegate.model.plan import Action

IDENTITY = "identity"  # the key next to the state
# What a position or a record refers to. All other options may change between two runs.
KEYS = (
    "path",
    "tables_configs",
    "fs.defaultFS",
    "bucket",
    "hostname",
    "host",
    "port",
    "url",
    "base-url",
    "bootstrap.servers",
    "topic",
    "database",
    "database-names",
    "schema-names",
    "schema_name",
    "table",
    "table_path",
    "table-names",
    "table_list",
    "table_name",
    "collection",
    "index",
    "query",
    "primary_keys",
    "primary_key",
    "warehouse",
    "namespace",
)
TEXT_CHARS_MAX = 200


def identity_of(action: Action) -> dict[str, str]:
    """Return the identity as short text; long values and URLs as their digest.

    A URL may contain a password.
    """
    return {"plugin": action.plugin} | {
        key: _text(action.options[key]) for key in KEYS if action.options.get(key) is not None
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    return [
        f"{key} is {_described(now.get(key))} in the job file, and its state was made with"
        f" {_described(before.get(key))}"
        for key in keys
    ]


def _text(value: Any) -> str:
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    )
    if "://" in text or isinstance(value, Mapping | list | tuple) or len(text) > TEXT_CHARS_MAX:
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return text


def _described(text: str | None) -> str:
    if text is None:
        return "not given"
    return "another one" if text.startswith("sha256:") else repr(text)
