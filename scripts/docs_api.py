"""Generate the reference pages of the two REST APIs from their OpenAPI documents.

Loaded by scripts/docs.py, which writes them. Routes, roles, parameters, responses and errors come
from tidegate.api and nowhere else.
"""

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tidegate.api.context import ApiContext, ApiServer
from tidegate.api.seatunnel.openapi import document
from tidegate.api.v1.app import typed_api
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import SystemClock
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.commands import Commands
from tidegate.model.engine import EngineSettings
from tidegate.store.open import open_store

METHODS = ("get", "post", "put", "patch", "delete")

V1 = """# The typed API

Base path `/api/v1`. `GET /api/v1/openapi.json` returns the OpenAPI description. Numbers are JSON
numbers, times are ISO 8601 in UTC. Lists are paged: `limit` sets the page size, and `next` of a
page is the `cursor` of the following one. Errors are `application/problem+json` with a `condition`
that is stable across releases. `GET /api/v1/events` is a stream of server-sent events.

Writes are idempotent: submits with the same `Idempotency-Key` create one job, and a repeated stop
or savepoint request is the same request.

Deprecated fields have the value of the field that replaces them. Requests can still use them. They
are removed in the next minor release."""

V2 = """# SeaTunnel's REST API

The paths, parameters, keys and types of SeaTunnel's REST API v2. `GET /openapi.json` returns the
OpenAPI description. As in SeaTunnel, almost every scalar is a string. Errors are
`{"status": "fail", "message": "..."}`. The [typed API](api-v1.md) returns more.

In `metrics`, `SourceReceivedCount` and `SinkWriteCount` include rows of the current batch. All
other counters count committed rows, once, however often the job was restarted:
`SinkCommittedCount`, the keys with `Bytes`, and, if a job has several tables, the objects
`TableSourceReceived...`, `TableSinkWrite...` and `TableSinkCommitted...` by table (`*` is the sum
of an operator's tables after the first 128). Bytes are those of the rows in Arrow; data that Spark
reads or writes itself is not counted in bytes."""

ROLES = (
    "Each route requires a role: `viewer` can read, `operator` can submit, stop, save and restore,"
    " `admin` can do everything."
)


def api_pages() -> dict[str, list[str]]:
    return {
        "api-v1.md": list(_page(V1, description(), "/api/v1")),
        "rest-v2.md": list(_page(V2, document(""), "")),
    }


def description() -> Any:
    """Return the OpenAPI document of the typed API, from a server that is never started."""
    clock, settings = SystemClock(), EngineSettings()
    with closing(open_store("memory:")) as store:
        commands = Commands(store, CheckpointStorage(Path("/nowhere")), settings, clock)
        context = ApiContext(
            cache=ClusterCache(store, clock),
            commands=commands,
            store=store,
            settings=settings,
            clock=clock,
            me=ApiServer(id="", address=""),
        )
        return typed_api(context).openapi()


def _page(head: str, described: Mapping[str, Any], prefix: str) -> Iterator[str]:
    common = _common_errors(described)
    yield from (
        head,
        "",
        _wrapped(ROLES),
        "",
        "Any route can also return:",
        "",
        "| status | meaning |",
        "|---|---|",
    )
    yield from (f"| {status} | {_cell(why)} |" for status, why in common.items())
    yield ""
    for path, operations in described["paths"].items():
        for method in (each for each in METHODS if each in operations):
            yield from _operation(f"{method.upper()} {prefix}{path}", operations[method], common)
    schemas = described["components"]["schemas"]
    yield from ("# Objects", "")
    for name in sorted(schemas):
        yield from _schema(name, schemas[name])


def _common_errors(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the error responses that every operation has."""
    all_responses = [
        operation["responses"]
        for operations in described["paths"].values()
        for method, operation in operations.items()
        if method in METHODS
    ]
    shared = set.intersection(*(set(responses) for responses in all_responses))
    return {
        status: all_responses[0][status]["description"]
        for status in sorted(shared)
        if not status.startswith("2")
    }


def _operation(
    title: str, operation: Mapping[str, Any], common: Mapping[str, str]
) -> Iterator[str]:
    yield from (
        f"## {title}",
        "",
        _wrapped(operation.get("description") or operation["summary"]),
        "",
        f"Role: {operation['x-role']}.",
    )
    if parameters := operation.get("parameters"):
        yield from ("", "| parameter | in | type | meaning |", "|---|---|---|---|")
        yield from (_parameter(each) for each in parameters)
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from ("", f"Body (`{media}`): {_type(body['schema'])}.")
    yield ""
    for status, response in operation["responses"].items():
        if status in common:
            continue
        contents = [
            f"{_type(content['schema'])} (`{media}`)" if content.get("schema") else f"`{media}`"
            for media, content in response.get("content", {}).items()
        ]
        yield f"- {status}: {', or '.join(contents) or response['description']}"
    yield ""


def _parameter(each: Mapping[str, Any]) -> str:
    meaning = each.get("description") or each["schema"].get("description") or ""
    default = each["schema"].get("default")
    known = f" Default {default}." if default is not None else ""
    needed = " Required." if each.get("required") and each["in"] != "path" else ""
    return (
        f"| `{each['name']}` | {each['in']} | {_cell(_type(each['schema']))} |"
        f" {_cell(_sentence(meaning) + known + needed).strip()} |"
    )


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "")
    if schema.get("description"):
        yield from (_wrapped(schema["description"]), "")
    if "properties" not in schema:
        yield from (_type(schema), "")
        return
    yield from ("| key | type | meaning |", "|---|---|---|")
    for key, value in schema["properties"].items():
        yield (
            f"| `{key}` | {_cell(_type(value))} |"
            f" {_cell(_sentence(value.get('description', '')))} |"
        )
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[key]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        return _object(schema)
    return "time" if schema.get("format") == "date-time" else f"{kind}{_bounds(schema)}"


def _object(schema: Mapping[str, Any]) -> str:
    if schema.get("properties"):
        return "object with " + ", ".join(f"`{key}`" for key in schema["properties"])
    more = schema.get("additionalProperties")
    return f"object of {_type(more)}" if isinstance(more, Mapping) and more else "object"


def _bounds(schema: Mapping[str, Any]) -> str:
    limits = [
        (f">= {schema['minimum']}" if "minimum" in schema else ""),
        (f"<= {schema['maximum']}" if "maximum" in schema else ""),
    ]
    said = " ".join(each for each in limits if each)
    return f" {said}" if said else ""


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return (
        text
        if not text or text.endswith((".", "!", "?", ":"))
        else f"{text[:1].upper()}{text[1:]}."
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(_sentence(text), 100, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")
