"""Variables in job files: `${name}` and `${name:default}`.

Caller: load. Values come from `-i name=value`, then from the environment, then from the default.
HOCON's own `${name}` outside of quotes calls `Variables.lookup` while it is resolved; inside quoted
text `fill` replaces them afterwards. Placeholders that a sink or a template replaces for every
table, file or row are left unchanged. The environment is an argument: this module never reads the
process's own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.config.document import Data, Document, path_text
from tidegate.model.errors import UserError
from tidegate.model.job import Path
from tidegate.model.problem import Problem, ProblemKind

# Replaced by the sink for every table; -i may not set them.
SYSTEM_PLACEHOLDERS = frozenset(
    {
        "database_name",
        "schema_name",
        "table_name",
        "schema_full_name",
        "table_full_name",
        "primary_key",
        "unique_key",
        "field_names",
        "comment",
        "partition_keys",
    }
)
# Replaced by save-mode templates, file names, request bodies, pages of HTTP sources: -i may set
# them, the environment may not.
_TEMPLATE_PLACEHOLDERS = frozenset(
    {
        "rowtype_primary_key",
        "rowtype_unique_key",
        "rowtype_duplicate_key",
        "rowtype_fields",
        "table",
        "database",
        "now",
        "uuid",
        "transactionId",
        "model",
        "input",
        "prompt",
        "page",
        "cursor",
        "keyvault",
    }
)
_PARTITION_PLACEHOLDER = re.compile(r"[kv][0-9]+")
# Options whose text is a template over the fields of a row, whatever the names in it.
_TEMPLATE_OPTIONS = frozenset(
    {
        "file_name_expression",
        "partition_dir_expression",
        "save_mode_create_template",
        "custom_request_body",
        "api_path",
        "topic",
        "index",
        "body",
        "params",
        "headers",
    }
)
_PLACEHOLDER = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True, slots=True)
class Variables:
    """Sources of values: those given with -i, and the environment."""

    given: Mapping[str, str]
    environment: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return the text of a variable, or None if it is not set or replaced elsewhere."""
        if name in SYSTEM_PLACEHOLDERS:
            return None
        if name in self.given:
            return self.given[name]
        return None if is_placeholder(name) else self.environment.get(name)

    def lookup(self, name: str) -> str | list[str] | None:
        """Return the value of a variable outside of quotes: `[a,b]` is a list there."""
        text = self.text(name)
        if text is not None and text.startswith("[") and text.endswith("]"):
            return [_unquoted(item) for item in text[1:-1].split(",")]
        return text


def is_placeholder(name: str) -> bool:
    """Report whether a name is replaced later, by something else than a variable."""
    return (
        name in SYSTEM_PLACEHOLDERS
        or name in _TEMPLATE_PLACEHOLDERS
        or _PARTITION_PLACEHOLDER.fullmatch(name) is not None
    )


def read_variables(items: Iterable[str]) -> dict[str, str]:
    """Parse `-i` arguments: `k=v`, several separated by commas.

    Commas inside of "..." or [...] do not separate.
    """
    given: dict[str, str] = {}
    for item in items:
        for pair in _split(item):
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise UserError(
                    f"-i {pair}: expected name=value (put a value with a comma into double quotes)"
                )
            if name in SYSTEM_PLACEHOLDERS:
                raise UserError(
                    f"-i {name}=...: the sink replaces ${{{name}}} for every table, so it cannot"
                    " be set as a variable"
                )
            given[name.strip()] = value
    return given


def _split(item: str) -> list[str]:
    pairs, brackets, quotes = [""], False, False
    for char in item:
        brackets = char == "[" or (brackets and char != "]")
        quotes ^= char == '"'
        if char == "," and not brackets and not quotes:
            pairs.append("")
        else:
            pairs[-1] += char
    return [pair.strip() for pair in pairs if pair.strip()]


def _unquoted(item: str) -> str:
    item = item.strip()
    return item[1:-1] if len(item) > 1 and item[0] == item[-1] and item[0] in "'\"" else item


def fill(document: Document, variables: Variables) -> Document:
    """Replace the variables of a document; each one that is not set is a problem."""
    filler = _Filler(document, variables, list(document.problems))
    data = {key: filler.value(value, (key,)) for key, value in document.data.items()}
    return Document(
        name=document.name,
        data=data,
        positions=document.positions,
        problems=filler.problems,
        referenced=document.referenced,
    )


@dataclass(slots=True)
class _Filler:
    document: Document
    variables: Variables
    problems: list[Problem]

    def value(self, value: Data, path: Path) -> Data:
        if isinstance(value, dict):
            return {key: self.value(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, (*path, i)) for i, inner in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return _PLACEHOLDER.sub(lambda found: self._one(found, path), value)
        return value

    def _one(self, found: re.Match[str], path: Path) -> str:
        name, default = found.group(1), found.group(2)
        text = self.variables.text(name)
        # A default overrides an empty -i value, as in SeaTunnel.
        if text or (text is not None and default is None):
            return text
        if default is not None and not is_placeholder(name):
            return default.strip()
        if (
            not is_placeholder(name)
            and _NAME.fullmatch(name)
            and _TEMPLATE_OPTIONS.isdisjoint(path)
        ):
            self._missing(name, path)
        return found.group()

    def _missing(self, name: str, path: Path) -> None:
        problem = Problem(
            kind=ProblemKind.OPTION,
            message=(
                f"the variable {name} is not set: set it with -i {name}=... or in the environment,"
                f" or write ${{{name}:default}}"
            ),
            at=self.document.at(path),
            path=path_text(path),
        )
        if problem not in self.problems:
            self.problems.append(problem)
