"""SeaTunnel's functions on conditions, arrays, maps, JSON and vectors, and encryption."""

from tidegate.connectors.sql.call import MANY, Call, function
from tidegate.connectors.sql.convert import as_text, coerce_to
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import (
    BIGINT,
    DOUBLE,
    FLOATING,
    INT,
    NULL,
    SMALL,
    STRING,
    Typed,
    common_type,
    spark_type,
    text,
)
from tidegate.model.problem import closest_match
from tidegate.model.types import DataType, TypeName


@function("COALESCE", 1, MANY)
def coalesce(call: Call) -> Typed:
    """Has the type of the first argument that is not NULL; the others are converted to it."""
    kind = next((a.type for a in call.args if not a.is_a(NULL)), NULL)
    return Typed(f"coalesce({', '.join(coerce_to(a, kind) for a in call.args)})", kind)


@function("IFNULL", 2)
def ifnull(call: Call) -> Typed:
    return coalesce(call)


@function("NULLIF", 2)
def nullif(call: Call) -> Typed:
    return Typed(f"nullif({call.sql(0)}, {call.sql(1)})", call.args[0].type)


@function("MULTI_IF", 3, MANY)
def multi_if(call: Call) -> Typed:
    if len(call.args) % 2 == 0:
        raise SqlError("MULTI_IF takes pairs of condition and value, and one value for the rest")
    conditions, values = call.args[:-1:2], [*call.args[1::2], call.args[-1]]
    return case([(c.sql, v) for c, v in zip(conditions, values[:-1], strict=True)], values[-1])


def case(branches: list[tuple[str, Typed]], otherwise: Typed | None, subject: str = "") -> Typed:
    """Write a CASE and convert all branches to a common type."""
    kind = branches[0][1].type
    for value in (*(v for _, v in branches[1:]), *([otherwise] if otherwise else [])):
        kind = common_type(kind, value.type)
    whens = " ".join(
        f"WHEN {condition} THEN {coerce_to(value, kind)}" for condition, value in branches
    )
    rest = f" ELSE {coerce_to(otherwise, kind)}" if otherwise else ""
    return Typed(f"CASE {subject} {whens}{rest} END", kind)


@function("UUID", 0)
def uuid(_: Call) -> Typed:
    return Typed("uuid()", STRING)


@function("ARRAY", 0, MANY)
def array(call: Call) -> Typed:
    kind = _element(call.args)
    elements = ", ".join(as_text(a) if kind == STRING else coerce_to(a, kind) for a in call.args)
    return Typed(
        f"array({elements})", None if kind is None else DataType(TypeName.ARRAY, children=(kind,))
    )


def _element(args: tuple[Typed, ...]) -> DataType | None:
    """The common element type: text before numbers, floating before whole numbers."""
    if not args:
        return STRING
    if any(a.is_a(STRING) for a in args):
        return STRING
    if any(a.among(FLOATING) for a in args):
        return DOUBLE
    if all(a.among(SMALL) or a.is_a(NULL) for a in args):
        return INT if len({a.type for a in args}) > 1 else args[0].type
    if all(a.among(SMALL) or a.is_a(BIGINT, NULL) for a in args):
        return BIGINT
    kinds = {a.type for a in args}
    return kinds.pop() if len(kinds) == 1 else None


@function("MAP", 2, MANY)
def map_(call: Call) -> Typed:
    if len(call.args) % 2:
        raise SqlError("MAP takes pairs of key and value")
    values = call.args[1::2]
    kind = _element(values)
    pairs = ", ".join(
        f"{as_text(k)}, {as_text(v) if kind == STRING else coerce_to(v, kind)}"
        for k, v in zip(call.args[::2], values, strict=True)
    )
    return Typed(
        f"map({pairs})", None if kind is None else DataType(TypeName.MAP, children=(STRING, kind))
    )


@function("ARRAY_MAX ARRAY_MIN", 1)
def array_end(call: Call) -> Typed:
    kind = call.args[0].type
    return Typed(
        f"{call.name.lower()}({call.sql(0)})",
        kind.children[0] if kind is not None and kind.name is TypeName.ARRAY else None,
    )


@function("GET_JSON_OBJECT", 2)
def get_json_object(call: Call) -> Typed:
    return Typed(f"get_json_object({call.text(0)}, {call.text(1)})", STRING)


@function("DES_ENCRYPT DES_DECRYPT", 2)
def des(call: Call) -> Typed:
    return Typed(f"tidegate_{call.name.lower()}({call.text(0)}, {call.text(1)})", STRING)


@function("AES_ENCRYPT", 2, 3)
def aes_encrypt(call: Call) -> Typed:
    """AES-CBC with PKCS padding, as base64; starts with the vector unless the query passes one."""
    source, key = call.text(0), _aes_key(call)
    if len(call.args) == 2:
        return Typed(f"base64(aes_encrypt({source}, {key}, 'CBC', 'PKCS'))", STRING)
    return Typed(
        f"base64(substring(aes_encrypt({source}, {key}, 'CBC', 'PKCS', CAST({call.text(2)} AS"
        " BINARY)), 17))",
        STRING,
    )


