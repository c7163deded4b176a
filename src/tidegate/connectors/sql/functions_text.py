"""SeaTunnel's functions on text, as Spark SQL.

Positions count from 1. The result of NULL is NULL, except where noted.
"""

from tidegate.connectors.sql.call import MANY, Call, function
from tidegate.connectors.sql.convert import raise_if
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    INT,
    NUMBERS,
    STRING,
    TIMESTAMP_TZ,
    Typed,
    text,
)
from tidegate.connectors.sql.types import DATE as DATE_TYPE
from tidegate.connectors.sql.types import TIME as TIME_TYPE
from tidegate.connectors.sql.types import TIMESTAMP as TIMESTAMP_TYPE
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.javaregex import parsed, pattern_error, replacement_error


@function("ASCII", 1)
def ascii_(call: Call) -> Typed:
    return Typed(f"ascii({call.text(0)})", INT)


@function("BIT_LENGTH", 1)
def bit_length(call: Call) -> Typed:
    return Typed(f"CAST(bit_length({_raw(call)}) AS BIGINT)", BIGINT)


@function("CHAR_LENGTH LENGTH", 1)
def char_length(call: Call) -> Typed:
    return Typed(f"CAST(char_length({call.text(0)}) AS BIGINT)", BIGINT)


@function("OCTET_LENGTH", 1)
def octet_length(call: Call) -> Typed:
    return Typed(f"CAST(octet_length({_raw(call)}) AS BIGINT)", BIGINT)


def _raw(call: Call) -> str:
    return call.sql(0) if call.args[0].is_a(BYTES) else call.text(0)


@function("CHAR CHR", 1)
def chr_(call: Call) -> Typed:
    # Spark's chr supports 256 characters, SeaTunnel's 65,536.
    return Typed(
        f"decode(unhex(lpad(hex(CAST({call.sql(0)} AS BIGINT) & 65535), 4, '0')), 'UTF-16BE')",
        STRING,
    )


@function("CONCAT", 1, MANY)
def concat(call: Call) -> Typed:
    # NULLs are left out; the result of only NULLs is an empty text.
    return Typed(f"concat_ws('', {', '.join(call.text(i) for i in range(len(call.args)))})", STRING)


@function("CONCAT_WS", 2, MANY)
def concat_ws(call: Call) -> Typed:
    return Typed(
        f"concat_ws(coalesce({call.text(0)}, ''),"
        f" {', '.join(call.text(i) for i in range(1, len(call.args)))})",
        STRING,
    )


@function("HEXTORAW", 1)
def hextoraw(call: Call) -> Typed:
    source = call.text(0)
    return Typed(
        raise_if(
            f"length({source}) % 4 <> 0",
            "HEXTORAW takes 4 hex digits for each character",
            f"decode(unhex({source}), 'UTF-16BE')",
        ),
        STRING,
    )


@function("RAWTOHEX", 1)
def rawtohex(call: Call) -> Typed:
    source = call.sql(0) if call.args[0].is_a(BYTES) else f"encode({call.text(0)}, 'UTF-16BE')"
    return Typed(f"lower(hex({source}))", STRING)


@function("TO_BASE64", 1, 2)
def to_base64(call: Call) -> Typed:
    source = (
        call.sql(0)
        if call.args[0].is_a(BYTES)
        else f"encode({call.text(0)}, {text(call.keyword(1, 'UTF-8'))})"
    )
    return Typed(f"base64({source})", STRING)


@function("FROM_BASE64", 1, 2)
def from_base64(call: Call) -> Typed:
    return Typed(f"decode(unbase64({call.text(0)}), {text(call.keyword(1, 'UTF-8'))})", STRING)


@function("INSERT", 4)
def insert(call: Call) -> Typed:
    into, start, length, what = call.text(0), call.sql(1), call.sql(2), call.text(3)
    same = f"{start} < 1 OR {length} <= 0 OR {what} = '' OR {start} - 1 > length({into})"
    new = f"concat(left({into}, {start} - 1), {what}, substring({into}, {start} + {length}))"
    return Typed(
        f"CASE WHEN {into} IS NULL THEN {what} WHEN {what} IS NULL THEN {into} WHEN {same} THEN"
        f" {into} ELSE {new} END",
        STRING,
    )


