"""Global transaction ids: which transactions lie before a position, in words that every server of a
replication setup understands.

Pure; called by scan and failover.

MariaDB: `0-1-100,5-1-7`, the last transaction of each domain. MySQL: `<uuid>:1-100:105,<uuid>:1-7`,
all of them as intervals; since MySQL 8.3 an interval may belong to a tag, and tags are counted one
by one: `<uuid>:1-100:tag:1-3`.
"""

import struct
from collections.abc import Iterator

from tidegate.databases.mysql.binlog_events import EventType, LogEvent, parsed

_ENTRIES_MAX = 100_000
Intervals = list[tuple[int, int]]


def gtid_of(event: LogEvent) -> str | None:
    """The id of the transaction that an event begins."""
    if event.type == EventType.GTID_MARIADB and len(event.body) >= 13:
        sequence, domain = struct.unpack_from("<QI", event.body)
        return f"{domain}-{event.server_id}-{sequence}"
    if event.type == EventType.GTID_MYSQL and len(event.body) >= 25:
        return f"{_uuid(event.body[1:17])}:{int.from_bytes(event.body[17:25], 'little')}"
    if event.type == EventType.GTID_TAGGED:
        return parsed(_tagged, event.body, "the id of a transaction")
    return None


def _tagged(body: bytes) -> str:
    """A version, a size and the last field that must be known; then fields after their numbers:
    flags, the bytes of the uuid, the number, the tag.
    """
    at = 0
    head = []
    for _ in range(3 + 2 + 1 + 16 + 2 + 2):
        value, at = _packed(body, at)
        head.append(value)
    if [head[n] for n in (3, 5, 22, 24)] != [0, 1, 2, 3]:
        raise ValueError("its fields have another order")
    source, number, size = (
        _uuid(bytes(head[6:22])),
        head[23] >> 1,
        head[25],
    )  # the number has its sign in its lowest bit
    tag = body[at : at + size].decode("ascii")
    return f"{source}:{tag}:{number}" if tag else f"{source}:{number}"


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """A number whose first byte ends with a one for each byte that follows, and where it ends."""
    first = data[at]
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    if at + 1 + more > len(data):
        raise ValueError("it ends within a number")
    value = int.from_bytes(
        data[at + 1 : at + 9] if more == 8 else data[at : at + 1 + more], "little"
    )
    return value if more == 8 else value >> more + 1, at + 1 + more


def _uuid(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GtidSet:
    """A set that only grows. Empty: nothing is known, as where a server writes no ids."""

    def __init__(self, text: str = "") -> None:
        self._domains: dict[int, tuple[int, int]] = {}  # MariaDB: domain -> server, number
        self._sources: dict[
            str, Intervals
        ] = {}  # MySQL: uuid, or uuid:tag -> intervals, both ends inside
        for part in filter(None, (p.strip() for p in text.split(","))):
            self.add(part)

    def add(self, text: str) -> None:
        """One id, or a part of a set; ValueError where it is none."""
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
        """Whether all of another set is in this one."""
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
        """Whether both end a domain with the same number, by transactions of two servers: one of
        them was never replicated.
        """
        return any(
            self._domains.get(domain, last)[1] == last[1]
            and self._domains.get(domain, last) != last
            for domain, last in other._domains.items()
        )

    @property
    def many(self) -> bool:
        """Whether transactions of more than one line are in it, whose order may differ from server
        to server.
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
    """With one more; those that touch become one."""
    if intervals and intervals[-1][1] + 1 == low:  # the usual: the next one
        return [*intervals[:-1], (intervals[-1][0], high)]
    kept: Intervals = []
    for first, last in sorted([*intervals, (low, high)]):
        if kept and first <= kept[-1][1] + 1:
            kept[-1] = (kept[-1][0], max(kept[-1][1], last))
        else:
            kept.append((first, last))
    return kept


def _text(intervals: Intervals) -> str:
    return ":".join(str(low) if low == high else f"{low}-{high}" for low, high in intervals)


def list_of(event: LogEvent) -> GtidSet | None:
    """The transactions before a file, as the event at its head tells; None for other events."""
    if event.type == EventType.GTID_LIST:
        return parsed(
            lambda body: _set(_mariadb_list(body)), event.body, "the list of transactions of a file"
        )
    if event.type == EventType.PREVIOUS_GTIDS:
        return parsed(
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
    """Where there are tags, the last byte of the count is 1 and the count stands between two such
    bytes.
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
