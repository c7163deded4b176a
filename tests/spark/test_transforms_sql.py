"""Every function of the Sql transform on Spark: SeaTunnel's values and the declared types."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.sql.call import FUNCTIONS
from tidegate.connectors.sql.functions import REGISTERED
from tidegate.connectors.sql.options import OPTIONS
from tidegate.connectors.sql.projection import reduced
from tidegate.connectors.sql.spark import frame
from tidegate.connectors.sql.transform import Sql
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, RowKind, Table, parse_type
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block
from tidegate.spark.types import data_type, struct_of

CONTEXT = OperatorContext(
    job_id=1,
    job_name="j",
    pipeline=1,
    operator="Transform[0]-Sql",
    mode=JobMode.BATCH,
    parallelism=1,
)


def sql(query: str, **more: Any) -> Sql:
    values, problems = OPTIONS.read(
        Block({"query": query, **more}, lambda _: Location("job.conf"), "transform[0]")
    )
    assert problems == []
    return Sql(values, CONTEXT)


def table_of(columns: dict[str, Any], **more: Any) -> Table:
    return Table(
        path="db.t",
        columns=tuple(Column(name=k, type=parse_type(v)) for k, v in columns.items()),
        **more,
    )


@pytest.fixture(autouse=True)
def times_of_day(spark: SparkSession) -> None:
    """Spark keeps the type TIME behind a setting."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


PROJECTED = [pytest.approx(reduced([3.0, 4.0], 1, "RANDOM_PROJECTION")[0], rel=1e-6)]
COLUMNS: dict[str, tuple[Any, Any]] = {
    "id": ("int", 1),
    "big": ("bigint", 1672502400),
    "tiny": ("tinyint", 11),
    "small": ("smallint", 23),
    "f": ("float", 1.5),
    "d": ("double", -120.72),
    "d2": ("double", 13.2),
    "zero": ("double", 0.0),
    "dec": ("decimal(10,3)", Decimal("1.239")),
    "yes": ("boolean", True),
    "name": ("string", "Joy Ding"),
    "nothing": ("string", None),
    "none_int": ("int", None),
    "uni": ("string", "Zürich 東京"),
    "b": ("bytes", b"\x01\xff"),
    "day": ("date", dt.date(2021, 4, 15)),
    "ts": ("timestamp", dt.datetime(2021, 4, 15, 13, 34, 45)),
    "ts2": ("timestamp", dt.datetime(2022, 1, 23, 12, 34, 56)),
    "ts3": ("timestamp", dt.datetime(2021, 4, 8, 13, 34, 45, 235000)),
    "tz": ("timestamp_tz", dt.datetime(2021, 4, 8, 13, 0, 0, tzinfo=dt.UTC)),
    "t": ("time", dt.time(10, 20, 30)),
    "arr": ("array<int>", [3, 1, 2]),
    "m": ("map<string, string>", {"k": "v"}),
    "r": (
        {"inner": {"x": "int", "m": "map<string, int>"}, "s": "string"},
        {"inner": {"x": 7, "m": {"a": 5}}, "s": "in"},
    ),
    "v": ("float_vector", [3.0, 4.0]),
    "w": ("float_vector", [4.0, 3.0]),
}