@function("LOWER LCASE", 1)
def lower(call: Call) -> Typed:
    return Typed(f"lower({call.text(0)})", STRING)


@function("UPPER UCASE", 1)
def upper(call: Call) -> Typed:
    return Typed(f"upper({call.text(0)})", STRING)


@function("LEFT", 2)
def left(call: Call) -> Typed:
    return Typed(f"left({call.text(0)}, {call.sql(1)})", STRING)


@function("RIGHT", 2)
def right(call: Call) -> Typed:
    return Typed(f"right({call.text(0)}, {call.sql(1)})", STRING)


@function("LOCATE", 2, 3)
def locate(call: Call) -> Typed:
    return _position(call, call.text(0), call.text(1))


@function("POSITION", 2)
def position(call: Call) -> Typed:
    return _position(call, call.text(0), call.text(1))


@function("INSTR", 2, 3)
def instr(call: Call) -> Typed:
    return _position(call, call.text(1), call.text(0))


def _position(call: Call, what: str, within: str) -> Typed:
    """0 if the text is not found or NULL; a negative start searches backwards from there."""
    if not call.has_argument(2):
        return Typed(f"coalesce(locate({what}, {within}), 0)", INT)
    start = call.sql(2)
    forwards = f"locate({what}, {within}, greatest({start}, 1))"
    head = f"left({within}, length({within}) + {start} + length({what}))"
    found = f"locate(reverse({what}), reverse({head}))"
    backwards = f"IF({found} = 0, 0, length({head}) - {found} - length({what}) + 2)"
    constant = call.constant(2)
    if constant is not None:
        return Typed(f"coalesce({backwards if constant < 0 else forwards}, 0)", INT)
    return Typed(f"coalesce(IF({start} < 0, {backwards}, {forwards}), 0)", INT)


@function("LPAD RPAD", 2, 3)
def pad(call: Call) -> Typed:
    # SeaTunnel uses only the first character of the padding.
    return Typed(
        f"{call.name.lower()}({call.text(0)}, greatest({call.sql(1)}, 0),"
        f" {_one_character(call, 2)})",
        STRING,
    )


@function("LTRIM RTRIM TRIM", 1, 2)
def trim(call: Call) -> Typed:
    side = {"LTRIM": "LEADING", "RTRIM": "TRAILING", "TRIM": "BOTH"}[call.name]
    return Typed(f"trim({side} {_one_character(call, 1)} FROM {call.text(0)})", STRING)


def _one_character(call: Call, index: int) -> str:
    if not call.has_argument(index):
        return "' '"
    literal = call.args[index].literal
    if isinstance(literal, str):
        return text(literal[:1] or " ")
    return f"coalesce(nullif(left({call.text(index)}, 1), ''), ' ')"


def check_regex(function_name: str, pattern: object) -> None:
    """Reject a constant regular expression that Java does not accept, before the job runs."""
    wrong = pattern_error(pattern) if isinstance(pattern, str) else ""
    if wrong:
        raise SqlError(f"{function_name}: {pattern!r} is no regular expression: {wrong}")


def _regex(call: Call, index: int, flags_index: int) -> str:
    """A regular expression with the flags i, c, n, m written inline."""
    flags = call.keyword(flags_index, "")
    wrong = "".join(sorted(set(flags) - set("icnm")))
    if wrong:
        raise SqlError(f"{call.name}: {wrong!r} is no flag: use i, c, n and m")
    insensitive = max(flags.rfind("i"), -1) > flags.rfind("c")
    inline = (
        ("iu" if insensitive else "")
        + ("s" if "n" in flags else "")
        + ("m" if "m" in flags else "")
    )
    literal = call.args[index].literal
    if isinstance(literal, str):
        check_regex(call.name, literal)
        return text(f"(?{inline}){literal}" if inline else literal)
    return f"concat('(?{inline})', {call.text(index)})" if inline else call.text(index)


