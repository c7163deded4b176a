"""Edge values of every type of MariaDB and MySQL.

For each group of types there are the columns of a table, and its rows.
"""

NINES = "9" * 38
_DATES = [
    "0000-00-00",
    "2024-00-10",
    "2024-01-00",
    "0000-05-05",
    "0000-02-29",
    "0001-01-01",
    "9999-12-31",
    "1582-10-10",
    "2024-02-31",
    "2023-02-29",
    "2024-02-29",
    "1000-01-01",
    "1900-02-29",
    "1969-12-31",
    "0000-00-05",
    "2023-04-31",
]
_NUMBERS = [
    "1e20",
    "1.5e-7",
    "0.00000015",
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "100",
    "1e2",
    "1.5",
    "123456789012345678",
    "12345678901234567890",
    "123456789012345678901234567890",
    "-9223372036854775808",
    "0.1",
    "1e-5",
    "0.0001",
    "0.00001",
    "1e-14",
    "1e-15",
    "1e-16",
    "1.25e-15",
    "123456789.123456789",
    "1e14",
    "1e15",
    "1e16",
    "1e17",
    "123456789012345.6",
    "999999999999999.9",
    "3.14159265358979",
    "2.2250738585072014e-308",
    "1.7976931348623157e308",
    "5e-324",
]
_DOCUMENTS = [
    "true",
    "null",
    '"a"',
    r'"ü\\u00e9\\n\\t\\"\\\\/"',
    r'"\\u0001\\u001f\\u007f"',
    "[]",
    "{}",
    "[1, 2,3]",
    '{"b":1,"a":{"c":[]},"aa":2}',
    '"😀"',
    '{"é": 1.10}',
]
_LABELS = r"'a','b\\c','it''s','x,y','ü','" "q" "','%','a b','\n','\\n','中',''"
_MANY = ",".join(f"'l{n}'" for n in range(300))
_MANY_BITS = ",".join(f"'s{n}'" for n in range(64))

