"""The client with servers that die, lose responses, or reject: real sockets on loopback."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tidegate.client import Client, NotAllowed, Refused, Unreachable
from tidegate.client.client import Credentials
from tidegate.model.errors import UserError

Answer = tuple[int, Any]


class Fake:
    """A server with scripted responses; records its requests."""

    def __init__(self, answer: Callable[[str, str, dict[str, str]], Answer | None]) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                self.rfile.read(int(self.headers.get("content-length") or 0))
                fake.asked.append((self.command, parts.path, query))
                fake.headers.append(dict(self.headers.items()))
                given = answer(self.command, parts.path, query)
                if given is None:  # the response is lost
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                data = json.dumps(given[1]).encode()
                self.send_response(given[0])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _do

            def log_message(self, *_: object) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Callable[..., Fake]]:
    made: list[Fake] = []

    def make(answer: Callable[[str, str, dict[str, str]], Answer | None]) -> Fake:
        made.append(Fake(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def dead() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def client_of(*servers: str, rounds: int = 3, **more: Any) -> Client:
    clock = iter(range(0, 10_000, 1))
    return Client(
        servers,
        retry_for_s=rounds,
        sleep=lambda _: None,
        monotonic_s=lambda: float(next(clock)),
        **more,
    )


def test_a_dead_server_is_skipped_and_not_tried_first_again(server) -> None:
    alive = server(lambda *_: (200, {"workers": "1"}))
    client = client_of(dead(), alive.url)
    assert client.get("/overview") == {"workers": "1"}
    assert client.get("/overview") == {"workers": "1"}
    assert len(alive.asked) == 2


def test_the_client_leaves_a_server_without_a_store(server) -> None:
    blind, seeing = (
        server(lambda *_: (503, {"status": "fail", "message": "no store"})),
        server(lambda *_: (200, [])),
    )
    assert client_of(blind.url, seeing.url).get("/running-jobs") == []


def test_unreachable_servers_are_named(server) -> None:
    with pytest.raises(Unreachable, match="--server"):
        client_of(dead()).get("/overview")
    blind = server(lambda *_: (503, {"status": "fail", "message": "the store cannot be reached"}))
    with pytest.raises(Unreachable, match="the store cannot be reached"):
        client_of(blind.url).get("/overview")


def test_a_rejected_request_is_not_repeated(server) -> None:
    strict = server(lambda *_: (400, {"status": "fail", "message": "the jobId is missing"}))
    with pytest.raises(Refused, match="the jobId is missing"):
        client_of(strict.url, strict.url).post("/stop-job", {})
    assert len(strict.asked) == 1
    closed = server(lambda *_: (401, {"status": "fail", "message": "who are you?"}))
    with pytest.raises(NotAllowed, match="who are you"):
        client_of(closed.url).get("/overview")


def test_a_submit_with_a_lost_response_is_one_job(server) -> None:
    taken: set[str] = set()

    def answer(_method: str, path: str, query: dict[str, str]) -> Answer | None:
        if path.startswith("/job-info/"):
            job_id = path.rpartition("/")[2]
            return 200, (
                {"jobId": job_id, "jobName": "mine"} if job_id in taken else {"jobId": job_id}
            )
        if query["jobId"] in taken:
            return 400, {"status": "fail", "message": f"job {query['jobId']} is RUNNING already"}
        taken.add(query["jobId"])
        return None

    losing = server(answer)
    made = client_of(losing.url).submit(b"{}", {"jobName": "mine"})
    assert made == {"jobId": next(iter(taken)), "jobName": "mine"}
    assert len(taken) == 1


def test_an_id_of_another_job_is_rejected(server) -> None:
    taken = server(lambda *_: (400, {"status": "fail", "message": "job 7 is RUNNING already"}))
    with pytest.raises(Refused, match="job 7 is RUNNING"):
        client_of(dead(), taken.url).submit(b"{}", {"jobId": "7"})


def test_credentials_are_sent_in_a_header_and_never_shown(server) -> None:
    open_server = server(lambda *_: (200, {}))
    access = Credentials(token="tg_secret")
    client_of(open_server.url, access=access).get("/overview")
    assert open_server.headers[0]["Authorization"] == "Bearer tg_secret"
    assert "secret" not in repr(access)
    client_of(open_server.url, access=Credentials(user="ann", password="sesame")).get("/overview")
    assert open_server.headers[1]["Authorization"] == "Basic YW5uOnNlc2FtZQ=="


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://ann:sesame@host:80"])
def test_invalid_server_addresses(address: str) -> None:
    with pytest.raises(UserError, match="not the address") as caught:
        Client([address])
    assert "sesame" not in str(caught.value)
