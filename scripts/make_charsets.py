"""Write the character tables of MariaDB and MySQL to binlog_charsets.xz.

Run it manually when a server gets a new character set: `.venv/bin/python scripts/make_charsets.py`.
It starts a MariaDB and a MySQL, as the tests do, queries both for every sequence of bytes that they
would store, and stops if they differ. tests/databases/test_mysql_charsets.py compares the file with
both.

The file has the tables of SINGLE and MULTI (binlog_charsets.py) one after the other, a UTF-16 unit
for each sequence of bytes, NUL for none: 256 for single bytes, then 128 times 256 for two bytes of
which the first is 128 or more, then 128 times 128 for the two after 0x8F. First all low bytes, then
all high bytes, compressed.
"""

import lzma
import sys
from collections.abc import Iterator

from tidegate.databases.mysql import binlog_charsets as charsets
from tidegate.testing.servers.binlog import BinlogServer
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer

ROWS_MAX = 5000
ONLY_MYSQL = ("gb18030",)


def sequences(charset: str) -> Iterator[bytes]:
    """Yield all sequences of bytes that the tables have a cell for, in their order."""
    yield from (bytes([byte]) for byte in range(256))
    if charset in charsets.MULTI:
        yield from (bytes([lead, byte]) for lead in range(128, 256) for byte in range(256))
    if charset in charsets.TRIPLE:
        yield from (
            bytes([0x8F, second, third]) for second in range(128, 256) for third in range(128, 256)
        )


def load(server: BinlogServer) -> None:
    """Create a table with all sequences of all character sets."""
    wanted = sorted(
        {
            sequence
            for charset in (*charsets.SINGLE, *charsets.MULTI)
            for sequence in sequences(charset)
        }
    )
    server.execute(
        "create database charsets", "create table charsets.b (v varbinary(3) primary key)"
    )
    for start in range(0, len(wanted), ROWS_MAX):
        rows = ",".join(f"(x'{sequence.hex()}')" for sequence in wanted[start : start + ROWS_MAX])
        server.execute(f"insert into charsets.b values {rows}")


def characters_of(server: BinlogServer, charset: str) -> dict[bytes, str]:
    """Return the sequences that the server stores unchanged as one character."""
    as_text = f"cast(v as char character set {charset})"
    rows = server.execute(
        "set sql_mode = ''",
        f"select v, hex({as_text}), hex(convert({as_text} using utf32)) from charsets.b",
    )
    found = {
        bytes(v): bytes.fromhex(text).decode("utf-32-be")
        for v, kept, text in rows
        if kept is not None and bytes.fromhex(kept) == bytes(v)
    }
    single = {v: text for v, text in found.items() if len(v) == 1 and len(text) == 1}
    longer = {
        v: text
        for v, text in found.items()
        if len(v) > 1 and len(text) == 1 and v[:1] not in single
    }
    return single | longer


def common_characters(servers: list[BinlogServer], charset: str) -> dict[bytes, str]:
    """Return what all servers that have the set store and read in the same way."""
    found = [
        characters_of(server, charset)
        for server in (servers[-1:] if charset in ONLY_MYSQL else servers)
    ]
    both = {sequence for sequence in found[0] if all(sequence in other for other in found)}
    if wrong := [
        sequence.hex() for sequence in both if len({other[sequence] for other in found}) > 1
    ]:
        sys.exit(f"{charset}: the servers differ in {', '.join(wrong)}")
    return {sequence: found[0][sequence] for sequence in both}


def main() -> int:
    with MariaDbServer() as mariadb, MySqlServer() as mysql:
        servers: list[BinlogServer] = [mariadb, mysql]
        for server in servers:
            load(server)
        cells = []
        for charset in (*charsets.SINGLE, *charsets.MULTI):
            table = common_characters(servers, charset)
            cells += [table.get(sequence, "\0") for sequence in sequences(charset)]
            print(charset, len(table), flush=True)
    units = "".join(cells).encode("utf-16-le")
    assert len(units) == 2 * len(cells), "a character that needs two units"
    data = lzma.compress(units[::2] + units[1::2], preset=9 | lzma.PRESET_EXTREME)
    charsets.TABLES.write_bytes(data)
    print(f"{charsets.TABLES}: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
