"""One replication stream per slot and host, shared by the processes of a user.

Tasks of a job run in several processes, one after the other, and each would make the server decode
the log again. So the first that reads owns the stream, in a thread; the others request their ranges
over a local socket. The name of the socket is the lock: the kernel gives it to one process, and
releases it when that process ends. Any obstacle raises StreamUnavailable before the first message:
then the range is read without a stream.
"""

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
import time
from array import array
from collections.abc import Generator
from contextlib import closing, suppress
from itertools import accumulate, pairwise
from typing import Any

from tidegate import __version__
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.postgres.replication import ReplicationStream
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError

IDLE_S_MAX = 60.0
TICK_S = 0.5
LOCK_S_MAX = 2.0
ANSWER_S_MAX = 10.0
"""A range that waits this long for another reader is read without the stream."""
_HEAD = struct.Struct("<II")
_PEER = struct.Struct("3i")


class StreamUnavailable(Exception):
    """There is no stream for a range, and why."""


class _StreamOwner:
    """The stream of this process for one slot, and the socket over which others read it."""

    def __init__(
        self, address: Address, slot: str, publication: str, listener: socket.socket
    ) -> None:
        self._address = address
        self._slot = slot
        self._publication = publication
        self._listener = listener
        self._secret = _digest(address, slot, publication, address.password)
        self._turn = threading.Lock()
        self._stream: ReplicationStream | None = None
        self._used_s = time.monotonic()
        self.ended = False
        listener.settimeout(TICK_S)
        threading.Thread(target=self._serve, name=f"stream-of-{slot}", daemon=True).start()

    def lists(self, start: int, end: int) -> Generator[list[bytes], None, None]:
        """Yield the messages of a range; StreamUnavailable before the first of them."""
        if not self._turn.acquire(timeout=LOCK_S_MAX):
            raise StreamUnavailable("another reader has not ended")
        try:
            if self.ended:
                raise StreamUnavailable("the stream was closed")
            with closing(self._from_stream(start, end)) as found:
                yield from found
        finally:
            self._used_s = time.monotonic()
            self._turn.release()

    def _from_stream(self, start: int, end: int) -> Generator[list[bytes], None, None]:
        begun = False
        for attempt in (1, 2):
            is_new = self._stream is None or not self._stream.covers(start)
            try:
                stream = self._opened(start) if is_new or self._stream is None else self._stream
                stream.check()
                for many in stream.lists(start, end):
                    begun = True
                    yield many
            except TidegateError as error:
                self._drop()
                if begun:
                    raise
                if (
                    is_new or attempt == 2
                ):  # a stream that was open before may have been cut off meanwhile
                    raise StreamUnavailable(str(error)) from error
            else:
                return

    def _opened(self, start: int) -> ReplicationStream:
        self._drop()
        self._stream = ReplicationStream(self._address, self._slot, self._publication, start)
        return self._stream

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _serve(self) -> None:
        """Serve readers of other processes, keep the stream alive, and end when it is idle."""
        while not self.ended:
            with suppress(OSError):
                peer, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve_peer,
                    args=(peer,),
                    name=f"range-of-{self._slot}",
                    daemon=True,
                ).start()
            self._keep_alive()

    def _keep_alive(self) -> None:
        idle = self._turn.acquire(blocking=False)
        try:
            if idle and time.monotonic() - self._used_s > IDLE_S_MAX:
                self._end()
            elif (stream := self._stream) is not None:
                stream.keep_alive(idle=idle)
        except Exception:  # the next reader meets the same error, or opens another stream
            if idle:
                self._drop()
        finally:
            if idle:
                self._turn.release()

    def close(self) -> None:
        """End the stream when nobody reads it."""
        with self._turn:
            self._end()

    def _end(self) -> None:
        self.ended = True
        self._drop()
        self._listener.close()

    def _serve_peer(self, peer: socket.socket) -> None:
        """Send one range to another process."""
        with peer, suppress(OSError, ValueError, KeyError, TypeError):
            if not _is_ours(peer):
                return
            peer.settimeout(ANSWER_S_MAX)
            with peer.makefile("rb") as lines:
                request = json.loads(lines.readline(4096))
            if not hmac.compare_digest(str(request["secret"]), self._secret):
                return
            peer.settimeout(None)
            ended: dict[str, Any] = {}
            try:
                with closing(self.lists(int(request["start"]), int(request["end"]))) as found:
                    for many in found:
                        peer.sendall(_framed(many))
            except StreamUnavailable as error:
                ended = {"unavailable": str(error)}
            except TidegateError as error:
                ended = {
                    "failed": getattr(error, "why", str(error)),
                    "code": getattr(error, "code", ""),
                }
            text = json.dumps(ended).encode()
            peer.sendall(_HEAD.pack(0, len(text)) + text)

    def forget_in_child(self) -> None:
        """Release everything in the child after a fork.

        The stream and the name of the socket belong to the parent.
        """
        self.ended = True
        self._listener.close()
        if (stream := self._stream) is not None:
            with suppress(Exception):
                os.close(stream.connection.pgconn.socket)


