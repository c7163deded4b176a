"""Translates expressions of a query to typed Spark SQL.

Called by query.py; pure. Expressions not listed in `_NODES` are rejected with a message.
"""

from collections.abc import Callable

from sqlglot import exp

from tidegate.connectors.sql.call import FUNCTIONS
from tidegate.connectors.sql.convert import as_double, as_text, cast
from tidegate.connectors.sql.dialect import sql_of
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.functions import REGEX_FUNCTIONS, SPARK_FUNCTIONS, unavailable_error
from tidegate.connectors.sql.functions_other import case
from tidegate.connectors.sql.functions_text import check_regex
from tidegate.connectors.sql.functions_time import extract
from tidegate.connectors.sql.scope import Scope
from tidegate.connectors.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOATING,
    INT,
    NULL,
    NUMBERS,
    SMALL,
    STRING,
    TIMESTAMP_TZ,
    WHOLE,
    Typed,
    spark_type,
    text,
    type_named,
    wider_decimal,
)
from tidegate.model.types import DataType, TypeName

Node = Callable[[exp.Expr, Scope], Typed]


def translate(node: exp.Expr, scope: Scope) -> Typed:
    for kind, render, known in _NODES:
        if isinstance(node, kind):
            if known != "*" and any(
                value for key, value in node.args.items() if key not in known.split()
            ):
                break  # translating it would silently lose this part
            return render(node, scope)
    raise SqlError(f"{sql_of(node)} is not available in the Sql transform")


def condition(node: exp.Expr, scope: Scope) -> str:
    """Translate the condition of a WHERE; NULL counts as false."""
    return translate(node, scope).sql


