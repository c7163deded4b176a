"""`tidegate connectors list|show NAME`: the connectors, their capabilities and options.

Reads declarations only.
"""

import json
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from tidegate.cli.exits import BAD_INPUT
from tidegate.cli.pipe_console import PipeConsole
from tidegate.model.job import BlockKind
from tidegate.model.problem import closest_match
from tidegate.plugin import registry
from tidegate.plugin.connector import Connector
from tidegate.plugin.option import Option
from tidegate.plugin.rules import rules

PIPE_COLUMNS = 160  # width of tables if the output is not a terminal


@click.group("connectors")
def connectors() -> None:
    """List and describe the sources, transforms and sinks that a job file can use.

    \b
    Examples:
      tidegate connectors list
      tidegate connectors show Jdbc --kind sink
    """


@connectors.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_all(as_json: bool) -> None:
    """List all connectors, one line each."""
    found = registry.connectors()
    for package in registry.broken_packages():
        click.echo(f"tidegate: {package}", err=True)
    if as_json:
        click.echo(
            json.dumps([_head(connector) for connector in found], indent=2, ensure_ascii=False)
        )
        return
    table = _table("kind", "name", "what it does", "delivery")
    for one in found:
        table.add_row(
            one.kind.value,
            one.name,
            one.summary,
            one.capabilities.delivery.value if one.capabilities.delivery else "",
        )
    _console().print(table)


@connectors.command("show")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in BlockKind]),
    help="Only this kind, if the name is both a source and a sink.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON list, one entry for each kind of this name.",
)
def show(name: str, kind: str | None, as_json: bool) -> None:
    """Show what a connector can do, and all its options."""
    found = [
        one
        for one in registry.connectors()
        if _is_called(one, name) and kind in (None, one.kind.value)
    ]
    if not found:
        snapshot = [one.name for one in registry.connectors() if kind in (None, one.kind.value)]
        close = closest_match(name, snapshot)
        hint = f"; did you mean {close!r}?" if close else ": `tidegate connectors list` shows all"
        click.echo(f"tidegate: there is no {kind or 'connector'} {name!r}{hint}", err=True)
        raise SystemExit(BAD_INPUT)
    if as_json:
        click.echo(
            json.dumps([document(connector) for connector in found], indent=2, ensure_ascii=False)
        )
        return
    for connector in found:
        _show(connector)


def _is_called(connector: Connector, name: str) -> bool:
    return name.lower() in (connector.name.lower(), *(alias.lower() for alias in connector.aliases))


def _head(connector: Connector) -> dict[str, Any]:
    able = connector.capabilities
    return {
        "name": connector.name,
        "kind": connector.kind.value,
        "aliases": list(connector.aliases),
        "summary": connector.summary,
        "capabilities": {
            "batch": able.batch,
            "streaming": able.streaming,
            "delivery": able.delivery.value if able.delivery else None,
            "go_back": able.go_back.value if able.go_back else None,
            "row_kinds": able.row_kinds,
            "multi_table": able.multi_table,
            "fusable": able.fusable,
            "state": able.state,
        },
    }


def document(connector: Connector) -> dict[str, Any]:
    """Return all declarations of a connector as JSON."""
    return {
        **_head(connector),
        "options": [_option_document(option) for option in connector.options.options],
        "rules": rules(connector.options),
    }


def _option_document(option: Option) -> dict[str, Any]:
    return {
        "key": option.key,
        "type": option.kind.value,
        "default": option.default,
        "required": option.required,
        "fallbacks": list(option.fallbacks),
        "choices": list(option.choices),
        "minimum": option.minimum,
        "maximum": option.maximum,
        "secret": option.secret,
        "description": option.description,
    }


def abilities(connector: Connector) -> list[tuple[str, str]]:
    """Return the capabilities of a connector as pairs of label and value."""
    able = connector.capabilities
    modes = [word for word, can in (("BATCH", able.batch), ("STREAMING", able.streaming)) if can]
    lines = [("job modes", ", ".join(modes))]
    if able.delivery:
        lines.append(("delivery", able.delivery.value))
    if able.go_back:
        lines.append(("rollback", able.go_back.value))
    lines.append(("row kinds", "+I -U +U -D" if able.row_kinds else "inserts"))
    lines.append(("tables", "several" if able.multi_table else "one"))
    lines.append(
        ("runs", "fused or through a DataFrame" if able.fusable else "through a DataFrame")
    )
    lines.append(("state", able.state))
    return lines


def bounds(option: Option) -> str:
    """Format the type of an option with its limits."""
    if option.choices:
        return option.expected
    low = f" >= {option.minimum:g}" if option.minimum is not None else ""
    high = f" <= {option.maximum:g}" if option.maximum is not None else ""
    return option.kind.value + low + high


def shown_default(option: Option) -> str:
    """Format the default as in a job file; `required` if there must be a value."""
    if option.required:
        return "required"
    return "" if option.default is None else json.dumps(option.default, ensure_ascii=False)


def _show(connector: Connector) -> None:
    console = _console()
    console.print(
        Text(f"{connector.kind.value} {connector.name}", style="bold"),
        Text(connector.summary),
        sep="\n",
    )
    for word, value in abilities(connector):
        console.print(Text(f"  {word:<11} {value}"))
    table = _table("option", "type", "default", "description")
    for option in connector.options.options:
        also = f" (also: {', '.join(option.fallbacks)})" if option.fallbacks else ""
        table.add_row(option.key, bounds(option), shown_default(option), option.description + also)
    console.print(table)
    for rule in rules(connector.options):
        console.print(Text(f"  needs {rule}"))
    console.print()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(
            column,
            overflow="fold",
            no_wrap=False,
            min_width=20 if index == 0 and column == "option" else None,
        )
    return table


def _console() -> PipeConsole:
    console = PipeConsole(highlight=False, markup=False, soft_wrap=False)
    return (
        console
        if console.is_terminal
        else PipeConsole(highlight=False, markup=False, width=PIPE_COLUMNS)
    )
