"""Global transaction ids: which transactions lie before a position, on every server.

Pure; called by binlog_scan.py and binlog_failover.py.

MariaDB: `0-1-100,5-1-7`, the last transaction of each domain. MySQL: `<uuid>:1-100:105,<uuid>:1-7`,
all of them as intervals; since MySQL 8.3 an interval may belong to a tag, and each tag is numbered
separately: `<uuid>:1-100:tag:1-3`.
"""

import struct
from collections.abc import Iterator

from tidegate.databases.mysql.binlog_events import EventType, LogEvent, parse_or_damaged

_ENTRIES_MAX = 100_000
Intervals = list[tuple[int, int]]


def gtid_of(event: LogEvent) -> str | None:
    """Return the id of the transaction that an event begins; None for other events."""
    if event.type == EventType.GTID_MARIADB and len(event.body) >= 13:
        sequence, domain = struct.unpack_from("<QI", event.body)
        return f"{domain}-{event.server_id}-{sequence}"
    if event.type == EventType.GTID_MYSQL and len(event.body) >= 25:
        return f"{_uuid(event.body[1:17])}:{int.from_bytes(event.body[17:25], 'little')}"
    if event.type == EventType.GTID_TAGGED:
        return parse_or_damaged(_tagged, event.body, "the id of a transaction")
    return None