def parts_of(node: exp.Expr) -> list[str] | None:
    """The names of `a.b.c`; None for any other expression."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot):
        left = parts_of(node.this)
        return (
            [*left, node.expression.name]
            if left and isinstance(node.expression, exp.Identifier)
            else None
        )
    return [node.name] if isinstance(node, exp.Identifier) else None


def _names(node: exp.Expr, scope: Scope) -> Typed:
    parts = parts_of(node)
    if parts is None or isinstance(node.this, exp.Star):
        raise SqlError(f"{sql_of(node)} is not available in the Sql transform")
    return scope.resolve(parts)


def _literal(node: exp.Expr, _: Scope) -> Typed:
    """Whole numbers are INT or BIGINT, all others DOUBLE: there are no decimal constants."""
    if node.args.get("is_string"):
        return Typed(text(node.name), STRING, node.name)
    if not node.name.isdigit():
        return Typed(f"{node.name}D", DOUBLE, float(node.name))
    value = int(node.name)
    if value >= 2**63:
        raise SqlError(f"{value} does not fit into a BIGINT")
    return Typed(str(value), INT, value) if value < 2**31 else Typed(f"{value}L", BIGINT, value)


def _null(_: exp.Expr, __: Scope) -> Typed:
    return Typed("NULL", NULL)


def _boolean(node: exp.Expr, _: Scope) -> Typed:
    return Typed("true" if node.this else "false", BOOLEAN)


def _paren(node: exp.Expr, scope: Scope) -> Typed:
    inside = translate(node.this, scope)
    return Typed(f"({inside.sql})", inside.type, inside.literal)


def _minus(node: exp.Expr, scope: Scope) -> Typed:
    inside = translate(node.this, scope)
    literal = -inside.literal if isinstance(inside.literal, int | float) else None
    return Typed(f"(-{inside.sql})", inside.type, literal)


def _arithmetic(node: exp.Expr, scope: Scope) -> Typed:
    left, right = translate(node.this, scope), translate(node.expression, scope)
    sign = _SIGNS[type(node)]
    for side in (left, right):
        if side.is_a(STRING, BOOLEAN):
            raise SqlError(f"{sql_of(node)}: {sign} needs numbers, and {side.sql} is a {side.type}")
    kind = _arithmetic_type(left, right)
    if kind is None:
        return Typed(f"({left.sql} {sign} {right.sql})", None)
    if kind == DOUBLE:
        return Typed(_floating(sign, left, right), DOUBLE)
    if kind.name is TypeName.DECIMAL:
        return Typed(_decimal(sign, left, right, kind), kind)
    return Typed(
        f"CAST({left.sql} {'div' if sign == '/' else sign} {right.sql} AS {spark_type(kind)})", kind
    )


def _arithmetic_type(left: Typed, right: Typed) -> DataType | None:
    if (
        left.type is None
        or right.type is None
        or not (left.among(NUMBERS) and right.among(NUMBERS))
    ):
        return None
    if left.among(SMALL) and right.among(SMALL):
        return INT
    if left.among(WHOLE) and right.among(WHOLE):
        return BIGINT
    return (
        wider_decimal(left.type, right.type)
        if TypeName.DECIMAL in (left.type.name, right.type.name)
        else DOUBLE
    )


def _floating(sign: str, left: Typed, right: Typed) -> str:
    a, b = as_double(left), as_double(right)
    plain = f"({a} {sign} {b})"
    if sign not in "/%" or (isinstance(right.literal, int | float) and right.literal):
        return plain
    # The result of Java; Spark would fail the job.
    by_zero = f"{a} * double('Infinity')" if sign == "/" else "double('NaN')"
    return f"IF({b} = 0, {by_zero}, {plain})"


def _decimal(sign: str, left: Typed, right: Typed, kind: DataType) -> str:
    inexact = left.among(FLOATING) or right.among(FLOATING)
    plain = _floating(sign, left, right) if inexact else f"({left.sql} {sign} {right.sql})"
    if sign == "/":  # away from zero
        exact = f"CAST({plain} AS DECIMAL(38,18))" if inexact else plain
        plain = f"IF({exact} < 0, floor({exact}, {kind.scale}), ceil({exact}, {kind.scale}))"
    return f"CAST({plain} AS {spark_type(kind)})"


_SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}


def _joined(node: exp.Expr, scope: Scope) -> Typed:
    return FUNCTIONS["CONCAT"]((translate(node.this, scope), translate(node.expression, scope)))


def _compared(node: exp.Expr, scope: Scope) -> Typed:
    left, right = translate(node.this, scope), translate(node.expression, scope)
    if isinstance(node, exp.RegexpLike):
        check_regex("RLIKE", right.literal)
    return Typed(f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})", BOOLEAN)


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.NullSafeEQ: "<=>",
    exp.RegexpLike: "RLIKE",
}


def _different(node: exp.Expr, scope: Scope) -> Typed:
    # A value and NULL are different; NULL and NULL are equal.
    left, right = translate(node.this, scope), translate(node.expression, scope)
    return Typed(f"(NOT ({left.sql} <=> {right.sql}))", BOOLEAN)


def _like(node: exp.Expr, scope: Scope, escape: str = "") -> Typed:
    word = ("NOT " if node.args.get("negate") else "") + (
        "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    )
    return Typed(
        f"({as_text(translate(node.this, scope))} {word}"
        f" {translate(node.expression, scope).sql}{escape})",
        BOOLEAN,
    )


def _escape(node: exp.Expr, scope: Scope) -> Typed:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise SqlError("ESCAPE belongs to LIKE")
    return _like(node.this, scope, f" ESCAPE {translate(node.expression, scope).sql}")


def _not(node: exp.Expr, scope: Scope) -> Typed:
    inside = node.this
    if isinstance(
        inside, exp.Is | exp.In | exp.Like | exp.ILike | exp.Between | exp.RegexpLike
    ):  # x IS NOT NULL, x NOT IN (...): written as one
        return Typed(f"(NOT {translate(inside, scope).sql})", BOOLEAN)
    return Typed(f"(NOT coalesce({translate(inside, scope).sql}, false))", BOOLEAN)


def _is(node: exp.Expr, scope: Scope) -> Typed:
    left, right = translate(node.this, scope), translate(node.expression, scope)
    return Typed(f"({left.sql} IS {right.sql.upper()})", BOOLEAN)


def _in(node: exp.Expr, scope: Scope) -> Typed:
    if not node.expressions or node.args.get("query"):
        raise SqlError("IN takes a list of values, not a query")
    values = [translate(e, scope) for e in node.expressions]
    given = [v for v in values if not v.is_a(NULL)] or values
    return Typed(
        f"({translate(node.this, scope).sql} IN ({', '.join(v.sql for v in given)}))", BOOLEAN
    )


def _between(node: exp.Expr, scope: Scope) -> Typed:
    value, low, high = (translate(node.args[key], scope).sql for key in ("this", "low", "high"))
    return Typed(f"({value} BETWEEN {low} AND {high})", BOOLEAN)


def _case(node: exp.Expr, scope: Scope) -> Typed:
    subject = translate(node.this, scope).sql if node.this else ""
    branches = [
        (translate(branch.this, scope).sql, translate(branch.args["true"], scope))
        for branch in node.args["ifs"]
    ]
    default = node.args.get("default")
    return case(branches, translate(default, scope) if default else None, subject)


def _if(node: exp.Expr, scope: Scope) -> Typed:
    otherwise = node.args.get("false")
    return case(
        [(translate(node.this, scope).sql, translate(node.args["true"], scope))],
        translate(otherwise, scope) if otherwise else None,
    )


def _cast(node: exp.Expr, scope: Scope) -> Typed:
    to = node.args["to"]
    word = str(to.args["kind"]) if to.this is exp.DType.USERDEFINED else str(to.this.value)
    sizes = [int(param.name) for param in to.expressions if param.name.isdigit()]
    return cast(
        translate(node.this, scope), type_named(word, sizes), safe=isinstance(node, exp.TryCast)
    )


def _extract(node: exp.Expr, scope: Scope) -> Typed:
    return extract(node.this.name, translate(node.expression, scope))


def _zone(node: exp.Expr, scope: Scope) -> Typed:
    value, zone = translate(node.this, scope), translate(node.args["zone"], scope)
    if value.is_a(TIMESTAMP_TZ):
        return value  # the same instant in another time zone
    return Typed(
        f"CAST(convert_timezone({zone.sql}, current_timezone(), CAST({value.sql} AS TIMESTAMP_NTZ))"
        " AS TIMESTAMP)",
        TIMESTAMP_TZ,
    )


def _element(node: exp.Expr, scope: Scope) -> Typed:
    value, index = translate(node.this, scope), translate(node.expressions[0], scope)
    kind = value.type
    if kind is not None and kind.name is TypeName.MAP:
        return Typed(f"try_element_at({value.sql}, {index.sql})", kind.children[1])
    if kind is not None and kind.name is TypeName.ARRAY:
        return Typed(f"get({value.sql}, {index.sql})", kind.children[0])
    return Typed(f"{value.sql}[{index.sql}]", None)


def _lambda(node: exp.Expr, scope: Scope) -> Typed:
    names = [argument.name for argument in node.expressions]
    head = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return Typed(f"{head} -> {translate(node.this, scope.binding(names)).sql}", None)


def _call(node: exp.Expr, scope: Scope) -> Typed:
    name = node.name
    if (
        name.upper() == "POSITION"
        and len(node.expressions) == 1
        and isinstance(node.expressions[0], exp.In)
    ):
        inside = node.expressions[0]  # POSITION('x' IN text)
        return FUNCTIONS["POSITION"](
            (translate(inside.this, scope), translate(inside.args["field"], scope))
        )
    known = FUNCTIONS.get(name.upper())
    if known is None and name.lower() not in SPARK_FUNCTIONS:
        raise unavailable_error(name)
    args = tuple(translate(e, scope) for e in node.expressions)
    if known is None and name.lower() in REGEX_FUNCTIONS and len(args) > 1:
        check_regex(name.upper(), args[1].literal)
    return known(args) if known else Typed(f"{name}({', '.join(a.sql for a in args)})", None)


def _now(node: exp.Expr, _: Scope) -> Typed:
    if isinstance(node, exp.CurrentDate):
        return FUNCTIONS["CURRENT_DATE"](())
    return FUNCTIONS["CURRENT_TIME" if isinstance(node, exp.CurrentTime) else "CURRENT_TIMESTAMP"](
        ()
    )


def _interval(node: exp.Expr, _: Scope) -> Typed:
    return Typed(sql_of(node), None)


def _several_rows(node: exp.Expr, _: Scope) -> Typed:
    raise SqlError(
        f"{sql_of(node)}: the Sql transform works row by row, without windows and inner queries"
    )


_PAIR = "this expression"
_NODES: tuple[
    tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], Node, str], ...
] = (  # kind, translation, the parts that it reads
    ((exp.Column, exp.Dot, exp.Identifier), _names, "this expression table db catalog quoted"),
    (exp.Literal, _literal, "this is_string"),
    (exp.Null, _null, ""),
    (exp.Boolean, _boolean, "this"),
    (exp.Paren, _paren, "this"),
    (exp.Neg, _minus, "this"),
    (tuple(_SIGNS), _arithmetic, _PAIR),
    (exp.DPipe, _joined, f"{_PAIR} safe"),
    (exp.NEQ, _different, _PAIR),
    (tuple(_COMPARISONS), _compared, _PAIR),
    ((exp.Like, exp.ILike), _like, f"{_PAIR} negate"),
    (exp.Escape, _escape, _PAIR),
    (exp.Not, _not, "this"),
    (exp.Is, _is, _PAIR),
    (exp.In, _in, "this expressions query"),
    (exp.Between, _between, "this low high"),
    (exp.Case, _case, "this ifs default"),
    (exp.If, _if, "this true false"),
    ((exp.Cast, exp.TryCast), _cast, "this to safe"),
    (exp.Extract, _extract, _PAIR),
    (exp.AtTimeZone, _zone, "this zone"),
    (exp.Bracket, _element, "this expressions"),
    (exp.Lambda, _lambda, "this expressions"),
    (exp.Anonymous, _call, "this expressions"),
    ((exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp), _now, ""),
    (exp.Interval, _interval, "this unit"),
    ((exp.Window, exp.Select, exp.Subquery, exp.Exists), _several_rows, "*"),
)
