"""Check that a target's table stores rows without loss: types, keys, names, unique indexes.

Reports all problems of a table at once. Called once for each table by writer.py, before it stages
the first rows, and by committer.py, before it merges them. Users can allow each class of problems
with an option.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.connectors.jdbc.value_checks import ColumnCheck, ValueChecks
from tidegate.databases.catalog import NativeColumn
from tidegate.databases.targets.rules import TargetRules, TargetTable
from tidegate.databases.targets.type_fit import CheckKind, ValueCheck, check_fit
from tidegate.model.errors import UserError
from tidegate.model.types import TypeName
from tidegate.plugin.option import Values


class TargetUnfit(UserError):
    """A table of the target would round, truncate or merge rows."""

    condition = "target-unfit"

    def __init__(self, path: str, target: str, problems: list[str]) -> None:
        text = "; ".join(problems)
        super().__init__(f"the sink's table {target} cannot store the rows of {path}: {text}")
        self.path = path
        self.target = target
        self.problems = problems


@dataclass(frozen=True, slots=True)
class TargetFit:
    """A target that stores all rows whose values pass the checks."""

    relation: TargetTable
    checks: ValueChecks


def check_target(
    path: str, target: JdbcTarget, relation: TargetTable, rules: TargetRules, values: Values
) -> TargetFit:
    """Compare a target with an incoming table; raises TargetUnfit with all problems."""
    if relation.kind:
        raise TargetUnfit(
            path,
            target.name.path,
            [f"it is a {relation.kind}: name a table, or use `query`"],
        )
    natives = [relation.info.column(column.name) for column in target.columns]
    problems: list[str] = []
    checks: list[ColumnCheck] = []
    for number, native in enumerate(natives):
        if native is not None and not values["allow_lossy_types"]:
            problems += _type_problems(target, number, native, rules, checks)
    if not values["allow_merged_keys"]:
        problems += _key_problems(target, natives, relation, rules)
    if problems:
        raise TargetUnfit(path, target.name.path, problems)
    padded = (
        ()
        if values["allow_merged_keys"]
        else tuple(
            n for n in target.positions(target.key) if _pads_blanks(target, n, natives[n], rules)
        )
    )
    return TargetFit(relation, ValueChecks(target, rules, tuple(checks), padded))


def _type_problems(
    target: JdbcTarget,
    number: int,
    native: NativeColumn,
    rules: TargetRules,
    checks: list[ColumnCheck],
) -> Iterator[str]:
    column, origin = target.columns[number], target.origins.get(target.columns[number].name)
    found = check_fit(column.type, rules.capacity(native), origin.fraction if origin else None)
    if found.refusal:
        yield (
            f"column {column.name!r} is {origin.native if origin else column.type} and would become"
            f" {native.native}: {found.refusal} (allow_lossy_types = true allows that)"
        )
    if not native.nullable and not native.generated:
        checks.append(ColumnCheck(number, ValueCheck(CheckKind.NOT_NULL), native.native))
    if found.check is not None:
        checks.append(ColumnCheck(number, found.check, native.native))


def _key_problems(
    target: JdbcTarget,
    natives: list[NativeColumn | None],
    relation: TargetTable,
    rules: TargetRules,
) -> Iterator[str]:
    for number in target.positions(target.key):
        column, native = target.columns[number], natives[number]
        if native is None or column.type.name is not TypeName.STRING:
            continue
        why = rules.why_keys_merge(native, target.origins.get(column.name))
        if not why and native.name in relation.merging_columns:
            why = "its collation ignores case, accents or blanks"
        if why:
            yield (
                f"column {column.name!r} is part of the key, and {why}: keys that differ at the"
                " source would be one row (allow_merged_keys = true allows that)"
            )


def _pads_blanks(
    target: JdbcTarget, number: int, native: NativeColumn | None, rules: TargetRules
) -> bool:
    column = target.columns[number]
    origin = target.origins.get(column.name)
    if (
        native is None
        or column.type.name is not TypeName.STRING
        or (origin is not None and origin.collation == native.collation)
    ):
        return False
    return rules.ignores_trailing_blanks(native, origin)


class NameUnfit(UserError):
    """A name that is too long for the target, or two names that are equal there."""

    condition = "name-unfit"


def check_names(path: str, target: JdbcTarget, rules: TargetRules) -> None:
    """Check names against the target's limits; raises NameUnfit with all problems."""
    problems = []
    for what, name in [
        ("the table", target.name.table),
        ("its schema", target.name.schema),
        ("its database", target.name.database),
    ]:
        if rules.too_long(name):
            problems.append(f"the name of {what} {name!r} is too long")
    problems += [
        f"the name of column {column.name!r} is too long"
        for column in target.columns
        if rules.too_long(column.name)
    ]
    if problems:
        problems.append(
            f"the target supports names of at most {rules.names_max} {rules.names_unit}: choose"
            " others with `table`, TableRename or FieldRename"
        )
    seen: dict[str, str] = {}
    for column in target.columns:
        other = seen.setdefault(
            column.name.lower() if rules.ignores_column_case else column.name, column.name
        )
        if other is not column.name:
            problems.append(
                f"the columns {other!r} and {column.name!r} are the same there: rename one with"
                " FieldRename or FieldMapper"
            )
    if problems:
        raise NameUnfit(
            f"the target {target.name} of {path} cannot be written: {'; '.join(problems)}"
        )


class SharedTable(UserError):
    """Several incoming tables have the same table of the target."""

    condition = "shared-table"

    def __init__(self, shared: Sequence[tuple[str, str, str]]) -> None:
        text = "; ".join(
            f"{first} and {second} are both written to {name}" for name, first, second in shared
        )
        super().__init__(
            f"{text}: rows with the same key would replace each other. Give each its own table,"
            " with ${database_name} or ${schema_name} in `table`, or allow it with"
            " allow_shared_table = true"
        )
        self.shared = shared
