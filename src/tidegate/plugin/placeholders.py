"""Replaces placeholders for the input table in the options of sinks.

For example `${database_name}` and `${table_name:default}`. Pure; called by sinks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.model.types import Table

PLACEHOLDER = re.compile(
    r"\$\{(database_name|schema_name|table_name|schema_full_name|table_full_name"
    r"|primary_key|unique_key|field_names|comment|partition_keys)(?::([^}]*))?\}"
)

NAME_PARTS = "name-parts"
"""The key in Table.options for the parts of a table path, set by a source if a part contains a dot.

It is ignored if the path of the table has changed since.
"""


def placeholder_values(table: Table, dot: str = ".") -> dict[str, str]:
    """The values of the placeholders for a table; those without a value are left out.

    `dot` replaces a dot within a name.
    """
    known = [str(part) for part in table.options.get(NAME_PARTS, ())]
    parts = (
        [part.replace(".", dot) for part in known]
        if ".".join(known) == table.path
        else table.path.split(".")
    )
    values = {
        "table_name": parts[-1],
        "database_name": parts[0] if len(parts) > 1 else "",
        "schema_name": parts[1] if len(parts) > 2 else "",
        "schema_full_name": ".".join(parts[:-1]),
        "table_full_name": ".".join(parts),
        "primary_key": ",".join(table.primary_key),
        "unique_key": ",".join(table.unique_key),
        "field_names": ",".join(table.names()),
        "comment": table.comment,
        "partition_keys": ",".join(table.partition_keys),
    }
    return {word: text for word, text in values.items() if text}


def for_table(text: str, values: Mapping[str, str], change: Callable[[str], str] = str) -> str:
    """Replace placeholders by the table's value, else by their default; others stay as they are.

    `change` is applied to each inserted value.
    """

    def replacement(match: re.Match[str]) -> str:
        found: str | None = values.get(match[1]) or match[2]  # None: the placeholder has no default
        return str(match[0]) if found is None else change(found)

    return PLACEHOLDER.sub(replacement, text)


def list_for_table(items: Sequence[Any] | None, values: Mapping[str, str]) -> list[str]:
    """Replace placeholders in a list of names.

    A list of a single placeholder becomes the list of all names in its value.
    """
    texts = [str(item) for item in items or ()]
    if len(texts) == 1 and PLACEHOLDER.fullmatch(texts[0].strip()):
        return [
            part
            for part in for_table(texts[0].strip(), values).split(",")
            if part and not PLACEHOLDER.search(part)
        ]
    return [for_table(text, values) for text in texts]


def has_placeholder(text: str) -> bool:
    """Whether a text contains a placeholder and so depends on the table."""
    return PLACEHOLDER.search(text) is not None
