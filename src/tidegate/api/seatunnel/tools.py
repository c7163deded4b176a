"""Tools for job files: encryption of secrets, and options of connectors. Stateless."""

import json
from collections.abc import Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.seatunnel.commands import json_object, read_body
from tidegate.api.seatunnel.job_source import decode_body
from tidegate.config.document import Document
from tidegate.config.encryption import encode
from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.plugin.connector import Connector
from tidegate.plugin.option import Option, OptionSet
from tidegate.plugin.registry import find

KINDS = {"source": BlockKind.SOURCE, "transform": BlockKind.TRANSFORM, "sink": BlockKind.SINK}


async def encrypt_config(request: Request) -> Response:
    """Return the job file of the body with its sensitive options encrypted.

    `env.shade.identifier` of the job file selects the encryption.
    """
    body = await read_body(request)
    return JSONResponse(await run_in_threadpool(_encrypt, body))


def _encrypt(body: bytes) -> Any:
    data = dict(json_object(decode_body(body).encode()))
    document = encode(Document(name="job", data=data, positions={}))
    if document.problems:
        raise UserError("; ".join(problem.message for problem in document.problems))
    return document.data


async def option_rules(request: Request) -> Response:
    """Return the options of one connector and the rules between them."""
    query = request.query_params
    kind, name = query.get("type", "").lower(), query.get("plugin", "")
    if kind not in KINDS or not name:
        raise UserError(
            "type=source|transform|sink and plugin=<name> are required: `tidegate connectors list`"
            " shows the names"
        )
    return JSONResponse(rules(find(KINDS[kind], name)))


def rules(connector: Connector) -> dict[str, Any]:
    """Describe a connector in SeaTunnel's format."""
    options, by_key = connector.options, {each.key: each for each in connector.options.options}
    required = [
        _rule("ABSOLUTELY_REQUIRED", [option]) for option in options.options if option.required
    ]
    required += [_rule("EXCLUSIVE", [by_key[key] for key in group]) for group in options.exclusive]
    required += [_rule("BUNDLED", [by_key[key] for key in group]) for group in options.bundled]
    required += [
        _conditional(when.key, when.values, [by_key[key] for key in when.required])
        for when in options.conditions
    ]
    in_rules = {key for group in (*options.exclusive, *options.bundled) for key in group} | {
        key for when in options.conditions for key in when.required
    }
    optional = [
        _option(option)
        for option in options.options
        if not option.required and option.key not in in_rules
    ]
    rule = {
        "optionalOptions": optional,
        "requiredOptions": required,
        "conditionRules": [],
        "valueConstraints": list(_constraints(options)),
    }
    return {
        "engineType": "tidegate",
        "pluginType": connector.kind.value,
        "pluginName": connector.name,
        "optionRule": rule,
    }


def _rule(
    kind: str, options: list[Option], expression: str | None = None, tree: Any = None
) -> dict[str, Any]:
    return {
        "ruleType": kind,
        "options": [_option(option) for option in options],
        "expression": expression,
        "expressionTree": tree,
    }


def _conditional(key: str, values: tuple[Any, ...], options: list[Option]) -> dict[str, Any]:
    expression = " || ".join(f"'{key}' == {json.dumps(value)}" for value in values)
    return _rule("CONDITIONAL", options, expression, {"key": key, "anyOf": list(values)})


def _constraints(options: OptionSet) -> Iterator[dict[str, Any]]:
    for option in options.options:
        if option.minimum is not None or option.maximum is not None:
            yield {"key": option.key, "minimum": option.minimum, "maximum": option.maximum}
    for group in options.at_most_one:
        yield {"atMostOneOf": list(group)}


def _option(option: Option) -> dict[str, Any]:
    return {
        "key": option.key,
        "type": option.kind.value,
        "defaultValue": option.default,
        "description": option.description,
        "fallbackKeys": list(option.fallbacks),
        "optionValues": list(option.choices) or None,
    }
