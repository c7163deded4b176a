"""Selects the rules of a transform block for each table.

Implements the keys `table_match_regex`, `table_transform` and `rule_match_mode`. Called by the
transforms, in options.py (declaration and check) and where they run. Knows no transform: a rule is
the block's own options, read again from an entry of `table_transform`. A table without a rule
passes unchanged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.model.problem import Location, Problem
from tidegate.model.types import Table
from tidegate.plugin.javaregex import compile_for_names, name_pattern_error
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values

MULTI_TABLE = (
    Option(
        "table_match_regex",
        OptionKind.TEXT,
        "The tables that this block transforms: a regular expression for the whole path of a"
        " table.",
        default=".*",
    ),
    Option(
        "table_transform",
        OptionKind.LIST,
        "Rules for single tables, each with table_path and the options of this transform; they take"
        " precedence over those of the block.",
    ),
    Option(
        "rule_match_mode",
        OptionKind.ENUM,
        "How several table_transform entries with the same table_path are applied; without this"
        " option they are an error.",
        choices=("FIRST_MATCH", "ALL_MATCH"),
    ),
)

Check = Callable[[Block, Values], Iterable[Problem]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSet:
    """The options of a transform, read as rules.

    A rule needs all of `required` and at least one of `any_of` (which `check` reports). A block
    that has only `table_transform` needs none of them. If neither is declared, every block is a
    rule.
    """

    options: OptionSet
    required: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    check: Check | None = None

    def problems(self, block: Block, values: Values) -> Iterator[Problem]:
        """Yield the problems of the block's own rule and of every entry of `table_transform`."""
        entries = values["table_transform"]
        deciding = (*self.required, *self.any_of)
        if entries is None or not deciding or any(values[key] is not None for key in deciding):
            yield from self._rule_problems(block, values)
        yield from _pattern_problem(block, values)
        seen: set[str] = set()
        for index, entry in enumerate(entries or ()):
            yield from self._entry_problems(block, values, index, entry, seen)

    def _entry_problems(
        self, block: Block, values: Values, index: int, entry: Any, seen: set[str]
    ) -> Iterator[Problem]:
        path = ("table_transform", index)
        if not isinstance(entry, Mapping) or not entry.get("table_path"):
            yield block.problem(
                path,
                "an entry of table_transform is a block { table_path = ..., and the options for"
                " that table }",
            )
            return
        inside = block.inside(path, entry)
        own, problems = self.options.read(inside, also=("table_path",))
        yield from problems
        yield from self._rule_problems(inside, own)
        if str(entry["table_path"]) in seen and values["rule_match_mode"] is None:
            yield inside.problem(
                ("table_path",),
                f"{entry['table_path']} has two rules: set rule_match_mode to FIRST_MATCH or"
                " ALL_MATCH",
            )
        seen.add(str(entry["table_path"]))

    def _rule_problems(self, block: Block, values: Values) -> Iterator[Problem]:
        options = {option.key: option for option in self.options.options}
        lacking = [key for key in self.required if values[key] is None]
        for key in lacking:
            yield block.problem(
                (), f"{key} is missing: {options[key].description}", expected=options[key].expected
            )
        if not lacking and self.check:
            yield from self.check(block, values)

    def all_rules(self, values: Values) -> list[Values]:
        """Every complete rule of the block, for any table.

        Incomplete entries are left out: `problems` reports them.
        """
        entries = [
            self._read(entry)
            for entry in values.get("table_transform") or ()
            if isinstance(entry, Mapping)
        ]
        return [
            rule
            for rule in (values, *entries)
            if all(rule.get(key) is not None for key in self.required)
        ]

    def _read(self, entry: Mapping[str, Any]) -> Values:
        return self.options.read(Block(entry, lambda _: Location(""), ""))[0]

    def rules(self, values: Values, table: Table) -> list[Values]:
        """The rules for a table, in the order of application; empty: it passes unchanged."""
        entries = [
            e for e in values.get("table_transform") or () if str(e["table_path"]) == table.path
        ]
        if entries:
            own = entries if values.get("rule_match_mode") == "ALL_MATCH" else entries[:1]
            return [self._read(entry) for entry in own]
        if any(values.get(key) is None for key in self.required) or (
            self.any_of and all(values.get(key) is None for key in self.any_of)
        ):
            return []
        return (
            [values]
            if compile_for_names(values.get("table_match_regex") or ".*").fullmatch(table.path)
            else []
        )


def _pattern_problem(block: Block, values: Values) -> Iterator[Problem]:
    wrong = name_pattern_error(values["table_match_regex"])
    if wrong:
        yield block.problem(("table_match_regex",), wrong)
