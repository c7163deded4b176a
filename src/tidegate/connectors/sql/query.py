"""Translates a query to operations of Spark: LATERAL VIEW, WHERE and SELECT expressions.

Called by options.py (without a table, to validate the query), by transform.py, and by the planner
for the columns that a query needs. Pure.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from tidegate.connectors.sql.dialect import parse_select, sql_of
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.scope import Scope
from tidegate.connectors.sql.translate import condition, parts_of, translate
from tidegate.connectors.sql.types import Typed, name
from tidegate.model.types import ROW_KIND, Column, DataType, Table, TypeName

_UNSUPPORTED = {
    "joins": "a join: the Sql transform reads one table",
    "group": "GROUP BY: the Sql transform works row by row",
    "having": "HAVING: the Sql transform works row by row",
    "order": "ORDER BY: the rows of a batch have no order",
    "sort": "SORT BY: the rows of a batch have no order",
    "limit": "LIMIT: it would apply to each batch separately",
    "offset": "OFFSET: it would apply to each batch separately",
    "distinct": "DISTINCT: the Sql transform works row by row",
    "qualify": "QUALIFY: the Sql transform works row by row",
    "windows": "WINDOW: the Sql transform works row by row",
    "with_": "WITH: the Sql transform reads one table",
    "into": "INTO: rows are written by the sinks of the job",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """An output column. `source` is the input column if the expression is only its name."""

    name: str
    value: Typed
    source: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """A query translated for one table.

    `explodes` and `selects` are arguments of DataFrame.selectExpr, applied before and after
    `where`.
    """

    explodes: tuple[tuple[str, ...], ...]
    where: str | None
    selects: tuple[str, ...]
    table: Table | None  # None: only Spark knows some type
    used: frozenset[str] | None  # None: all columns


@lru_cache(maxsize=256)
def parsed(query: str) -> exp.Select:
    """Parse a query and reject clauses that do not work row by row."""
    select = parse_select(query)
    for key, what in _UNSUPPORTED.items():
        if select.args.get(key):
            raise SqlError(f"the query has {what}")
    source = select.args.get("from_")
    if source is not None and not isinstance(source.this, exp.Table):
        inner = isinstance(source.this, exp.Subquery | exp.Select)
        what = (
            "the query reads from an inner query" if inner else f"{sql_of(source)} names no table"
        )
        raise SqlError(f"{what}: the Sql transform reads one table")
    return select


def translate_query(query: str, table: Table | None) -> Translation:
    """Translate a query for a table; without a table, only validate it."""
    select = parsed(query)
    scope = Scope.of(table, _table_names(select))
    columns = None if table is None else list(table.columns)
    explodes = []
    for lateral in select.args.get("laterals") or ():
        columns, scope, step = _explode(
            lateral, columns, scope, kinds=table is not None and table.kinds
        )
        explodes.append(step)
    where = select.args.get("where")
    kept = condition(where.this, scope) if where else None
    named = replace(scope, used=set())
    outputs = [output for item in select.expressions for output in _outputs(item, columns, named)]
    scope.used.update(named.used)
    whole = any(_is_star(item) for item in select.expressions)
    if not whole and table is not None:
        outputs += _unnamed(select, columns or [], named.used | {output.name for output in outputs})
    _check_names(outputs)
    selects = [f"{o.value.sql} AS {name(o.name)}" for o in outputs]
    if table is not None and table.kinds:
        selects.append(name(ROW_KIND))
    return Translation(
        explodes=tuple(explodes),
        where=kept,
        selects=tuple(selects),
        table=None if table is None else _output_table(table, columns or [], outputs),
        used=None if whole or table is None else frozenset(scope.used) & frozenset(table.names()),
    )


def _table_names(select: exp.Select) -> frozenset[str]:
    source = select.args.get("from_")
    if source is None:
        return frozenset()
    return frozenset({source.this.name.lower(), source.this.alias_or_name.lower()})


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (
        isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    )


def _outputs(item: exp.Expr, columns: list[Column] | None, scope: Scope) -> list[Output]:
    if _is_star(item):
        return [
            Output(name=c.name, value=Typed(name(c.name), c.type), source=c.name)
            for c in columns or ()
        ]
    inside = item.this if isinstance(item, exp.Alias) else item
    value = translate(inside, scope)
    parts = parts_of(inside)
    source = (
        parts[-1] if parts and scope.columns is not None and name(parts[-1]) == value.sql else None
    )
    default = parts[-1] if parts else sql_of(inside)
    called = item.alias if isinstance(item, exp.Alias) else default
    return [Output(name=called, value=value, source=source)]


def _unnamed(select: exp.Select, columns: list[Column], named: set[str]) -> list[Output]:
    """The columns of lateral views that SELECT does not name; they are last, as in SeaTunnel."""
    laterals = select.args.get("laterals") or ()
    made = {c.name for lateral in laterals for c in lateral.args["alias"].args.get("columns") or ()}
    return [
        Output(name=c.name, value=Typed(name(c.name), c.type), source=c.name)
        for c in columns
        if c.name in made and c.name not in named
    ]


def _check_names(outputs: list[Output]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            raise SqlError(
                f"two columns are called {output.name}: give one of them another name with AS"
            )
        seen.add(output.name.lower())


def _output_table(table: Table, columns: list[Column], outputs: list[Output]) -> Table | None:
    inputs = {c.name: c for c in columns}
    result: list[Column] = []
    for output in outputs:
        kind = output.value.type
        if kind is None:
            return None
        if output.source in inputs:
            result.append(replace(inputs[output.source], name=output.name))
        else:
            result.append(Column(name=output.name, type=kind))
    names = {c.name for c in result}
    return replace(
        table,
        columns=tuple(result),
        primary_key=table.primary_key if names.issuperset(table.primary_key) else (),
        unique_key=table.unique_key if names.issuperset(table.unique_key) else (),
        partition_keys=tuple(k for k in table.partition_keys if k in names),
    )


def _generator(value: Typed, *, outer: bool) -> str:
    """Explode as SeaTunnel does: without OUTER, elements that are NULL are left out."""
    if value.type is not None and value.type.name is not TypeName.ARRAY:
        raise SqlError(f"EXPLODE takes an array, and {value.sql} is a {value.type}")
    return f"explode_outer({value.sql})" if outer else f"explode(array_compact({value.sql}))"


def _explode(
    lateral: exp.Expr, columns: list[Column] | None, scope: Scope, *, kinds: bool
) -> tuple[list[Column] | None, Scope, tuple[str, ...]]:
    """Translate LATERAL VIEW [OUTER] EXPLODE(array) AS column.

    The column replaces one of the same name, else it is appended.
    """
    call, alias = lateral.this, lateral.args.get("alias")
    named = [c.name for c in alias.args.get("columns") or ()] if alias else []
    if not (
        isinstance(call, exp.Anonymous)
        and call.name.lower() == "explode"
        and len(call.expressions) == 1
        and len(named) == 1
    ):
        raise SqlError(
            f"{sql_of(lateral).strip()}: write LATERAL VIEW [OUTER] EXPLODE(array) AS column"
        )
    value = translate(call.expressions[0], scope)
    element = (
        value.type.children[0]
        if value.type is not None and value.type.name is TypeName.ARRAY
        else None
    )
    sql = f"{_generator(value, outer=bool(lateral.args.get('outer')))} AS {name(named[0])}"
    if columns is None:
        return None, scope, (sql,)
    known: DataType = element or DataType(TypeName.STRING)
    made = Column(name=named[0], type=known)
    after = (
        [made if c.name == made.name else c for c in columns]
        if any(c.name == made.name for c in columns)
        else [*columns, made]
    )
    step = tuple(sql if c.name == made.name else name(c.name) for c in after)
    return (
        after,
        replace(scope, columns={c.name: c.type for c in after}),
        (*step, name(ROW_KIND)) if kinds else step,
    )
