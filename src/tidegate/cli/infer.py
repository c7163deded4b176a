"""`tidegate infer FILE`: prints the schema of a file, or a complete job that reads it.

Starts nothing.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tidegate.cli.exits import BAD_INPUT
from tidegate.model.errors import TidegateError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@click.command("infer")
@click.argument("file", metavar="FILE")
@click.option(
    "--job",
    "as_job",
    is_flag=True,
    help="Print a complete job, which prints the rows on the console.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "text", "json", "parquet", "orc"]),
    help="The format of the file.  [default: detected]",
)
@click.option("--encoding", help="The encoding of a text file.  [default: detected]")
@click.option(
    "--delimiter", help="The field delimiter of a text file; \\t is a tab.  [default: detected]"
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line has the column names.  [default: detected]",
)
def infer(
    file: str,
    as_job: bool,
    form: str | None,
    encoding: str | None,
    delimiter: str | None,
    header: bool | None,
) -> None:
    """Print the schema of a file: csv, tab-separated and other text, JSON, Parquet or ORC.

    Compressed files and archives are read too. Reads at most 4 MiB and 10000 rows. Types are safe
    rather than narrow: integers become bigint; ids with a leading zero and columns of mixed values
    stay strings. The options above the schema belong in the LocalFile block too.

    \b
    Examples:
      tidegate infer orders.csv
      tidegate infer orders.csv.gz --job > orders.conf && tidegate run orders.conf
    """
    from tidegate.connectors.localfile.infer import (
        InferenceHints,
        infer,
        type_text,
    )  # Arrow, which other commands do not need
    from tidegate.connectors.localfile.option_syntax import unescape

    wanted = InferenceHints(
        form=form or "", encoding=encoding or "", delimiter=unescape(delimiter or ""), header=header
    )
    path = os.path.abspath(file)
    try:
        found = infer(path, wanted)
    except TidegateError as error:
        click.echo(f"tidegate: {error}", err=True)
        raise SystemExit(BAD_INPUT) from None
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    columns = {column.name: type_text(column.type) for column in found.columns}
    lines = [*_options(found.options), *_schema(columns)]
    click.echo("\n".join(_job(path, lines) if as_job else lines))


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _schema(columns: Mapping[str, Any]) -> Iterator[str]:
    yield "schema {"
    if all(_NAME.fullmatch(name) for name in columns):
        yield "  fields {"
        yield from (f"    {line}" for name, kind in columns.items() for line in _field(name, kind))
        yield "  }"
    else:  # names with dots and blanks would be paths as keys
        yield "  columns = ["
        yield from (
            f"    {{ name = {_value(name)}, type = {_inline(kind)} }}"
            for name, kind in columns.items()
        )
        yield "  ]"
    yield "}"


def _field(name: str, kind: Any) -> Iterator[str]:
    if not isinstance(kind, Mapping):
        yield f"{name} = {_value(kind)}"
        return
    yield f"{name} {{"
    yield from (f"  {line}" for key, inner in kind.items() for line in _field(key, inner))
    yield "}"


def _inline(kind: Any) -> str:
    if not isinstance(kind, Mapping):
        return _value(kind)
    return "{ " + ", ".join(f"{name} = {_inline(inner)}" for name, inner in kind.items()) + " }"


def _job(path: str, lines: list[str]) -> Iterator[str]:
    yield "env {"
    yield '  job.mode = "BATCH"'
    yield "}"
    yield "source {"
    yield "  LocalFile {"
    yield f"    path = {_value(path)}"
    yield from (f"    {line}" for line in lines)
    yield "  }"
    yield "}"
    yield "sink {"
    yield "  Console {"
    yield "  }"
    yield "}"
