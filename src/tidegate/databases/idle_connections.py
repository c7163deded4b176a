"""Pool of idle connections of one process. Called by the sessions of the databases.

A batch queries each database several times, and opening a connection costs more than a query. A
connection is pooled only if its use ended without an error; the server resets its session first, so
that no state of one use is left for the next. It has one user at a time. It is closed when it was
idle for a while, when it is old (a host name may resolve to another server by then), when the
server has closed it, and when the process ends; a forked process does not inherit it.
"""

import atexit
import hashlib
import json
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.url import Address

IDLE_S_MAX = 30.0
LIFETIME_S_MAX = 300.0
PER_ADDRESS_MAX = 2
"""Idle connections per address; further ones are closed after use."""
TOTAL_MAX = 8
"""Idle connections per process; the least recently used one is closed for a new one."""
CHECK_INTERVAL_S = 5.0


@dataclass(slots=True)
class IdleConnection:
    """A connection that is not in use."""

    connection: Any
    fileno: int
    close: Callable[[], None]
    opened_s: float
    since_s: float

    def is_usable(self, now_s: float) -> bool:
        """Whether it is young enough and the server has sent nothing.

        The server only sends something unasked when it closes the connection.
        """
        if now_s - self.since_s > IDLE_S_MAX or now_s - self.opened_s > LIFETIME_S_MAX:
            return False
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN)
        return not poller.poll(0)


class ClosedConnection:
    """Replaces a returned connection; each later use raises an error."""

    def __init__(self, address: Address) -> None:
        self._where = str(address)

    def __getattr__(self, name: str) -> Any:
        raise TransientDatabaseError(self._where, f"the session is closed; {name} was called")


_lock = threading.Lock()
_idle: dict[str, list[IdleConnection]] = {}
_closer_runs = False


def connection_key(address: Address, kind: str = "") -> str:
    """Hash of everything that two uses of a connection must share, including the password."""
    known = [
        address.system,
        address.host,
        address.port,
        address.database,
        address.user,
        address.password,
        kind,
    ]
    return hashlib.sha256(
        json.dumps([*known, sorted(address.properties.items())]).encode()
    ).hexdigest()


def take(key: str) -> IdleConnection | None:
    """Take an idle connection out of the pool; None if there is none."""
    while True:
        with _lock:
            found = _idle.get(key)
            one = found.pop() if found else None
            if not found:
                _idle.pop(key, None)
        if one is None or one.is_usable(time.monotonic()):
            return one
        one.close()


def put(key: str, connection: Any, fileno: int, close: Callable[[], None], opened_s: float) -> None:
    """Add a connection whose session was reset; closes an older one if the pool is full."""
    global _closer_runs
    now_s = time.monotonic()
    new = IdleConnection(connection, fileno, close, opened_s, now_s)
    with _lock:
        mine = _idle.setdefault(key, [])
        mine.append(new)
        over = [mine.pop(0)] if len(mine) > PER_ADDRESS_MAX else []
        if sum(map(len, _idle.values())) > TOTAL_MAX:
            over.append(min(_idle.values(), key=_last_use).pop(0))
        for empty in [name for name, many in _idle.items() if not many]:
            del _idle[empty]
        if not _closer_runs:
            _closer_runs = True
            threading.Thread(target=_close_expired, name="kept-connections", daemon=True).start()
    for one in over:
        one.close()


def _last_use(many: list[IdleConnection]) -> float:
    return many[0].since_s if many else time.monotonic()


def close_all() -> None:
    """Close all idle connections of this process."""
    with _lock:
        found = [one for many in _idle.values() for one in many]
        _idle.clear()
    for one in found:
        one.close()


def _close_expired() -> None:
    """Close connections that are idle for too long; ends when the pool is empty."""
    global _closer_runs
    while True:
        time.sleep(CHECK_INTERVAL_S)  # the interval between two checks
        now_s = time.monotonic()
        old: list[IdleConnection] = []
        with _lock:
            for key, many in list(_idle.items()):
                old += [one for one in many if now_s - one.since_s > IDLE_S_MAX]
                _idle[key] = [one for one in many if now_s - one.since_s <= IDLE_S_MAX]
                if not _idle[key]:
                    del _idle[key]
            _closer_runs = bool(_idle)
            ends = not _closer_runs
        for one in old:
            one.close()
        if ends:
            return


def _after_fork() -> None:
    global _lock, _closer_runs
    _lock = threading.Lock()
    # Without references the sockets close and sends nothing to the server.
    _idle.clear()
    _closer_runs = False


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