@function("REGEXP_REPLACE", 3, 4)
def regexp_replace(call: Call) -> Typed:
    pattern, new = call.args[1].literal, call.args[2].literal
    if isinstance(pattern, str) and isinstance(new, str) and not pattern_error(pattern):
        wrong = replacement_error(new, parsed(pattern))
        if wrong:
            raise SqlError(f"REGEXP_REPLACE: {wrong}")
    return Typed(f"regexp_replace({call.text(0)}, {_regex(call, 1, 3)}, {call.text(2)})", STRING)


@function("REGEXP_LIKE", 2, 3)
def regexp_like(call: Call) -> Typed:
    return Typed(f"regexp_like({call.text(0)}, {_regex(call, 1, 2)})", BOOLEAN)


@function("REGEXP_SUBSTR", 2, 6)
def regexp_substr(call: Call) -> Typed:
    source, regex = call.text(0), _regex(call, 1, 4)
    if len(call.args) == 2:
        return Typed(f"regexp_substr({source}, {regex})", STRING)
    start, which, group = (
        call.sql(i) if call.has_argument(i) else default
        for i, default in ((2, "1"), (3, "1"), (5, "0"))
    )
    return Typed(
        f"try_element_at(regexp_extract_all(substring({source}, {start}), {regex}, {group}),"
        f" {which})",
        STRING,
    )


@function("REPEAT", 2)
def repeat(call: Call) -> Typed:
    return Typed(f"repeat({call.text(0)}, {call.sql(1)})", STRING)


@function("REPLACE", 2, 3)
def replace(call: Call) -> Typed:
    new = f"coalesce({call.text(2)}, '')" if call.has_argument(2) else "''"
    return Typed(f"replace({call.text(0)}, {call.text(1)}, {new})", STRING)


@function("SPLIT", 2)
def split(call: Call) -> Typed:
    check_regex("SPLIT", call.args[1].literal)
    return Typed(
        f"split({call.text(0)}, {call.text(1)})", DataType(TypeName.ARRAY, children=(STRING,))
    )


@function("MD5", 1)
def md5(call: Call) -> Typed:
    return Typed(f"md5(CAST({_raw(call)} AS BINARY))", STRING)


@function("SOUNDEX", 1)
def soundex(call: Call) -> Typed:
    # Spark returns a text unchanged if it does not begin with a letter.
    letters = f"ltrim(regexp_replace({call.text(0)}, '^[^A-Za-z]+', ''))"
    return Typed(f"IF({letters} = '', '0000', soundex({letters}))", STRING)


@function("SPACE", 1)
def space(call: Call) -> Typed:
    return Typed(f"space({call.sql(0)})", STRING)


@function("SUBSTRING SUBSTR", 2, 3)
def substring(call: Call) -> Typed:
    length = f", {call.sql(2)}" if call.has_argument(2) else ""
    return Typed(
        f"nullif(substring({call.text(0)}, {call.sql(1)}{length}), '')", STRING
    )  # nothing left is NULL


@function("TO_CHAR", 1, 2)
def to_char(call: Call) -> Typed:
    value = call.args[0]
    if call.has_argument(1) and not value.among(NUMBERS) and not value.is_a(STRING, BOOLEAN):
        return formatted(value, call.text(1))
    return Typed(call.text(0), STRING)


def formatted(value: Typed, pattern: str) -> Typed:
    """Format a date, time or timestamp by a pattern."""
    if value.is_a(TIME_TYPE):
        return Typed(
            f"date_format(make_timestamp_ntz(DATE '1970-01-01', {value.sql}), {pattern})", STRING
        )
    if value.type is not None and not value.is_a(DATE_TYPE, TIMESTAMP_TYPE, TIMESTAMP_TZ):
        raise SqlError(f"a {value.type} cannot be formatted by a date pattern")
    return Typed(f"date_format({value.sql}, {pattern})", STRING)


@function("TRANSLATE", 3)
def translate(call: Call) -> Typed:
    # Characters without a replacement stay; Spark would remove them.
    new = f"coalesce({call.text(2)}, '')"
    return Typed(f"translate({call.text(0)}, left({call.text(1)}, length({new})), {new})", STRING)
