"""SeaTunnel's functions on numbers, as Spark SQL."""

from tidegate.connectors.sql.call import Call, function
from tidegate.connectors.sql.convert import as_double, as_exact, raise_if
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import DOUBLE, FLOATING, INT, WHOLE, Typed, spark_type
from tidegate.model.types import TypeName

_PLAIN = "ACOS ASIN ATAN COS COSH SIN SINH TAN TANH EXP RADIANS SQRT"


@function(_PLAIN, 1)
def plain(call: Call) -> Typed:
    return Typed(f"{call.name.lower()}({call.double(0)})", DOUBLE)


@function("COT", 1)
def cot(call: Call) -> Typed:
    return Typed(
        raise_if(f"tan({call.double(0)}) = 0", "COT: division by zero", f"cot({call.double(0)})"),
        DOUBLE,
    )


@function("ATAN2", 2)
def atan2(call: Call) -> Typed:
    return Typed(f"atan2({call.double(0)}, {call.double(1)})", DOUBLE)


@function("LN", 1)
def ln(call: Call) -> Typed:
    return Typed(_positive(call, 0, f"ln({call.double(0)})"), DOUBLE)


@function("LOG10", 1)
def log10(call: Call) -> Typed:
    return Typed(_positive(call, 0, f"log10({call.double(0)})"), DOUBLE)


@function("LOG", 1, 2)
def log(call: Call) -> Typed:
    if len(call.args) == 1:
        return ln(call)
    base = call.double(0)
    value = f"IF({base} = 10, log10({call.double(1)}), log({base}, {call.double(1)}))"
    return Typed(_positive(call, 0, _positive(call, 1, value)), DOUBLE)


def _positive(call: Call, index: int, otherwise: str) -> str:
    return raise_if(
        f"{call.double(index)} <= 0", f"{call.name} takes only numbers above 0", otherwise
    )


@function("PI", 0)
def pi(_: Call) -> Typed:
    return Typed("pi()", DOUBLE)


@function("POWER POW", 2)
def power(call: Call) -> Typed:
    return Typed(f"power({call.double(0)}, {call.double(1)})", DOUBLE)


@function("ABS", 1)
def absolute(call: Call) -> Typed:
    return Typed(f"abs({call.sql(0)})", call.args[0].type)


@function("MOD", 2)
def mod(call: Call) -> Typed:
    """Has the type of the divisor; floating numbers are exact decimals (mod(13, 5.4) is 2.2)."""
    dividend, divisor = call.args
    if divisor.type is None or dividend.type is None:
        return Typed(f"mod({dividend.sql}, {divisor.sql})", None)
    rest = f"{dividend.sql} % {divisor.sql}"
    if dividend.among(FLOATING) or divisor.among(FLOATING):
        exact = f"CAST({as_exact(dividend)} % {as_exact(divisor)} AS DOUBLE)"
        rest = raise_if(
            f"{divisor.sql} = 0",
            "MOD by zero",
            f"coalesce({exact}, {as_double(dividend)} % {as_double(divisor)})",
        )
    return Typed(f"CAST({rest} AS {spark_type(divisor.type)})", divisor.type)


@function("CEIL CEILING", 1, 2)
def ceil(call: Call) -> Typed:
    return Typed(f"CAST(ceil({call.sql(0)}{_digits(call)}) AS INT)", INT)


@function("FLOOR", 1, 2)
def floor(call: Call) -> Typed:
    return Typed(f"CAST(floor({call.sql(0)}{_digits(call)}) AS INT)", INT)


@function("ROUND", 1, 2)
def round_(call: Call) -> Typed:
    kind = call.args[0].type
    if kind is None:
        return Typed(f"round({call.sql(0)}{_digits(call)})", None)
    return Typed(f"CAST(round({call.sql(0)}{_digits(call)}) AS {spark_type(kind)})", kind)


def _digits(call: Call) -> str:
    """The number of decimal places; a constant, because Spark needs it for planning."""
    if not call.has_argument(1):
        return ""
    if call.constant(1) is None:
        raise SqlError(f"{call.name}: the number of digits must be a constant")
    return f", {call.constant(1)}"


@function("TRUNC TRUNCATE", 1, 2)
def trunc(call: Call) -> Typed:
    value, digits = call.args[0], _digits(call) or ", 0"
    exact = as_exact(value)
    cut = f"IF({value.sql} < 0, ceil({exact}{digits}), floor({exact}{digits}))"
    return Typed(f"coalesce(CAST({cut} AS DOUBLE), {as_double(value)})", DOUBLE)


@function("TRIM_SCALE", 1)
def trim_scale(call: Call) -> Typed:
    return call.args[0]  # a column has one scale: there is nothing to trim


@function("SIGN", 1)
def sign(call: Call) -> Typed:
    value = call.args[0]
    if value.among(WHOLE) or (value.type is not None and value.type.name is TypeName.DECIMAL):
        return Typed(f"coalesce(CAST(sign({value.sql}) AS INT), 0)", INT)  # NULL has the sign 0
    return Typed(
        f"CASE WHEN isnan({as_double(value)}) THEN 0 WHEN {value.sql} > 0 THEN 1 WHEN {value.sql} <"
        " 0 THEN -1 ELSE 0 END",
        INT,
    )


@function("RAND RANDOM", 0, 1)
def rand(call: Call) -> Typed:
    """Without a seed any number; with one, always the first number of Java's Random(seed)."""
    if not call.has_argument(0):
        return Typed("rand()", DOUBLE)
    seed = call.constant(0)
    if seed is None:
        raise SqlError(f"{call.name}: the seed must be a constant")
    return Typed(f"{_java_random(seed)!r}D", DOUBLE)


def _java_random(seed: int) -> float:
    state = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)
    parts = []
    for bits in (26, 27):
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        parts.append(state >> (48 - bits))
    return ((parts[0] << 27) + parts[1]) / float(1 << 53)
