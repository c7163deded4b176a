"""The line between a store and etcd: servers that stop, die or hold an election, answers that are
lost, logins.
"""

import base64
import http.client
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import TidegateError, UserError
from tidegate.store import (
    Change,
    Changes,
    Check,
    OutcomeUnknown,
    Put,
    Store,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from tidegate.store.backend import Committed, Retention
from tidegate.store.errors import AnswerLost
from tidegate.store.etcd.backend import EtcdBackend
from tidegate.store.etcd.errors import HistoryGone, TokenExpired, translate_answer
from tidegate.testing.servers.etcd import EtcdCluster, EtcdServer, free_ports
from tidegate.testing.store_durability import start_worker


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd-line")) as server:
        yield server


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def events(store: Store, map: str) -> tuple[Change, ...]:
    changes = store.changes(map, 0)
    assert isinstance(changes, Changes)
    return changes.events


class BadLine(ThreadingHTTPServer):
    """Stands before a server and passes all on, but for the next transactions that write, which
    meet what was ordered for them.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, server: EtcdServer) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.etcd = server
        self.orders: list[str] = []
        self.held: list[bytes] = []
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def url(self, prefix: str) -> str:
        return f"etcd://127.0.0.1:{self.server_address[1]}/{prefix}"

    def deliver(self) -> list[bool]:
        """What was held back reaches the server now; was it written?"""
        held, self.held = self.held, []
        return [
            bool(json.loads(self.passed_on("/v3/kv/txn", body)[1]).get("succeeded"))
            for body in held
        ]

    def passed_on(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd.port, timeout=10)
        try:
            connection.request("POST", path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def end(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BadLine

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        order = (
            self.server.orders.pop(0) if self.server.orders and b"/last" in _keys(body) else "pass"
        )
        self.close_connection = order in ("lose-request", "hold", "lose-answer")
        if order == "hold":
            self.server.held.append(body)
        if order in ("lose-request", "hold"):
            return
        status, answer = self.server.passed_on(self.path, body)
        if order == "lose-answer":
            return
        if order == "doubt":
            status, answer = (
                503,
                json.dumps(
                    {
                        "message": (
                            "etcdserver: request timed out, possibly due to previous leader failure"
                        ),
                        "code": 14,
                    }
                ).encode(),
            )
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        """The test says what matters."""


def _keys(body: bytes) -> bytes:
    """The keys that a transaction puts."""
    acts = json.loads(body).get("success", [])
    return b" ".join(
        base64.b64decode(act["request_put"]["key"]) for act in acts if "request_put" in act
    )


@pytest.fixture
def line(server: EtcdServer) -> Iterator[BadLine]:
    line = BadLine(server)
    yield line
    line.end()


@pytest.mark.parametrize("order", ["lose-answer", "doubt"])
def test_a_transaction_whose_answer_was_lost_on_the_line_is_found(
    line: BadLine, order: str
) -> None:
    store = open_store(line.url(f"found-{order}"))
    line.orders.append(order)
    assert store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"n": 1})]) == 1
    assert (len(store.list("jobs")), store.revision(), line.orders) == (1, 1, [])
    store.close()


@pytest.mark.parametrize("order", ["lose-request", "hold"])
def test_a_transaction_that_was_lost_on_the_line_is_not_written_even_if_it_arrives_later(
    line: BadLine, order: str
) -> None:
    store = open_store(line.url(f"lost-{order}"))
    line.orders.append(order)
    with pytest.raises(
        StoreUnavailable, match="the transaction was not written: the connection to etcd at 127"
    ):
        store.transact(writes=[Put("jobs", "a", {"n": 1})])
    assert line.deliver() == ([False] if order == "hold" else [])
    assert (store.get("jobs", "a"), store.revision()) == (None, 0)
    assert store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"n": 2})]) == 1
    store.close()


def test_a_transaction_that_arrives_before_it_is_given_up_counts(
    line: BadLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(line.url("just-in-time"), compaction_threshold=50)
    line.orders.append("hold")
    backend = store.backend
    assert isinstance(backend, EtcdBackend)
    give_up = backend._mark_void

    def late(*arguments: Any) -> None:
        assert line.deliver() == [True]  # after the log was read, before the token is marked
        give_up(*arguments)

    monkeypatch.setattr(backend, "_mark_void", late)
    assert store.transact(writes=[Put("jobs", "a", {})]) == 1
    assert (len(store.list("jobs")), store.revision()) == (1, 1)
    store.close()


@pytest.mark.parametrize(
    ("text", "code", "once", "without"),
    [
        (
            "etcdserver: request timed out, possibly due to previous leader failure",
            14,
            AnswerLost,
            StoreUnavailable,
        ),
        ("etcdserver: request timed out", 14, AnswerLost, StoreUnavailable),
        ("etcdserver: leader changed", 14, AnswerLost, StoreUnavailable),
        ("something new", 2, AnswerLost, StoreUnavailable),
        ("etcdserver: too many requests", 8, StoreUnavailable, StoreUnavailable),
        ("etcdserver: mvcc: database space exceeded", 8, StoreUnavailable, StoreUnavailable),
        ("etcdserver: request is too large", 3, StoreRefused, StoreRefused),
        ("etcdserver: duplicate key given in txn request", 3, StoreRefused, StoreRefused),
        ("etcdserver: permission denied", 7, UserError, UserError),
        ("etcdserver: authentication failed, invalid user ID or password", 3, UserError, UserError),
        ("etcdserver: invalid auth token", 16, TokenExpired, TokenExpired),
        ("etcdserver: mvcc: required revision has been compacted", 11, HistoryGone, HistoryGone),
    ],
)
def test_what_etcd_refuses_is_judged_by_whether_it_may_have_been_done(
    text: str, code: int, once: type[TidegateError], without: type[TidegateError]
) -> None:
    for judged, expected in (
        (translate_answer("host:1", {"message": text, "code": code}, once=flag), kind)
        for flag, kind in ((True, once), (False, without))
    ):
        assert type(judged) is expected
        assert "host:1" in str(judged)


def test_what_is_no_etcd_is_named(line: BadLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "passed_on", lambda *_: (404, b"Not Found"))
    with pytest.raises(UserError, match="is not the JSON gateway of etcd"):
        open_store(line.url("nobody"))


def test_a_server_that_stops_is_unavailable_and_comes_back_without_a_new_door(
    tmp_path: Path,
) -> None:
    with EtcdServer(tmp_path) as server:
        store = open_store(server.url)
        first = store.transact(writes=[Put("jobs", "a", {})])
        server.stop()
        for call in (
            lambda: store.get("jobs", "a"),
            lambda: store.transact(writes=[Put("jobs", "b", {})]),
        ):
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{server.port}"):
                call()
        server.start()
        assert (
            store.transact(
                [Check("jobs", "a", first), Check("jobs", "b", 0)], [Put("jobs", "b", {})]
            )
            == first + 1
        )
        server.stop()
        server.start()
        assert (
            store.transact(writes=[Put("jobs", "c", {})]) == first + 2
        )  # the old connection is known to be dead before anything is sent on it
        store.close()


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    with EtcdServer(tmp_path) as server:
        for life in range(3):
            writers = [start_worker(server.url, "record", worker, 0) for worker in range(2)]
            for process in writers:
                read_lines(process, 10 * (life + 1), acknowledged)
            server.kill()
            for process in writers:
                rest, _ = process.communicate()  # it ends with StoreUnavailable or OutcomeUnknown
                acknowledged.update(
                    {
                        key: int(revision)
                        for key, revision in (line.split() for line in rest.splitlines())
                    }
                )
                assert process.returncode == 1
            server.start()
        store = open_store(server.url)
        left, right = ({e.key: e.version for e in store.list(map)} for map in ("left", "right"))
        assert left == right, "a half-written transaction"
        assert acknowledged.items() <= left.items()
        assert len(acknowledged) >= 120
        store.close()


def read_lines(process: "subprocess.Popen[str]", lines: int, acknowledged: dict[str, int]) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        key, revision = process.stdout.readline().split()
        acknowledged[key] = int(revision)


def test_when_the_leader_of_three_is_killed_writing_goes_on_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    with EtcdCluster(tmp_path) as cluster:
        store = open_store(cluster.url)
        acknowledged = {
            f"{n:03d}": store.transact(writes=[Put("jobs", f"{n:03d}", {})]) for n in range(20)
        }
        cluster.leader().kill()
        refused = 0
        for n in range(20, 60):
            try:
                acknowledged[f"{n:03d}"] = store.transact(writes=[Put("jobs", f"{n:03d}", {})])
            except OutcomeUnknown as unknown:  # a slow election
                if isinstance(outcome := store.resolve_outcome(unknown.token), Committed):
                    acknowledged[f"{n:03d}"] = outcome.revision
            except StoreUnavailable:
                refused += 1
        assert refused < 30
        assert {e.key: e.version for e in store.list("jobs")} == acknowledged
        assert [change.version for change in events(store, "jobs")] == sorted(acknowledged.values())
        store.close()


def test_an_endpoint_that_is_not_there_is_passed_over(server: EtcdServer) -> None:
    (nobody,) = free_ports(1)
    store = open_store(server.url.replace("127.0.0.1:", f"127.0.0.1:{nobody},127.0.0.1:"))
    assert store.transact(writes=[Put("jobs", "a", {})]) == 1
    store.close()
    with pytest.raises(
        StoreUnavailable, match=f"cannot be reached: etcd at 127.0.0.1:{nobody} does not answer"
    ):
        open_store(f"etcd://127.0.0.1:{nobody}/tidegate")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server with a user who may work below `allowed` only."""
    with EtcdServer(tmp_path_factory.mktemp("guarded")) as server:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("user/add", {"name": "root", "password": "root-pass"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": "worker"}),
            (
                "role/grant",
                {
                    "name": "worker",
                    "perm": {
                        "permType": "READWRITE",
                        "key": b64(b"allowed/"),
                        "range_end": b64(b"allowed0"),
                    },
                },
            ),
            ("user/add", {"name": "ann", "password": "s3cret/word"}),
            ("user/grant", {"user": "ann", "role": "worker"}),
            ("enable", {}),
        ]
        server.ask("/v3/auth/role/add", {"name": "root"})
        for path, body in calls:
            assert "error" not in server.ask(f"/v3/auth/{path}", body)
        yield server


def open_as(server: EtcdServer, password: str, prefix: str, username: str = "ann") -> Store:
    endpoints = [f"127.0.0.1:{server.port}"]
    return Store(
        EtcdBackend(
            endpoints, prefix=prefix, retention=Retention(20), username=username, password=password
        )
    )


def test_a_user_with_a_password_works_below_what_is_allowed(guarded: EtcdServer) -> None:
    store = open_as(guarded, "s3cret/word", "allowed")
    for n in range(50):
        store.transact(writes=[Put("jobs", "a", {"n": n})])
    store.compact()  # etcd's own compaction is not allowed to her, and that is no error
    guarded.stop()
    guarded.start()  # which forgets all logins
    assert store.transact(writes=[Put("jobs", "a", {})]) == store.revision()
    store.close()


@pytest.mark.parametrize(
    ("username", "password", "prefix"),
    [
        ("ann", "wr0ng", "allowed"),
        ("bob", "wr0ng", "allowed"),
        ("ann", "s3cret/word", "other"),
        ("", "", "allowed"),
    ],
)
def test_who_is_not_allowed_is_told_so_without_the_password(
    guarded: EtcdServer, username: str, password: str, prefix: str
) -> None:
    with pytest.raises(UserError, match="does not let this user work on the store") as refused:
        open_as(guarded, password, prefix, username)
    assert not password or password not in str(refused.value)