def _tagged(body: bytes) -> str:
    """Parse the event of a tagged transaction.

    It has a version, a size and the last mandatory field; then numbered fields: flags, the bytes of
    the uuid, the number, the tag.
    """
    at = 0
    head = []
    for _ in range(3 + 2 + 1 + 16 + 2 + 2):
        value, at = _packed(body, at)
        head.append(value)
    if [head[n] for n in (3, 5, 22, 24)] != [0, 1, 2, 3]:
        raise ValueError("its fields have another order")
    source = _uuid(bytes(head[6:22]))
    number = head[23] >> 1  # the lowest bit is the sign
    size = head[25]
    tag = body[at : at + size].decode("ascii")
    return f"{source}:{tag}:{number}" if tag else f"{source}:{number}"


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends.

    The first byte ends with a one bit for each byte that follows.
    """
    first = data[at]
    extra = 0
    while extra < 8 and first >> extra & 1:
        extra += 1
    if at + 1 + extra > len(data):
        raise ValueError("it ends within a number")
    value = int.from_bytes(
        data[at + 1 : at + 9] if extra == 8 else data[at : at + 1 + extra], "little"
    )
    return value if extra == 8 else value >> extra + 1, at + 1 + extra


def _uuid(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GtidSet:
    """A set that only grows. Empty means unknown, as when a server writes no ids."""

    def __init__(self, text: str = "") -> None:
        # MariaDB: domain -> server, number.
        self._domains: dict[int, tuple[int, int]] = {}
        # MySQL: uuid, or uuid:tag -> intervals that include both ends.
        self._sources: dict[str, Intervals] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            self.add(part)

    def add(self, text: str) -> None:
        """Add one id, or a part of a set; ValueError if it cannot be parsed."""
        source, colon, numbers = text.partition(":")
        if not colon:
            domain, server, number = (int(n) for n in text.split("-"))
            self._domains[domain] = (server, number)
            return
        source = line = source.lower()
        for part in numbers.lower().split(":"):
            if part[:1].isalpha() or part.startswith("_"):
                line = f"{source}:{part}"
                continue
            low, _, high = part.partition("-")
            self._sources[line] = _with(self._sources.get(line, []), int(low), int(high or low))

    def __contains__(self, text: str) -> bool:
        line, colon, number = text.rpartition(":")
        if colon:
            return any(
                low <= int(number) <= high for low, high in self._sources.get(line.lower(), ())
            )
        domain, _, sequence = (int(n) for n in text.split("-"))
        return domain in self._domains and sequence <= self._domains[domain][1]

    def covers(self, other: "GtidSet") -> bool:
        """Return whether another set is a subset of this one."""
        if any(
            domain not in self._domains or number > self._domains[domain][1]
            for domain, (_, number) in other._domains.items()
        ):
            return False
        return all(
            any(low <= first and last <= high for low, high in self._sources.get(source, ()))
            for source, found in other._sources.items()
            for first, last in found
        )

    def diverges(self, other: "GtidSet") -> bool:
        """Return whether both end a domain with the same number of different servers.

        Then one of the transactions was never replicated.
        """
        return any(
            self._domains.get(domain, last)[1] == last[1]
            and self._domains.get(domain, last) != last
            for domain, last in other._domains.items()
        )

    @property
    def has_several_lines(self) -> bool:
        """Whether it has more than one domain or source.

        The order of their transactions may differ from server to server.
        """
        return len(self._domains) + len(self._sources) > 1

    def __bool__(self) -> bool:
        return bool(self._domains or self._sources)

    def __str__(self) -> str:
        ours = [
            f"{domain}-{server}-{number}"
            for domain, (server, number) in sorted(self._domains.items())
        ]
        parts: dict[str, list[str]] = {}
        for line, found in sorted(self._sources.items()):
            source, _, tag = line.partition(":")
            parts.setdefault(source, [source]).extend(
                [tag, _text(found)] if tag else [_text(found)]
            )
        return ",".join([*ours, *(":".join(part) for part in parts.values())])


def _with(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the intervals with another one; adjacent ones are merged."""
    if intervals and intervals[-1][1] + 1 == low:  # the usual case: the next transaction
        return [*intervals[:-1], (intervals[-1][0], high)]
    merged: Intervals = []
    for first, last in sorted([*intervals, (low, high)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _text(intervals: Intervals) -> str:
    return ":".join(str(low) if low == high else f"{low}-{high}" for low, high in intervals)


def listed_transactions(event: LogEvent) -> GtidSet | None:
    """Return the transactions before a file, if the event states them; else None."""
    if event.type == EventType.GTID_LIST:
        return parse_or_damaged(
            lambda body: _set(_mariadb_list(body)), event.body, "the list of transactions of a file"
        )
    if event.type == EventType.PREVIOUS_GTIDS:
        return parse_or_damaged(
            lambda body: _set(_mysql_list(body)), event.body, "the list of transactions of a file"
        )
    return None


def _set(parts: Iterator[str]) -> GtidSet:
    found = GtidSet()
    for part in parts:
        found.add(part)
    return found


def _mariadb_list(body: bytes) -> Iterator[str]:
    count = struct.unpack_from("<I", body)[0] & 0x0FFFFFFF
    if count > _ENTRIES_MAX:
        raise ValueError(f"{count} entries")
    for number in range(count):
        domain, server, sequence = struct.unpack_from("<IIQ", body, 4 + 16 * number)
        yield f"{domain}-{server}-{sequence}"


def _mysql_list(body: bytes) -> Iterator[str]:
    """Yield the intervals of MySQL's event.

    With tags, the last byte of the count is 1, and the count is between two such bytes.
    """
    (count,) = struct.unpack_from("<Q", body)
    at = 8
    tagged = body[7] == 1
    if tagged:
        count = int.from_bytes(body[1:7], "little")
    if count > _ENTRIES_MAX:
        raise ValueError(f"{count} entries")
    for _ in range(count):
        source = _uuid(body[at : at + 16])
        at += 16
        if tagged:
            size, at = _packed(body, at)
            source += f":{body[at : at + size].decode('ascii')}" if size else ""
            at += size
        (intervals,) = struct.unpack_from("<Q", body, at)
        at += 8
        if intervals > _ENTRIES_MAX:
            raise ValueError(f"{intervals} intervals")
        for _ in range(intervals):
            low, after = struct.unpack_from("<QQ", body, at)
            at += 16
            yield f"{source}:{low}-{after - 1}"
