"""The words of a sink's options that stand for the table that comes to it: `${database_name}`,
`${table_name:default}`. Pure; called by sinks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.model.types import Table

WORD = re.compile(
    r"\$\{(database_name|schema_name|table_name|schema_full_name|table_full_name|primary_key|unique_key|field_names|comment|partition_keys)(?::([^}]*))?\}"
)

NAME_PARTS = "name-parts"
"""The key in Table.options under which a source leaves the parts of a path where one of them has a
dot in it. They count while the path is theirs.
"""


def table_words(table: Table, dot: str = ".") -> dict[str, str]:
    """What the placeholders stand for; those that a table has nothing for are left out.

    `dot` is written for a dot within a name.
    """
    known = [str(part) for part in table.options.get(NAME_PARTS, ())]
    parts = (
        [part.replace(".", dot) for part in known]
        if ".".join(known) == table.path
        else table.path.split(".")
    )
    words = {
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
    return {word: text for word, text in words.items() if text}


def for_table(text: str, words: Mapping[str, str], change: Callable[[str], str] = str) -> str:
    """A text with its placeholders replaced: by the table's, else by their default, each changed by
    `change`; else left as they are.
    """

    def word(match: re.Match[str]) -> str:
        found: str | None = (
            words.get(match[1]) or match[2]
        )  # the group of the default is None where there is none
        return str(match[0]) if found is None else change(found)

    return WORD.sub(word, text)


def list_for_table(items: Sequence[Any] | None, words: Mapping[str, str]) -> list[str]:
    """A list of names; a single placeholder in it stands for all names that it has."""
    texts = [str(item) for item in items or ()]
    if len(texts) == 1 and WORD.fullmatch(texts[0].strip()):
        return [
            part
            for part in for_table(texts[0].strip(), words).split(",")
            if part and not WORD.search(part)
        ]
    return [for_table(text, words) for text in texts]


def has_placeholder(text: str) -> bool:
    """Whether a text depends on the table."""
    return WORD.search(text) is not None