GROUPS: dict[str, tuple[str, list[str]]] = {
    "labels": (
        (
            rf"e enum({_LABELS}) character set utf8mb4, s set('b\\c','it''s','ü','?','%') character"
            r" set utf8mb3, l enum('é','\\\\','?') character set latin1"
        ),
        [f"({n}, {n * 3 % 32}, {n % 4})" for n in range(13)],
    ),
    "many": (
        f"e enum({_MANY}), s set({_MANY_BITS})",
        ["(300, 18446744073709551615)", "(256, 9223372036854775809)", "(0, 0)"],
    ),
    "decimals": (
        (
            "a decimal(65,30), b decimal(65,0), d decimal(39,0), f decimal(30,30), g decimal(10,2)"
            " zerofill, h decimal(65,30) zerofill, i decimal(1,0), j decimal(38,0), k decimal(40,2)"
            " zerofill"
        ),
        [
            "(0, 0, 0, 0, 0, 0, 0, 0, 0)",
            (
                f"({'9' * 35}.{'9' * 30}, {'9' * 65}, 9{NINES}, 0.{'9' * 30}, 1.5, 12345.6789, 9,"
                f" {NINES}, 7.25)"
            ),
            (
                f"(-{'9' * 35}.{'9' * 30}, -{'9' * 65}, -9{NINES}, -0.{'9' * 30}, 1.5, 0.5, -9,"
                f" -{NINES}, 0.07)"
            ),
            f"(0.{'0' * 29}1, 1, -1, 0.1, 0.01, 0.{'0' * 29}1, 1, 1, 100)",
            f"(-0.{'0' * 29}1, -1, 10, 0, 10, 1, -1, -1, 99)",
            f"(100, -10, -0, 0, 10, {'9' * 35}, -1, -1, 99)",
            "(1e-7, 1e20, -0, 0, 10, 1e-7, -1, -1, 99)",
        ],
    ),
    "numbers": (
        (
            "a tinyint, b tinyint unsigned, c smallint unsigned zerofill, d mediumint unsigned, f"
            " int(12) zerofill, g bigint unsigned zerofill, h bigint, i tinyint(1), j bigint"
            " unsigned, k int, l tinyint(4) unsigned zerofill, m boolean, n mediumint, o year"
        ),
        [
            (
                f"(-128, 255, 65535, 16777215, 4294967295, {2**64 - 1}, {-(2**63)}, 1, {2**64 - 1},"
                f" {-(2**31)}, 5, true, -8388608, 0)"
            ),
            "(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1901)",
            f"(127, 1, 7, 1, 7, 7, {2**63 - 1}, -1, {2**63}, {2**31 - 1}, 255, 2, 8388607, 2155)",
        ],
    ),
    "floats": (
        (
            "a float, b double, c float(10,2), d double(10,3), f float unsigned, g double zerofill,"
            " h float zerofill"
        ),
        [
            "(3.4028234e38, 1.7976931348623157e308, 1.1, 1.001, 3.4028234e38, 1.5, 1.5)",
            "(-3.4028234e38, -1.7976931348623157e308, -1.1, -1.001, 1.17549e-38, 0.1, 0.1)",
            "(1.17549435e-38, 2.2250738585072014e-308, 0, 0, 1e-45, 1e300, 1e20)",
            "(1e-45, 5e-324, 0, 0, 0, 0, 0)",
            "(-0.0, -0.0, -0.0, -0.0, 0, 0, 0)",
            "(16777217, 9007199254740993, 16777217, 0.1, 0.1, 1, 1)",
        ],
    ),
    "dates": (
        "d date, t0 datetime, t1 datetime(1), t3 datetime(3), t5 datetime(5), t6 datetime(6)",
        [
            f"('{date}', '{date}', '{date} 01:02:03.4', '{date} 01:02:03.456', '{date}"
            f" 01:02:03.45678', '{date} 23:59:59.999999')"
            for date in _DATES
        ],
    ),
    "moments": (
        "a timestamp null, b timestamp(1) null, c timestamp(6) null, d timestamp(3) null",
        [
            "('0000-00-00', '0000-00-00', '0000-00-00', '0000-00-00')",
            (
                "('1970-01-01 00:00:01', '1970-01-01 00:00:01.1', '1970-01-01 00:00:01.000001',"
                " '1970-01-01 00:00:01.001')"
            ),
            (
                "('2038-01-19 03:14:07', '2038-01-19 03:14:07.9', '2038-01-19 03:14:07.999999',"
                " '2038-01-19 03:14:07.999')"
            ),
        ],
    ),
    "times": (
        "a time, b time(1), c time(3), d time(6), f time(4)",
        [
            "('00:00:00', '00:00:00', '00:00:00', '00:00:00', '00:00:00')",
            "('23:59:59', '23:59:59.9', '23:59:59.999', '23:59:59.999999', '23:59:59.9999')",
            "('00:00:01', '00:00:00.1', '00:00:00.001', '00:00:00.000001', '00:00:00.0001')",
        ],
    ),
    "bits": (
        "a bit, b bit(7), c bit(8), d bit(9), f bit(33), g bit(64)",
        [
            "(b'1', b'1111111', b'11111111', b'111111111', ~0 >> 31, ~0)",
            "(0, 0, 0, 0, 0, 0)",
            "(0, 1, 1, 1, 1, 1)",
            "(null, null, null, null, null, null)",
        ],
    ),
    "bytes": (
        "a binary(8), b varbinary(8), c blob, d tinyblob, f longblob, g binary(1), h binary(255)",
        [
            "('', '', '', '', '', '', '')",
            "(x'0000', '', '', '', '', x'00', '')",
            "(x'0100', x'0100', x'0000', x'00ff', x'00', x'20', 'x')",
            "('ab  ', 'ab  ', 'ab  ', 'ab  ', 'ab  ', ' ', '  ')",
            "(x'ffffffffffffff00', x'2000', x'20', x'0d0a', x'00', x'ff', repeat(x'ff', 255))",
        ],
    ),
    "texts": (
        (
            "a char(5), b varchar(5), c text, d char(0), f char(255), g varchar(1000), h char(5)"
            " character set latin1, i char(5) character set utf16, j char(200) collate utf8mb4_bin"
        ),
        [
            "('a  ', 'a  ', 'a  ', '', 'x ', 'y ', 'a ', 'a ', 'z ')",
            "('', '', '', '', '', '', '', '', '')",
            "('   ', '   ', '   ', '', ' ', ' ', ' ', ' ', ' ')",
            r"('ü\0', '\0', '\0', '', repeat('€', 255), repeat('€', 1000), 'é', '中', '😀')",
            r"('\t\n', '\r', '\\N', '', '\\', 'NULL', 'a\0', 'a\0', 'a\t')",
        ],
    ),
    "shapes": (
        "a point, b linestring, c polygon, d geometry, f geometrycollection",
        [
            (
                "(st_geomfromtext('POINT(1 2)'), st_geomfromtext('LINESTRING(0 0,1 1)'),"
                " st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))'), st_geomfromtext('POINT(1 2)', 0),"
                " st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 1))'))"
            ),
            (
                "(st_geomfromtext('POINT(-1.5 1e300)'), null, null, st_geomfromtext('POINT(1 2)',"
                " 4326), null)"
            ),
        ],
    ),
    "documents": ("a json", [f"('{text}')" for text in (*_NUMBERS, *_DOCUMENTS)]),
}
MARIADB = {
    "addresses": (
        "a uuid, b inet4, c inet6",
        [
            "('00000000-0000-0000-0000-000000000000', '0.0.0.0', '::')",
            "('ffffffff-ffff-ffff-ffff-ffffffffff00', '255.255.255.0', '::ffff:1.2.3.4')",
            "('123e4567-e89b-12d3-a456-426655440000', '1.2.3.0', '::1')",
            *(
                f"(null, null, '{text}')"
                for text in [
                    "::1.2.3.4",
                    "fe80::",
                    "2001:db8::1:0:0:1",
                    "::ffff:0:1.2.3.4",
                    "1:0:0:2::",
                    "::0.0.1.1",
                    "1:2:3:4:5:6:0:8",
                ]
            ),
            *(
                f"(null, null, '{text}')"
                for text in ["0:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", "1:0:2:0:3:0:4:0"]
            ),
        ],
    ),
    "compressed": (
        (
            "a text compressed, b varchar(1000) compressed, c blob compressed, d varbinary(200)"
            " compressed, f varchar(100) character set gbk compressed, g int"
        ),
        [
            "('a', 'a', 'a', 'a', '中', 1)",
            (
                "(repeat('a', 1000), repeat('ü', 500), repeat('a', 1000), repeat('a', 200),"
                " repeat('中', 100), 2)"
            ),
            "('', '', '', '', '', 3)",
            "(null, null, null, null, null, 4)",
        ],
    ),
}
_OPAQUE = [
    (
        "json_object('d', cast(1.50 as decimal(10,2)), 't', "
        "cast('2024-01-02 03:04:05.6' as datetime(6)), 'x', cast('2024-01-02' as date))"
    ),
    (
        "json_object('h', cast('-12:00:01' as time), 'b', x'0102', 'n', "
        "cast(0 as decimal(65,30)), 'f', 1e20, 'u', cast(18446744073709551615 as unsigned))"
    ),
    (
        "json_array(cast(0.5 as decimal(3,3)), "
        "cast(-12345678901234567890.123 as decimal(40,3)), point(1,2), "
        "cast('838:59:59.000001' as time(6)), b'101')"
    ),
    (
        "json_array(1.5e0, -1e-7, 1e0 / 3, cast('2024' as year), "
        "timestamp'2024-01-01 00:00:00.5', cast(-0.5 as decimal(2,1)), -0e0, 1e22, 12345e-10)"
    ),
    "cast(cast('0000-00-00' as date) as json)",
    "cast(1e15 as json)",
]
MYSQL = {
    "vectors": (
        "a vector(3), b vector, c int",
        ["(to_vector('[1,2,3]'), to_vector('[1.5]'), 1)", "(null, null, 2)"],
    ),
    "opaque": ("a json", [f"({text})" for text in _OPAQUE]),
}