@function("AES_DECRYPT", 2, 3)
def aes_decrypt(call: Call) -> Typed:
    payload = f"unbase64({call.text(0)})"
    if len(call.args) == 3:
        payload = f"concat(CAST({call.text(2)} AS BINARY), {payload})"
    return Typed(f"CAST(aes_decrypt({payload}, {_aes_key(call)}, 'CBC', 'PKCS') AS STRING)", STRING)


def _aes_key(call: Call) -> str:
    """The key: `base64:` and the key itself, or a pass phrase to hash."""
    if len(call.args) == 3 and call.args[2].is_a(NULL):
        raise SqlError(f"{call.name}: the vector is NULL; leave it out instead")
    key = call.text(1)
    return (
        f"IF(startswith({key}, {text('base64:')}), unbase64(substring({key}, 8)),"
        f" unhex(left(sha2({key}, 256), 32)))"
    )


def _sum(elements: str) -> str:
    return f"aggregate({elements}, 0D, (total, x) -> total + x)"


@function("VECTOR_DIMS", 1)
def vector_dims(call: Call) -> Typed:
    return Typed(f"IF({call.sql(0)} IS NULL, NULL, size({call.sql(0)}))", INT)


@function("VECTOR_NORM", 1)
def vector_norm(call: Call) -> Typed:
    return Typed(_norm(call.sql(0)), DOUBLE)


def _norm(vector: str) -> str:
    return f"sqrt({_sum(f'transform({vector}, x -> CAST(x AS DOUBLE) * x)')})"


def _inner(left: str, right: str) -> str:
    return _sum(f"zip_with({left}, {right}, (a, b) -> CAST(a AS DOUBLE) * b)")


@function("INNER_PRODUCT", 2)
def inner_product(call: Call) -> Typed:
    return Typed(_inner(call.sql(0), call.sql(1)), DOUBLE)


@function("COSINE_DISTANCE", 2)
def cosine_distance(call: Call) -> Typed:
    left, right = call.sql(0), call.sql(1)
    return Typed(
        f"(1D - try_divide({_inner(left, right)}, {_norm(left)} * {_norm(right)}))", DOUBLE
    )


@function("L1_DISTANCE", 2)
def l1_distance(call: Call) -> Typed:
    return Typed(
        _sum(f"zip_with({call.sql(0)}, {call.sql(1)}, (a, b) -> abs(CAST(a AS DOUBLE) - b))"),
        DOUBLE,
    )


@function("L2_DISTANCE", 2)
def l2_distance(call: Call) -> Typed:
    difference = "(a, b) -> power(CAST(a AS DOUBLE) - b, 2D)"
    squares = f"zip_with({call.sql(0)}, {call.sql(1)}, {difference})"
    return Typed(f"sqrt({_sum(squares)})", DOUBLE)


@function("VECTOR_NORMALIZE", 1)
def vector_normalize(call: Call) -> Typed:
    vector = call.sql(0)
    return Typed(
        f"IF({_norm(vector)} = 0, {vector}, transform({vector}, x -> CAST(x / {_norm(vector)} AS"
        " FLOAT)))",
        call.args[0].type,
    )


_VECTORS = (
    TypeName.ARRAY,
    TypeName.FLOAT_VECTOR,
    TypeName.FLOAT16_VECTOR,
    TypeName.BFLOAT16_VECTOR,
)
PROJECTIONS = ("RANDOM_PROJECTION", "SPARSE_RANDOM_PROJECTION")


@function("VECTOR_REDUCE", 3)
def vector_reduce(call: Call) -> Typed:
    """Truncates the vector, or applies a random projection (projection.py)."""
    method, kind = call.keyword(2, "").upper(), call.args[0].type
    if method not in ("TRUNCATE", *PROJECTIONS):
        close = closest_match(method, ["TRUNCATE", *PROJECTIONS])
        raise SqlError(
            f"VECTOR_REDUCE has no method {method}: use TRUNCATE, {' or '.join(PROJECTIONS)}",
            suggestion=close,
        )
    if kind is not None and kind.name not in _VECTORS:
        raise SqlError(f"VECTOR_REDUCE takes a vector of numbers, and {call.sql(0)} is a {kind}")
    size = call.constant(1)
    if size is not None and size < 1:
        raise SqlError(f"VECTOR_REDUCE: the target dimension is {size}, and must be at least 1")
    if method == "TRUNCATE":
        return Typed(f"slice({call.sql(0)}, 1, {call.sql(1)})", kind)
    whole = kind is None or (kind.name is TypeName.ARRAY and kind.children[0].name not in FLOATING)
    made = (
        DataType(TypeName.ARRAY, children=(DataType(TypeName.FLOAT),))
        if whole or kind is None
        else kind
    )
    wide = f"CAST({call.sql(0)} AS ARRAY<DOUBLE>), CAST({call.sql(1)} AS INT)"
    return Typed(
        f"CAST(tidegate_vector_reduce({wide}, {text(method)}) AS {spark_type(made)})", made
    )
