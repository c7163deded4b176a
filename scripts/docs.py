"""Writes docs/reference/ anew from what the code declares: connectors with all their options, the
env block, the engine's file, the commands, the routes of both APIs.

Called by `make docs`; with `--check` it writes nothing and fails where a page is not what the code
says (the tidy tests ask the same). The pages are never edited by hand: the words are in the
`Option`s and docstrings.
"""

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from runpy import run_path

import click

from tidegate.cli import COMMANDS
from tidegate.cli.connectors import abilities, bounds, shown_default
from tidegate.cli.exits import MEANINGS
from tidegate.config.engine.options import IGNORED, SEATUNNEL_DIFFERENCES
from tidegate.config.engine.options import OPTIONS as ENGINE_OPTIONS
from tidegate.config.env import OPTIONS as ENV_OPTIONS
from tidegate.config.structure import COMMON_OPTIONS
from tidegate.model.job import BlockKind
from tidegate.plugin.connector import Connector
from tidegate.plugin.option import Option, OptionSet
from tidegate.plugin.registry import connectors
from tidegate.plugin.rules import rules

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MARK = "<!-- Written by `make docs` from the code: do not edit. -->"
HELP_COLUMNS = 100


def pages() -> dict[str, str]:
    """Every generated page: file name -> text."""
    found = {
        "env.md": _page(_env_lines()),
        "commands.md": _page(_command_lines()),
        "connectors.md": _page(_index_lines()),
    }
    found["engine.md"] = _page(_engine_lines())
    found["states.md"] = _page(
        run_path(str(Path(__file__).with_name("docs_states.py")))["state_lines"]()
    )
    found |= {
        name: _page(lines)
        for name, lines in run_path(str(Path(__file__).with_name("docs_api.py")))[
            "api_pages"
        ]().items()
    }
    for kind in BlockKind:
        found[f"{kind.value}s.md"] = _page(_kind_lines(kind))
    return found


