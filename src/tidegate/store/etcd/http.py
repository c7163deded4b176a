"""A client of etcd's JSON gateway over HTTP, with the standard library only.

etcd's client libraries conflict with the protobuf that Spark brings. Called by the etcd backend;
knows nothing of stores. An idempotent call goes to the next endpoint if one fails. Any other call
goes to the next one only while it is certain that none has received it; after that, no answer means
AnswerLost. Error texts contain no passwords and tokens.
"""

import http.client
import json
import os
import select
import ssl
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from tidegate.model.errors import UserError
from tidegate.store.errors import AnswerLost, StoreClosed, StoreUnavailable
from tidegate.store.etcd.errors import NotSent, TokenExpired, translate_answer

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0  # etcd itself gives up after 7 s, with an error that is more informative
IDLE_CONNECTIONS_MAX = 32
DEFAULT_PORT = 2379

_clients: "weakref.WeakSet[EtcdClient]" = weakref.WeakSet()


class EtcdClient:
    """Connections to one cluster. Thread-safe: each call uses its own connection."""

    def __init__(
        self, endpoints: Sequence[str], *, username: str, password: str, tls: bool
    ) -> None:
        self.endpoints = tuple(_host_and_port(endpoint) for endpoint in endpoints)
        if not self.endpoints:
            raise UserError(
                "the address of the store on etcd names no host: it is"
                " etcd://host:port[,host:port...]/prefix"
            )
        self.shown = ",".join(f"{host}:{port}" for host, port in self.endpoints)
        self._username = username
        self._password = password
        self._context = ssl.create_default_context() if tls else None
        self._token = ""
        self._preferred = 0  # the endpoint that answered last
        self._closed = False
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []
        self._mutex = threading.Lock()
        _clients.add(self)

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make an idempotent call, at one endpoint after the other."""
        return self._call(path, body, once=False)

    def call_once(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call that must not be made twice.

        StoreUnavailable = it was not made; AnswerLost = who knows.
        """
        return self._call(path, body, once=True)

    def suggest(self, path: str, body: dict[str, Any], *, to_each: bool = False) -> None:
        """Make an optional call whose failure is ignored, at any endpoint or at each."""
        for number in range(len(self.endpoints)):
            try:
                self._answer(number, path, body, once=False)
            except (StoreUnavailable, UserError):
                continue
            if not to_each:
                return

    def close(self) -> None:
        """Close the connections; may be repeated."""
        self._closed = True
        self._drop_idle()

    def forget_parent(self) -> None:
        """In a forked child: the connections are the parent's, and threads that held a lock are not
        here.
        """
        self._mutex = threading.Lock()
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _call(self, path: str, body: dict[str, Any], *, once: bool) -> dict[str, Any]:
        failures: list[str] = []
        first = self._preferred
        for step in range(len(self.endpoints)):
            number = (first + step) % len(self.endpoints)
            try:
                answer = self._answer(number, path, body, once=once)
            except NotSent as error:
                failures.append(str(error))
            except StoreUnavailable as error:
                self._preferred = (number + 1) % len(self.endpoints)
                if once:
                    raise
                failures.append(str(error))
            else:
                self._preferred = number
                return answer
        raise StoreUnavailable(
            f"the store on etcd ({self.shown}) cannot be reached: {'; '.join(failures)}"
        )

    def _answer(
        self, number: int, path: str, body: dict[str, Any], *, once: bool
    ) -> dict[str, Any]:
        """Of one endpoint.

        A token that is too old is turned away before anything is done, so the call may be made
        again with a new one.
        """
        data = json.dumps(body).encode()
        if not self._username:
            return self._post(number, path, data, once=once)
        for last in (False, True):
            try:
                token = self._token or self._log_in(number)
                return self._post(number, path, data, once=once, token=token)
            except TokenExpired:
                self._token = ""
                if last:
                    raise
        raise AssertionError("unreachable")

    def _log_in(self, number: int) -> str:
        data = json.dumps({"name": self._username, "password": self._password}).encode()
        try:
            self._token = str(
                self._post(number, "/v3/auth/authenticate", data, once=False).get("token", "")
            )
        except StoreUnavailable as error:
            raise NotSent(str(error)) from error
        return self._token

    def _post(
        self, number: int, path: str, data: bytes, *, once: bool, token: str = ""
    ) -> dict[str, Any]:
        where = "{}:{}".format(*self.endpoints[number])
        connection = self._connected(number, where)
        try:
            connection.request(
                "POST",
                path,
                data,
                {"Content-Type": "application/json", **({"Authorization": token} if token else {})},
            )
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            why = f"the connection to etcd at {where} broke: {str(error) or type(error).__name__}"
            raise (AnswerLost(why) if once else StoreUnavailable(why)) from error
        except BaseException:
            connection.close()
            raise
        self._give_back(number, connection)
        return _judged(where, response.status, text, once=once)

    def _new_connection(self, host: str, port: int) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        return http.client.HTTPSConnection(
            host, port, timeout=CONNECT_TIMEOUT_S, context=self._context
        )

    def _connected(self, number: int, where: str) -> http.client.HTTPConnection:
        connection = self._from_idle(number)
        if connection is not None:
            return connection
        host, port = self.endpoints[number]
        connection = self._new_connection(host, port)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NotSent(f"etcd at {where} does not answer ({error})") from error
        connection.sock.settimeout(ANSWER_TIMEOUT_S)
        return connection

    def _from_idle(self, number: int) -> http.client.HTTPConnection | None:
        """A connection that is still open.

        One that has something to read has nothing to say: the other side has closed it.
        """
        while True:
            with self._mutex:
                if self._closed:
                    raise StoreClosed()
                found = next((pair for pair in reversed(self._idle) if pair[0] == number), None)
                if found is None:
                    return None
                self._idle.remove(found)
            connection = found[1]
            if connection.sock is not None and not _readable(connection):
                return connection
            connection.close()

    def _give_back(self, number: int, connection: http.client.HTTPConnection) -> None:
        with self._mutex:
            if (
                not self._closed
                and connection.sock is not None
                and len(self._idle) < IDLE_CONNECTIONS_MAX
            ):
                self._idle.append((number, connection))
                return
        connection.close()


def _judged(where: str, status: int, text: bytes, *, once: bool) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if status == http.client.OK and isinstance(answer, dict):
        return answer
    if not isinstance(answer, dict):
        raise UserError(
            f"what answers at {where} is not the JSON gateway of etcd 3.4 or newer (HTTP status"
            f" {status}): check the address of the store"
        )
    raise translate_answer(where, answer, once=once)


def _readable(connection: http.client.HTTPConnection) -> bool:
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _host_and_port(endpoint: str) -> tuple[str, int]:
    host, colon, port = endpoint.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = endpoint, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(
            "an endpoint of the store on etcd is not host:port: the address is"
            " etcd://host:port[,host:port...]/prefix"
        )
    return host, int(port)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
