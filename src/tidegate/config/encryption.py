"""Shaded job files: sensitive options are stored encoded and decoded on load.

`env { shade.identifier = "base64" }` declares it. Callers: load (decode), the CLI (encode, for
`--encrypt`). Messages never contain a value.
"""

import base64
import binascii
from collections.abc import Callable
from typing import TypeAlias

from tidegate.config.document import Data, Document, path_text
from tidegate.model.job import Path
from tidegate.model.problem import Problem, ProblemKind, Severity, closest_match

SENSITIVE_KEYS = ("password", "username", "auth", "token", "access_key", "secret_key")
IDENTIFIERS = ("default", "base64")
_Change: TypeAlias = Callable[[str], str]


def decode(document: Document) -> Document:
    """Decode the shaded options of a document."""
    return _transformed(document, _from_base64)


def encode(document: Document) -> Document:
    """Encode the sensitive options of a document, as its env block requests."""
    return _transformed(document, _to_base64)


def _from_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode("utf-8")


def _to_base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


def _transformed(document: Document, change: _Change) -> Document:
    env = document.data.get("env")
    identifier = _option(env, "shade.identifier")
    if identifier is None or identifier == "default":
        return document
    if identifier != "base64":
        document.problems.append(_unknown(document, str(identifier)))
        return document
    extra = _option(env, "shade.options")
    keys = [
        key.split(".")
        for key in (*SENSITIVE_KEYS, *(map(str, extra) if isinstance(extra, list) else ()))
    ]
    for kind in ("source", "sink"):
        blocks = document.data.get(kind)
        for i, block in enumerate(blocks if isinstance(blocks, list) else []):
            for key in keys:
                _change_at(document, block, (kind, i), key, change)
    return document


def _option(env: Data, key: str) -> Data:
    """Read an option of env by its flat key, else through its blocks."""
    if not isinstance(env, dict) or key in env:
        return env.get(key) if isinstance(env, dict) else None
    head, dot, rest = key.partition(".")
    return _option(env.get(head), rest) if dot else None


def _unknown(document: Document, identifier: str) -> Problem:
    path: Path = (
        ("env", "shade.identifier")
        if ("env", "shade.identifier") in document.positions
        else ("env", "shade", "identifier")
    )
    return Problem(
        kind=ProblemKind.OPTION,
        message=f"unknown shade.identifier {identifier}: values are used unchanged",
        at=document.at(path),
        path="env.shade.identifier",
        expected=f"one of {', '.join(IDENTIFIERS)}",
        suggestion=closest_match(identifier, list(IDENTIFIERS)),
        severity=Severity.WARNING,  # SeaTunnel silently uses them unchanged too
    )


def _change_at(document: Document, node: Data, path: Path, key: list[str], change: _Change) -> None:
    """Change the value at a key below a node, flat or nested, also in lists on the path."""
    if isinstance(node, list):
        for i, item in enumerate(node):
            _change_at(document, item, (*path, i), key, change)
        return
    if not isinstance(node, dict):
        return
    for length in range(1, len(key) + 1):
        name = ".".join(key[:length])
        if name not in node:
            continue
        if length == len(key):
            node[name] = _one(document, node[name], (*path, name), change)
        else:
            _change_at(document, node[name], (*path, name), key[length:], change)


def _one(document: Document, value: Data, path: Path, change: _Change) -> Data:
    if value is None or isinstance(value, dict | list):
        return value
    try:
        return change(value if isinstance(value, str) else str(value))
    except (binascii.Error, UnicodeDecodeError, ValueError):
        document.problems.append(
            Problem(
                kind=ProblemKind.OPTION,
                message="the value is not base64, as env.shade.identifier requires",
                at=document.at(path),
                path=path_text(path),
            )
        )
        return value