_guard = threading.Lock()
_owners: dict[str, _StreamOwner] = {}


def shared_lists(
    address: Address, slot: str, publication: str, start: int, end: int
) -> Generator[list[bytes], None, None]:
    """Yield the messages of a range in lists; StreamUnavailable before the first of them."""
    name = _digest(address, slot, publication, "")
    with _guard:
        holder = _owners.get(name)
        if holder is None or holder.ended:
            listener = _listen(name)
            holder = (
                _StreamOwner(address, slot, publication, listener) if listener is not None else None
            )
            _owners.pop(name, None)
            if holder is not None:
                _owners[name] = holder
    if holder is not None:
        yield from holder.lists(start, end)
    else:
        yield from _read_remote(
            name,
            address,
            {
                "start": start,
                "end": end,
                "secret": _digest(address, slot, publication, address.password),
            },
        )


def close_streams() -> None:
    """End the streams of this process."""
    with _guard:
        for holder in _owners.values():
            holder.close()
        _owners.clear()


def _read_remote(
    name: str, address: Address, request: dict[str, Any]
) -> Generator[list[bytes], None, None]:
    """Read a range from the process that owns the stream."""
    begun = False
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(ANSWER_S_MAX)
            peer.connect(_path(name))
            if not _is_ours(peer):
                raise StreamUnavailable("the stream is owned by another user")
            peer.settimeout(None)
            peer.sendall(json.dumps(request).encode() + b"\n")
            with peer.makefile("rb", buffering=1 << 20) as data:
                while True:
                    many = _unframed(data)
                    if isinstance(many, dict):
                        break
                    begun = True
                    yield many
    except OSError as error:
        if begun:
            raise TransientDatabaseError(
                str(address), f"the process that owns the replication stream ended: {error}"
            ) from None
        raise StreamUnavailable(
            f"the process that owns the stream does not answer: {error}"
        ) from None
    if "unavailable" in many:
        raise StreamUnavailable(many["unavailable"])
    if "failed" in many:
        raise TransientDatabaseError(str(address), many["failed"], many["code"])


def _framed(many: list[bytes]) -> bytes:
    sizes = array("I", map(len, many))
    return b"".join((_HEAD.pack(len(many), sum(sizes)), sizes.tobytes(), *many))


def _unframed(data: Any) -> list[bytes] | dict[str, Any]:
    """Return messages, or how the range ended."""
    count, size = _HEAD.unpack(_whole(data, _HEAD.size))
    if not count:
        ended: dict[str, Any] = json.loads(_whole(data, size))
        return ended
    sizes = array("I", _whole(data, 4 * count))
    text = _whole(data, size)
    return [text[low:high] for low, high in pairwise(accumulate(sizes, initial=0))]


def _whole(data: Any, size: int) -> bytes:
    found: bytes = data.read(size)
    if len(found) != size:
        raise ConnectionResetError("it ended within a range")
    return found


def _listen(name: str) -> socket.socket | None:
    """Return a socket with this name; None if another process has it."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_path(name))
        listener.listen(16)
    except OSError:
        listener.close()
        return None
    return listener


def _path(name: str) -> str:
    """Return a name in the abstract namespace of Linux: a kill leaves no file behind."""
    return f"\0tidegate-{os.getuid()}-{name}"


def _is_ours(peer: socket.socket) -> bool:
    """Return whether the peer is a process of this user."""
    _, user, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.getuid())


def _digest(address: Address, slot: str, publication: str, password: str) -> str:
    known = [
        str(address),
        address.user,
        sorted(address.properties.items()),
        slot,
        publication,
        __version__,
        password,
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _after_fork() -> None:
    global _guard  # a thread of the parent may have locked it
    _guard = threading.Lock()
    for holder in _owners.values():
        holder.forget_in_child()
    _owners.clear()


os.register_at_fork(after_in_child=_after_fork)