def stale(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """The names of pages that are missing, differ, or are left from a connector that is gone."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    generated = {name for name, text in there.items() if text.startswith(MARK)}
    return sorted(name for name in generated | set(wanted) if there.get(name) != wanted.get(name))


def _page(lines: Iterable[str]) -> str:
    return "\n".join([MARK, "", *lines]).rstrip() + "\n"


ENV_HEAD = """\
Write keys flat (`job.mode = BATCH`) or nested (`job { mode = BATCH }`). Keys below `spark.` are
passed to Spark unchanged."""


def _env_lines() -> Iterator[str]:
    yield from ("# The env block", "", ENV_HEAD, "")
    yield from _table(ENV_OPTIONS)


ENGINE_HEAD = """# Engine configuration file

`tidegate server`, `tidegate worker` and `tidegate run` read a YAML file: the one given with
`--config`, otherwise the one named by `TIDEGATE_CONFIG`, otherwise `tidegate.yaml` or
`seatunnel.yaml` in the home. Without a file, every option has its default. `tidegate config show`
prints the effective values and the origin of each.

```yaml
tidegate:
  state:
    url: postgresql://tide:${DB_PASSWORD}@db.example/tide
  checkpoint:
    interval: 10000
  http.port: 8080
  spark.master: local[4]
```

Put the keys below `tidegate:` or, as in an existing `seatunnel.yaml`, below `seatunnel: engine:`.
Keys can be nested or flat. To keep passwords out of the file, a value can refer to environment
variables, `${NAME}` or `${NAME:default}`, and to files, `${file:/run/secrets/password}`. In a URL,
write special characters of a password as `%XX`. The file is YAML 1.2: only `true` and `false` are
booleans. Keys below `spark` are passed to Spark unchanged; the `env` of a job overrides them.
"""


IGNORED_HEAD = "These options are accepted and have no effect. They are reported once at start."


def _engine_lines() -> Iterator[str]:
    yield from (ENGINE_HEAD, *_table(ENGINE_OPTIONS))
    yield from ("", "## Defaults that differ from SeaTunnel", "")
    yield from (f"- `{key}`: {reason}" for key, reason in SEATUNNEL_DIFFERENCES.items())
    yield from ("", "## Ignored options", "", IGNORED_HEAD, "", "| key | reason |", "|---|---|")
    yield from (f"| `{key}` | {_cell(reason)} |" for key, reason in IGNORED.items())


def _index_lines() -> Iterator[str]:
    yield from ("# Connectors", "")
    yield from (
        (
            "`tidegate connectors show NAME` says the same on the command line. Names are"
            " understood in any case."
        ),
        "",
    )
    yield from ("| name | kind | what it does | delivery |", "|---|---|---|---|")
    for one in connectors():
        promise = one.capabilities.delivery.value if one.capabilities.delivery else ""
        yield (
            f"| [{one.name}]({one.kind.value}s.md#{one.name.lower()}) | {one.kind.value} |"
            f" {_cell(one.summary)} | {promise} |"
        )
    yield from ("", "## Keys of every block", "", *_table(COMMON_OPTIONS))


def _kind_lines(kind: BlockKind) -> Iterator[str]:
    yield from (f"# {kind.value.capitalize()}s", "")
    for connector in connectors():
        if connector.kind is kind:
            yield from _connector_lines(connector)


def _connector_lines(connector: Connector) -> Iterator[str]:
    yield from (f"## {connector.name}", "", connector.summary, "")
    if connector.aliases:
        yield f"- also called: {', '.join(connector.aliases)}"
    for word, value in abilities(connector):
        yield f"- {word}: {value}"
    for rule in rules(connector.options):
        yield f"- needs {rule}"
    yield from ("", *_table(connector.options), "")


def _table(options: OptionSet) -> Iterator[str]:
    yield from ("| option | type | default | description |", "|---|---|---|---|")
    for option in options.options:
        yield (
            f"| `{option.key}` | {_cell(bounds(option))} | {_default(option)} |"
            f" {_description(option)} |"
        )


def _default(option: Option) -> str:
    text = shown_default(option)
    return text if text in ("", "required") else f"`{_cell(text)}`"


def _description(option: Option) -> str:
    also = (
        f" Also: {', '.join(f'`{key}`' for key in option.fallbacks)}." if option.fallbacks else ""
    )
    secret = " Secret: never shown." if option.secret else ""
    text = option.description[:1].upper() + option.description[1:]
    return _cell(text.rstrip(".") + "." + also + secret)


def _cell(text: str) -> str:
    """Text that cannot end its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def _command_lines() -> Iterator[str]:
    yield from (
        "# Commands",
        "",
        (
            '`tidegate VERB --help` says the same. Completion: `eval "$(tidegate completion bash)"`'
            " (or zsh; for fish see below)."
        ),
        "",
    )
    yield from (
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()),
        "",
    )
    for verb, place in sorted(COMMANDS.items()):
        module, _, name = place.partition(":")
        yield from _help_lines(f"tidegate {verb}", getattr(import_module(module), name))


def _help_lines(title: str, command: click.Command) -> Iterator[str]:
    command = copy.copy(command)
    command._help_option = (
        None  # click keeps the first one that it makes, with the names of that call
    )
    context = click.Context(
        command, info_name=title, terminal_width=HELP_COLUMNS, max_content_width=HELP_COLUMNS
    )
    yield from (f"## {title}", "", "```", *command.get_help(context).splitlines(), "```", "")
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            yield from _help_lines(f"{title} {name}", below)


def main(arguments: list[str]) -> int:
    """0 when the pages are written, or with --check when they were as they should be."""
    wanted = pages()
    names = stale(FOLDER, wanted)
    if "--check" in arguments:
        for name in names:
            print(
                f"docs/reference/{name} is not what the code says: run `make docs`", file=sys.stderr
            )
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
        print(f"docs/reference/{name} {'written' if name in wanted else 'removed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