CASES: list[tuple[str, Any, str]] = [
    # text
    ("ascii('Hi')", 72, "int"),
    ("ascii(nothing)", None, "int"),
    ("bit_length(name)", 64, "bigint"),
    ("char_length(uni)", 9, "bigint"),
    ("length(nothing)", None, "bigint"),
    ("octet_length(uni)", 14, "bigint"),
    ("char(98)", "b", "string"),
    ("chr(26481)", "東", "string"),
    ("concat(name, nothing, id, '!')", "Joy Ding1!", "string"),
    ("concat(nothing, nothing)", "", "string"),
    ("concat(d, yes, ts)", "-120.72true2021-04-15T13:34:45", "string"),
    ("name || '_' || id", "Joy Ding_1", "string"),
    ("name || nothing", "Joy Ding", "string"),
    ("concat_ws(',', name, nothing, 'x')", "Joy Ding,x", "string"),
    ("concat_ws(nothing, 'a', 'b')", "ab", "string"),
    ("concat_ws(',', nothing, nothing)", "", "string"),
    ("hextoraw('00376771')", "7東", "string"),
    ("rawtohex('7')", "0037", "string"),
    ("rawtohex(b)", "01ff", "string"),
    ("to_base64('hello')", "aGVsbG8=", "string"),
    ("to_base64(b)", "Af8=", "string"),
    ("from_base64('aGVsbG8=')", "hello", "string"),
    ("from_base64(to_base64(uni, 'UTF-16'), 'UTF-16')", "Zürich 東京", "string"),
    ("insert(name, 2, 2, '**')", "J** Ding", "string"),
    ("insert(name, 0, 2, '**')", "Joy Ding", "string"),
    ("insert(name, 7, 100, '!')", "Joy Di!", "string"),
    ("insert(nothing, 1, 1, 'x')", "x", "string"),
    ("insert(name, 1, 1, nothing)", "Joy Ding", "string"),
    ("lower(uni)", "zürich 東京", "string"),
    ("lcase('A')", "a", "string"),
    ("upper(uni)", "ZÜRICH 東京", "string"),
    ("ucase(nothing)", None, "string"),
    ("left(name, 3)", "Joy", "string"),
    ("left(name, 99)", "Joy Ding", "string"),
    ("right(name, 4)", "Ding", "string"),
    ("right(name, 99)", "Joy Ding", "string"),
    ("locate('D', name)", 5, "int"),
    ("locate('i', 'ximix', 3)", 4, "int"),
    ("locate('x', 'ximix', -1)", 5, "int"),
    ("locate('x', 'ximix', -2)", 1, "int"),
    ("locate('zz', name)", 0, "int"),
    ("locate('a', nothing)", 0, "int"),
    ("locate('a', 'ba', 0)", 2, "int"),
    ("instr(name, 'D')", 5, "int"),
    ("instr('ximix', 'x', 2)", 5, "int"),
    ("instr('ximix', 'x', id - 3)", 1, "int"),
    ("position('D', name)", 5, "int"),
    ("position('D' in name)", 5, "int"),
    ("lpad(name, 10, '*-')", "**Joy Ding", "string"),
    ("lpad(name, 3, '*')", "Joy", "string"),
    ("lpad('a', 3)", "  a", "string"),
    ("lpad('a', 3, '')", "  a", "string"),
    ("lpad('a', -1)", "", "string"),
    ("rpad(name, 10, '*')", "Joy Ding**", "string"),
    ("rpad('a', 3, nothing)", "a  ", "string"),
    ("ltrim('*a*', '*')", "a*", "string"),
    ("rtrim('*a*', '*')", "*a", "string"),
    ("trim('*a*', '*x')", "a", "string"),
    ("trim('  a ')", "a", "string"),
    ("regexp_replace('Joy_WWWDing', 'w+', 'W', 'i')", "Joy_WDing", "string"),
    ("regexp_replace('Hello    World', ' +', ' ')", "Hello World", "string"),
    ("regexp_replace('2020-10', '(\\d+)-(\\d+)', '$2/$1')", "10/2020", "string"),
    ("regexp_replace('aA', 'a', 'x', 'ic')", "xA", "string"),
    ("regexp_like(name, '[A-Z ]*', 'i')", True, "boolean"),
    ("regexp_like(name, '^ding')", False, "boolean"),
    ("regexp_like(nothing, 'x')", None, "boolean"),
    ("regexp_substr('2020-10-01', '\\d{4}')", "2020", "string"),
    ("regexp_substr('2020-10-01', '(\\d{4})-(\\d{2})-(\\d{2})', 1, 1, null, 2)", "10", "string"),
    ("regexp_substr('a1b22', '[0-9]+', 1, 2, null, 0)", "22", "string"),
    ("regexp_substr('abc', '\\d')", None, "string"),
    ("repeat('ab', 3)", "ababab", "string"),
    ("repeat('ab', -3)", "", "string"),
    ("replace(name, ' ', '_')", "Joy_Ding", "string"),
    ("replace(name, ' ')", "JoyDing", "string"),
    ("replace(name, ' ', nothing)", "JoyDing", "string"),
    ("split('a;b', ';')", ["a", "b"], "array<string>"),
    ("md5('hello world')", "5eb63bbbe01eeed093cb22bb8f5acdc3", "string"),
    ("soundex(name)", "J352", "string"),
    ("soundex('Ashcraft')", "A261", "string"),
    ("soundex('1 Robert')", "R163", "string"),
    ("'x' || space(3) || 'x'", "x   x", "string"),
    ("space(-1)", "", "string"),
    ("substring(name, 1, 3)", "Joy", "string"),
    ("substring(name, 0, 3)", "Joy", "string"),
    ("substr(name, -4)", "Ding", "string"),
    ("substr(name, -4, 2)", "Di", "string"),
    ("substr(name, 99)", None, "string"),
    ("substr(name, 2, 0)", None, "string"),
    ("to_char(id)", "1", "string"),
    ("to_char(yes)", "true", "string"),
    ("to_char(ts, 'yyyy-MM-dd')", "2021-04-15", "string"),
    ("to_char(d)", "-120.72", "string"),
    ("translate(name, 'ing', 'ING')", "Joy DING", "string"),
    ("translate('abc', 'abc', 'x')", "xbc", "string"),
    ("translate('abc', 'abc', nothing)", "abc", "string"),
    ("des_decrypt('1234567890', des_encrypt('1234567890', name))", "Joy Ding", "string"),
    ("des_encrypt('1234567890', name)", "+jXI7ngL1UzB8yoBYEVgoQ==", "string"),
    ("aes_decrypt(aes_encrypt(name, 'pass'), 'pass')", "Joy Ding", "string"),
    (
        "aes_encrypt(name, 'base64:MTIzNDU2Nzg5MDEyMzQ1Ng==', '1234567890123456')",
        "Zpmu5MBN5A9vKumkGP4nhQ==",
        "string",
    ),
    (
        "aes_decrypt(aes_encrypt(name, 'pass', '1234567890123456'), 'pass', '1234567890123456')",
        "Joy Ding",
        "string",
    ),
    # numbers
    ("abs(-10.3)", 10.3, "double"),
    ("abs(d)", 120.72, "double"),
    ("abs(dec)", Decimal("1.239"), "decimal(10,3)"),
    ("acos(id)", 0.0, "double"),
    ("asin(zero)", 0.0, "double"),
    ("atan(zero)", 0.0, "double"),
    ("atan2(1, 1)", math.pi / 4, "double"),
    ("cos(zero)", 1.0, "double"),
    ("cosh(zero)", 1.0, "double"),
    ("cot(1)", 1 / math.tan(1), "double"),
    ("sin(zero)", 0.0, "double"),
    ("sinh(zero)", 0.0, "double"),
    ("tan(3.1415926/4)", 0.9999999732051038, "double"),
    ("tanh(zero)", 0.0, "double"),
    ("mod(13, 5)", 3, "int"),
    ("mod(13, 5.4)", 2.2, "double"),
    ("mod(-13, 5)", -3, "int"),
    ("mod(none_int, 5)", None, "int"),
    ("ceil(d2)", 14, "int"),
    ("ceiling(d)", -120, "int"),
    ("floor(d2)", 13, "int"),
    ("floor(d)", -121, "int"),
    ("exp(2)", 7.38905609893065, "double"),
    ("ln(d2)", 2.580216829592325, "double"),
    ("log(10, d2)", 1.1205739312058498, "double"),
    ("log(2, 8)", 3.0, "double"),
    ("log10(1324.252)", 3.1219706375172507, "double"),
    ("radians(180)", math.pi, "double"),
    ("sqrt(10.24)", 3.2, "double"),
    ("pi()", math.pi, "double"),
    ("power(d2, 2)", 174.23999999999998, "double"),
    ("rand(42)", 0.7275636800328681, "double"),
    ("random() < 1", True, "boolean"),
    ("round(120.72524, 2)", 120.73, "double"),
    ("round(d2)", 13.0, "double"),
    ("round(1255, -1)", 1260, "int"),
    ("round(dec, 2)", Decimal("1.240"), "decimal(10,3)"),
    ("sign(d)", -1, "int"),
    ("sign(none_int)", 0, "int"),
    ("sign(dec)", 1, "int"),
    ("trunc(120.72924, 2)", 120.72, "double"),
    ("truncate(d, 1)", -120.7, "double"),
    ("trunc(d2)", 13.0, "double"),
    ("trim_scale(dec)", Decimal("1.239"), "decimal(10,3)"),
    ("array_max(arr)", 3, "int"),
    ("array_min(arr)", 1, "int"),
    ("tiny + 3", 14, "int"),
    ("small * 2", 46, "int"),
    ("7 / 2", 3, "int"),
    ("-7 / 2", -3, "int"),
    ("7 % 4", 3, "int"),
    ("big + id", 1672502401, "bigint"),
    ("big / 1000", 1672502, "bigint"),
    ("134.22/3", 44.74, "double"),
    ("134.22-34.22", 100.0, "double"),
    ("134.22%23.12", 18.619999999999994, "double"),
    ("d / zero", -math.inf, "double"),
    ("f + id", 2.5, "double"),
    ("dec + 1", Decimal("2.239"), "decimal(10,3)"),
    ("dec / 3", Decimal("0.413"), "decimal(10,3)"),
    ("-dec / 7", Decimal("-0.177"), "decimal(10,3)"),
    ("dec * dec", Decimal("1.535"), "decimal(10,3)"),
    ("none_int + 1", None, "int"),
    ("-(-id)", 1, "int"),
    ("1e3", 1000.0, "double"),
    ("12345678901", 12345678901, "bigint"),
    # dates and times
    ("current_date > day", True, "boolean"),
    ("current_timestamp > ts and current_timestamp() > ts and now() > ts", True, "boolean"),
    ("current_time is not null", True, "boolean"),
    ("dateadd(ts, 1)", dt.datetime(2021, 4, 16, 13, 34, 45), "timestamp"),
    ("dateadd(ts, 2, 'YEAR')", dt.datetime(2023, 4, 15, 13, 34, 45), "timestamp"),
    ("dateadd(ts, 10, 'MONTH')", dt.datetime(2022, 2, 15, 13, 34, 45), "timestamp"),
    ("dateadd(ts, -1, 'WEEK')", dt.datetime(2021, 4, 8, 13, 34, 45), "timestamp"),
    ("dateadd(ts, 13, 'HOUR')", dt.datetime(2021, 4, 16, 2, 34, 45), "timestamp"),
    ("dateadd(ts, 40, 'minute')", dt.datetime(2021, 4, 15, 14, 14, 45), "timestamp"),
    ("timestampadd(ts, 30, 'SECOND')", dt.datetime(2021, 4, 15, 13, 35, 15), "timestamp"),
    ("dateadd(ts, 1500, 'MILLISECOND')", dt.datetime(2021, 4, 15, 13, 34, 46, 500000), "timestamp"),
    ("dateadd(day, 1, 'MONTH')", dt.date(2021, 5, 15), "date"),
    ("dateadd(day, 1, 'HOUR')", dt.date(2021, 4, 15), "date"),
    ("dateadd(t, 14, 'HOUR')", dt.time(0, 20, 30), "time"),
    ("datediff(ts, ts2)", 283, "bigint"),
    ("datediff(ts, ts2, 'DAY')", 283, "bigint"),
    ("datediff(ts, ts2, 'YEAR')", 0, "bigint"),
    ("datediff(ts, ts2, 'MONTH')", 9, "bigint"),
    ("datediff(ts2, ts, 'MONTH')", -9, "bigint"),
    ("datediff(day, dateadd(day, 26, 'MONTH'), 'MONTH')", 2, "bigint"),
    ("datediff(day, dateadd(day, 26, 'MONTH'), 'YEAR')", 2, "bigint"),
    ("datediff(ts, ts2, 'WEEK')", 40, "bigint"),
    ("datediff(ts, ts2, 'HOUR')", 6791, "bigint"),
    ("datediff(ts, ts2, 'MINUTE')", 407460, "bigint"),
    ("datediff(ts, ts2, 'SECOND')", 24447611, "bigint"),
    ("datediff(ts, ts2, 'DAYTIME')", 282, "bigint"),
    ("date_trunc(ts3, 'YEAR')", dt.datetime(2021, 1, 1), "timestamp"),
    ("date_trunc(ts3, 'SECOND')", dt.datetime(2021, 4, 8, 13, 34, 45), "timestamp"),
    ("date_trunc(ts3)", dt.datetime(2021, 4, 8), "timestamp"),
    ("date_trunc(day, 'MONTH')", dt.date(2021, 4, 1), "date"),
    ("dayname(ts)", "Thursday", "string"),
    ("monthname(day)", "April", "string"),
    ("day_of_month(ts)", 15, "int"),
    ("day_of_week(ts)", 4, "int"),
    ("day_of_year(ts)", 105, "int"),
    ("hour(ts3)", 13, "int"),
    ("hour(t)", 10, "int"),
    ("minute(ts3)", 34, "int"),
    ("month(day)", 4, "int"),
    ("quarter(ts)", 2, "int"),
    ("second(ts3)", 45, "int"),
    ("year(day)", 2021, "int"),
    ("week(ts3)", 15, "int"),
    ("week(cast(20210101 as date))", 1, "int"),
    ("week(cast(20201231 as date))", 54, "int"),
    ("extract(YEAR FROM ts3)", 2021, "int"),
    ("extract(SECOND from ts3)", 45, "int"),
    ("extract(MILLISECOND from ts3)", 235, "int"),
    ("extract(DAYOFWEEK FROM ts)", 4, "int"),
    ("extract(DAYOFYEAR FROM ts)", 105, "int"),
    ("extract(HOUR FROM t)", 10, "int"),
    ("extract(HOUR FROM day)", None, "int"),
    ("extract(EPOCH FROM ts)", 1618493685, "bigint"),
    ("extract(CENTURY FROM ts)", 21, "int"),
    ("extract(ISOYEAR FROM cast(20210101 as date))", 2020, "int"),
    ("formatdatetime(ts3, 'yyyy-MM-dd HH:mm:ss.S')", "2021-04-08 13:34:45.2", "string"),
    ("formatdatetime(ts3, 'HH:mm:ss.SSS')", "13:34:45.235", "string"),
    ("formatdatetime(t, 'HH:mm')", "10:20", "string"),
    (
        "parsedatetime('2021-04-08 13:34:45.235', 'yyyy-MM-dd HH:mm:ss.SSS')",
        dt.datetime(2021, 4, 8, 13, 34, 45, 235000),
        "timestamp",
    ),
    (
        "parsedatetime('2021-04-08T13:34:45', 'yyyy-MM-dd''T''HH:mm:ss')",
        dt.datetime(2021, 4, 8, 13, 34, 45),
        "timestamp",
    ),
    (
        "parsedatetime('20210408133445', 'yyyyMMddHHmmss')",
        dt.datetime(2021, 4, 8, 13, 34, 45),
        "timestamp",
    ),
    ("to_date('2021-04-08', 'yyyy-MM-dd')", dt.date(2021, 4, 8), "date"),
    ("to_date('14:30:45', 'HH:mm:ss')", dt.time(14, 30, 45), "time"),
    ("is_date('2021-04-08', 'yyyy-MM-dd')", True, "boolean"),
    ("is_date('2021-13-08', 'yyyy-MM-dd')", False, "boolean"),
    ("is_date('x', 'yyyy-MM-dd HH:mm:ss')", False, "boolean"),
    ("is_date(nothing, 'yyyy-MM-dd')", True, "boolean"),
    ("from_unixtime(big, 'yyyy-MM-dd HH:mm:ss', 'UTC+8')", "2023-01-01 00:00:00", "string"),
    ("from_unixtime(big, 'yyyy-MM-dd HH:mm:ss')", "2022-12-31 16:00:00", "string"),
    ("from_unixtime(big, 'yyyy-MM-dd', 'Asia/Shanghai')", "2023-01-01", "string"),
    (
        "ts at time zone '+09:00'",
        dt.datetime(2021, 4, 15, 4, 34, 45, tzinfo=dt.UTC),
        "timestamp_tz",
    ),
    # conversions
    ("cast(id as STRING)", "1", "string"),
    ("cast(id as DOUBLE)", 1.0, "double"),
    ("cast('12.4' as double)", 12.4, "double"),
    ("cast('12.4' as DECIMAL(10,2))", Decimal("12.40"), "decimal(10,2)"),
    ("cast('1.231' as DECIMAL(10,2))", Decimal("1.24"), "decimal(10,2)"),
    ("cast('-1.239' as DECIMAL(10,2))", Decimal("-1.23"), "decimal(10,2)"),
    ("cast(dec as DECIMAL(10,2))", Decimal("1.24"), "decimal(10,2)"),
    ("cast(2.345 as DECIMAL(10,2))", Decimal("2.35"), "decimal(10,2)"),
    ("cast(ts as DATE)", dt.date(2021, 4, 15), "date"),
    ("cast(day as timestamp)", dt.datetime(2021, 4, 15), "timestamp"),
    ("cast(1687747869032 as timestamp)", dt.datetime(2023, 6, 26, 2, 51, 9, 32000), "timestamp"),
    ("cast(1687747869032 as decimal(17,4))", Decimal("1687747869032.0000"), "decimal(17,4)"),
    ("cast(20230625 as date)", dt.date(2023, 6, 25), "date"),
    ("cast(235109 as time)", dt.time(23, 51, 9), "time"),
    ("cast(ts as time)", dt.time(13, 34, 45), "time"),
    ("cast(name as bytes)", b"Joy Ding", "bytes"),
    ("cast('5' as bigint)", 5, "bigint"),
    ("cast('5' as long)", 5, "bigint"),
    ("cast('5' as byte)", 5, "tinyint"),
    ("cast('5' as smallint)", 5, "smallint"),
    ("cast('true' as boolean)", True, "boolean"),
    ("cast(0 as boolean)", False, "boolean"),
    ("cast(date_trunc(ts) as string)", "2021-04-15T00:00", "string"),
    ("cast(ts3 as varchar)", "2021-04-08T13:34:45.235", "string"),
    ("cast(t as string)", "10:20:30", "string"),
    ("cast(null as int)", None, "int"),
    ("try_cast('x' as int)", None, "int"),
    ("try_cast('7' as int)", 7, "int"),
    # conditions
    ("coalesce(nothing, 'Unknown')", "Unknown", "string"),
    ("coalesce(nothing, id)", "1", "string"),
    ("ifnull(none_int, 5)", 5, "int"),
    ("nullif(name, 'Joy Ding')", None, "string"),
    ("nullif(name, 'x')", "Joy Ding", "string"),
    ("multi_if(id > 1, 'A', d < 0, 'B', 'C')", "B", "string"),
    ("case when name in ('Joy Ding') then 1 else 0 end", 1, "int"),
    ("case when tiny = 11 and to_char(yes) = 'true' then 1 else 0.5 end", 1.0, "double"),
    ("case id when 1 then 'one' else 'more' end", "one", "string"),
    ("case when nothing = 'x' then 1 end", None, "int"),
    ("case when yes then 1 else 0 end", 1, "int"),
    ("nothing <> 'x'", True, "boolean"),
    ("nothing <> nothing", False, "boolean"),
    ("not (nothing = 'x')", True, "boolean"),
    ("name like '%Din_'", True, "boolean"),
    ("name not like 'J%'", False, "boolean"),
    ("name not like 'x%' and nothing not like 'x%'", None, "boolean"),
    ("'50%' like '50!%' escape '!'", True, "boolean"),
    ("name not rlike 'D.n'", False, "boolean"),
    ("id is not null and name is null", False, "boolean"),
    ("id between 0 and 2", True, "boolean"),
    ("id not between 0 and 2", False, "boolean"),
    ("id not in (1, 2)", False, "boolean"),
    ("id not in (2, 3, null)", True, "boolean"),
    ("name rlike 'D.n'", True, "boolean"),
    ("length(uuid())", 36, "bigint"),
    # arrays, maps, rows
    ("array(1, 2)", [1, 2], "array<int>"),
    ("array('c', 2, 3.5)", ["c", "2", "3.5"], "array<string>"),
    ("array(1, 2.5)", [1.0, 2.5], "array<double>"),
    ("array(-1, +2, (3))", [-1, 2, 3], "array<int>"),
    ("map('a', 1, 'b', big)", {"a": 1, "b": 1672502400}, "map<string,bigint>"),
    ("m.k", "v", "string"),
    ("m['k']", "v", "string"),
    ("m.missing", None, "string"),
    ("arr[0]", 3, "int"),
    ("r.inner.x", 7, "int"),
    ("r.inner.m.a", 5, "int"),
    ("r.`s`", "in", "string"),
    ('"name"', "Joy Ding", "string"),
    ("t.name", "Joy Ding", "string"),
    ("get_json_object('{\"a\":{\"b\":1}}', '$.a')", '{"b":1}', "string"),
    # vectors
    ("vector_dims(v)", 2, "int"),
    ("vector_norm(v)", 5.0, "double"),
    ("inner_product(v, w)", 24.0, "double"),
    ("cosine_distance(v, w)", 1 - 24 / 25, "double"),
    ("l1_distance(v, w)", 2.0, "double"),
    ("l2_distance(v, w)", math.sqrt(2), "double"),
    ("vector_normalize(v)", [pytest.approx(0.6), pytest.approx(0.8)], "float_vector"),
    ("vector_reduce(v, 1, 'TRUNCATE')", [3.0], "float_vector"),
    ("vector_reduce(v, 1, 'random_projection')", PROJECTED, "float_vector"),
    ("vector_reduce(v, 2, 'SPARSE_RANDOM_PROJECTION')", [3.0, 4.0], "float_vector"),
    ("vector_reduce(arr, 3, 'RANDOM_PROJECTION')", [3.0, 1.0, 2.0], "array<float>"),
]


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}  # three hundred expressions for one row


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> tuple[Table, DataFrame, Any]:
    """All expressions in one query on one row, in one Spark job."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    table = table_of({name: kind for name, (kind, _) in COLUMNS.items()})
    df = spark.createDataFrame([tuple(value for _, value in COLUMNS.values())], struct_of(table))
    transform = sql(
        "select "
        + ", ".join(f"{expression} as c{i}" for i, (expression, _, _) in enumerate(CASES))
        + " from t"
    )
    made, out = transform.table(table), frame(transform, table, df)
    assert made is not None
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    row = out.collect()[0]
    for key in QUICK:
        spark.conf.unset(key)
    return made, out, row


@pytest.mark.parametrize(
    ("index", "expected", "kind"),
    [pytest.param(i, e, k, id=x) for i, (x, e, k) in enumerate(CASES)],
)
def test_expression_has_the_value_and_type_of_seatunnel(
    results: tuple[Table, DataFrame, Any], index: int, expected: Any, kind: str
) -> None:
    made, out, row = results
    assert made.columns[index].type == parse_type(kind)
    found = row[index]
    if kind == "timestamp_tz":
        found = found.replace(tzinfo=dt.UTC)
    assert found == (
        pytest.approx(expected, rel=1e-14) if isinstance(expected, float) else expected
    )
    assert data_type(out.schema[index].dataType) == (
        parse_type("array<float>") if kind == "float_vector" else parse_type(kind)
    )


def test_every_function_of_seatunnel_is_tested() -> None:
    assert REGISTERED
    text = " ".join(x.lower() for x, _, _ in CASES)
    assert (
        sorted(
            n
            for n in FUNCTIONS
            if f"{n.lower()}(" not in text and n not in ("CURRENT_DATE", "CURRENT_TIME", "POW")
        )
        == []
    )


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("ln(0)", "LN takes only numbers above 0"),
        ("log10(-1)", "LOG10 takes only numbers above 0"),
        ("mod(id, 0.0)", "MOD by zero"),
        ("cot(0)", "division by zero"),
        ("hextoraw('abc')", "4 hex digits"),
        ("id / 0", "DIVIDE_BY_ZERO"),
        ("cast(name as int)", "CAST_INVALID_INPUT"),
        ("to_date('x', 'yyyy-MM-dd')", "CANNOT_PARSE"),
    ],
)
def test_undefined_result_fails_the_job(spark: SparkSession, expression: str, message: str) -> None:
    table = table_of({"id": "int", "name": "string"})
    df = spark.createDataFrame([(1, "x")], struct_of(table))
    with pytest.raises(Exception, match=message):
        frame(sql(f"select {expression} as x from t"), table, df).collect()


def test_where_keeps_rows_whose_condition_is_true(spark: SparkSession) -> None:
    table = table_of({"id": "int", "name": "string", "email": "string"})
    rows = [
        (1, "Joy Ding", None),
        (2, "May Ding", "m@x"),
        (3, None, None),
        (4, "LeBron Ding", None),
        (8, "Wang DingCC", None),
    ]
    df = spark.createDataFrame(rows, struct_of(table))
    query = (
        "select id from t where (id = 1 or id in (2, 3, 4, 8)) and name <> 'x' and email is null"
        " and (name like '%Din_' or name like 'Wan_%' or name is null)"
    )
    assert [r.id for r in frame(sql(query), table, df).collect()] == [1, 3, 4, 8]


def test_row_kinds_are_kept_and_columns_have_their_names_and_order(spark: SparkSession) -> None:
    table = table_of({"Id": "int", "name": "string"}, kinds=True, primary_key=("Id",))
    df = spark.createDataFrame(
        [(1, "a", RowKind.INSERT.code), (2, "b", RowKind.DELETE.code)], struct_of(table)
    )
    transform = sql("select name as N, id+1, *, concat(name, '_') from dual")
    made = transform.table(table)
    assert made is not None
    assert made.names() == ["N", "id + 1", "Id", "name", "concat(name, '_')"]
    assert (made.kinds, made.primary_key) == (True, ("Id",))
    out = frame(transform, table, df)
    assert out.columns == [*made.names(), ROW_KIND]
    assert [tuple(r) for r in out.collect()] == [
        ("a", 2, 1, "a", "a_", 0),
        ("b", 3, 2, "b", "b_", 3),
    ]


def test_spark_functions_are_passed_on_with_unknown_type(
    spark: SparkSession,
) -> None:
    table = table_of({"xs": "array<int>"})
    df = spark.createDataFrame([([1, 2],)], struct_of(table))
    transform = sql("select transform(xs, x -> x * 2) as doubled, initcap('ab') as up from t")
    assert transform.table(table) is None
    assert tuple(frame(transform, table, df).collect()[0]) == ([2, 4], "Ab")


def test_several_queries_for_one_table_are_applied_in_order(spark: SparkSession) -> None:
    table = table_of({"id": "int"})
    df = spark.createDataFrame([(1,)], struct_of(table))
    rules = [
        {"table_path": "db.t", "query": "select id + 1 as id from t"},
        {"table_path": "db.t", "query": "select id * 10 as id from t"},
    ]
    values, problems = OPTIONS.read(
        Block(
            {"table_transform": rules, "rule_match_mode": "ALL_MATCH"},
            lambda _: Location("job.conf"),
            "transform[0]",
        )
    )
    assert problems == []
    assert frame(Sql(values, CONTEXT), table, df).collect()[0].id == 20
