"""https and mutual TLS for real: servers with certificates that were made for this test, and
clients of every kind in front of them.
"""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main, remote
from tidegate.client import Client, Unreachable
from tidegate.client.client import Credentials
from tidegate.model.errors import UserError

TIMEOUT_S = 90
SERVER = [sys.executable, "-c", "from tidegate.cli import main; main()", "server", "--no-worker"]


@dataclass(frozen=True)
class Papers:
    """An authority with a server's and a client's certificate, and a client's of an authority that
    nobody knows.
    """

    place: Path

    def path(self, name: str) -> str:
        return str(self.place / name)

    def access(self, certificate: str = "", *, authorities: str = "ca.pem") -> Credentials:
        mine = (
            {
                "certificate": self.path(f"{certificate}.pem"),
                "private_key": self.path(f"{certificate}.key"),
            }
            if certificate
            else {}
        )
        return Credentials(authorities=self.path(authorities), **mine)


def openssl(*arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    made = Papers(tmp_path_factory.mktemp("papers"))
    path = made.path
    for authority in ("ca", "strange-ca"):
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        new = (
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "3650",
            "-subj",
            f"/CN={authority}",
        )
        openssl(*new, *usage, "-keyout", path(f"{authority}.key"), "-out", path(f"{authority}.pem"))
    for number, (name, authority) in enumerate(
        (("server", "ca"), ("client", "ca"), ("untrusted", "strange-ca")), 1
    ):
        made.place.joinpath(f"{name}.ext").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n"
            "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
        )
        new = (
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            f"/CN={name}",
        )
        openssl(*new, "-keyout", path(f"{name}.key"), "-out", path(f"{name}.csr"))
        signed = (
            "x509",
            "-req",
            "-in",
            path(f"{name}.csr"),
            "-CA",
            path(f"{authority}.pem"),
            "-CAkey",
            path(f"{authority}.key"),
            "-set_serial",
            str(number),
        )
        openssl(
            *signed, "-days", "3650", "-extfile", path(f"{name}.ext"), "-out", path(f"{name}.pem")
        )
    openssl(
        "pkcs8",
        "-topk8",
        "-in",
        path("server.key"),
        "-passout",
        "pass:geheim",
        "-out",
        path("locked.key"),
    )
    made.place.joinpath("nonsense.pem").write_text("hunter2 is no certificate\n")
    return made


def engine_file(
    place: Path,
    papers: Papers,
    *,
    key: str = "server.key",
    certificate: str = "server.pem",
    clients: str = "",
) -> Path:
    lines = [
        "tidegate:",
        "  http:",
        "    host: 127.0.0.1",
        "    enable-https: true",
        f"    certificate-file: {papers.path(certificate)}",
        f"    private-key-file: {papers.path(key)}",
        *([f"    client-authorities-file: {papers.path(clients)}"] if clients else []),
    ]
    file = place / "tidegate.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Site:
    """A server that speaks https, and where it writes."""

    place: Path
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def written(self) -> str:
        """Everything that it has printed and written below its home."""
        files = [
            self.place / "out.txt",
            *(path for path in (self.place / "home").rglob("*") if path.is_file()),
        ]
        return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@contextlib.contextmanager
def serving(place: Path, config: Path, sign: str) -> Iterator[Site]:
    """A server process, from its start to its graceful stop."""
    site, out = Site(place, free_port()), place / "out.txt"
    command = [
        *SERVER,
        "--home",
        str(place / "home"),
        "--config",
        str(config),
        "--http-port",
        str(site.port),
    ]
    with out.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
        )
    try:
        end_s = time.monotonic() + TIMEOUT_S
        while sign not in out.read_text() and process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.05)  # poll interval for another process
        assert sign in out.read_text(), out.read_text()
        yield site
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, out.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, papers: Papers) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("https")
    with serving(place, engine_file(place, papers), "ready at https://127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, papers: Papers) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("mutual")
    with serving(
        place, engine_file(place, papers, clients="ca.pem"), "ready at https://127.0.0.1"
    ) as made:
        yield made


def asked(site: Site, access: Credentials) -> str:
    return Client([site.url], access, retry_for_s=0).text(
        "/overview"
    )  # one try: the server is there


def test_client_and_command_line_come_in_by_https_with_the_authority(
    site: Site, papers: Papers
) -> None:
    assert "totalSlot" in asked(site, papers.access())
    result = CliRunner(env={"TIDEGATE_CLIENT_CERTIFICATE": ""}).invoke(
        main, ["jobs", "--json", "--server", site.url, "--ca-file", papers.path("ca.pem")]
    )
    assert (result.exit_code, result.stdout.strip()) == (0, "[]")
    result = CliRunner(env={"TIDEGATE_CA_FILE": papers.path("ca.pem")}).invoke(
        main, ["jobs", "--json", "--server", site.url]
    )
    assert result.exit_code == 0


def test_a_server_whose_authority_is_not_known_is_not_trusted(site: Site, papers: Papers) -> None:
    with pytest.raises(UserError, match="is not trusted"):
        asked(site, papers.access(authorities="strange-ca.pem"))
    result = CliRunner().invoke(
        main, ["jobs", "--server", site.url, "--ca-file", papers.path("strange-ca.pem")]
    )
    assert (result.exit_code, "is not trusted" in result.stderr, "--ca-file" in result.stderr) == (
        2,
        True,
        True,
    )
    result = CliRunner().invoke(
        main, ["jobs", "--server", site.url, "--ca-file", papers.path("nowhere.pem")]
    )
    assert (result.exit_code, "cannot be read" in result.stderr) == (2, True)


def test_plain_http_gets_no_answer_and_does_no_harm(site: Site, papers: Papers) -> None:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", site.port, timeout=TIMEOUT_S)
    ) as plain:
        plain.request("GET", "/overview")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()
    assert "totalSlot" in asked(site, papers.access())


def test_with_mutual_tls_only_who_shows_a_certificate_of_the_authority_comes_in(
    mutual: Site, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "RETRY_FOR_S", 0)
    assert "totalSlot" in asked(mutual, papers.access("client"))
    for certificate in ("", "untrusted"):
        with pytest.raises(Unreachable, match="TIDEGATE_CLIENT_CERTIFICATE"):
            asked(mutual, papers.access(certificate))
    mine = {
        "TIDEGATE_CLIENT_CERTIFICATE": papers.path("client.pem"),
        "TIDEGATE_CLIENT_KEY": papers.path("client.key"),
    }
    command = ["jobs", "--json", "--server", mutual.url, "--ca-file", papers.path("ca.pem")]
    assert CliRunner(env=mine).invoke(main, command).exit_code == 0
    result = CliRunner(env={"TIDEGATE_CLIENT_CERTIFICATE": ""}).invoke(main, command)
    assert (result.exit_code, "TIDEGATE_CLIENT_CERTIFICATE" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"key": "nowhere.key"}, r"nowhere\.key: No such file"),
        ({"certificate": "nonsense.pem"}, r"nonsense\.pem and the key .*server\.key"),
        ({"key": "client.key"}, "the key does not belong to the certificate"),
        ({"key": "locked.key"}, "the key has a pass phrase"),
        ({"clients": "nonsense.pem"}, r"nonsense\.pem: nothing usable"),
        ({"clients": "nowhere.pem"}, r"nowhere\.pem: No such file"),
    ],
)
def test_files_that_do_not_do_are_a_sentence_before_anything_is_bound(
    tmp_path: Path, papers: Papers, files: dict[str, str], words: str
) -> None:
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as taken:  # the port is taken: whoever binds first would complain about that
        arguments = [
            "server",
            "--no-worker",
            "--home",
            str(tmp_path / "home"),
            "--http-port",
            str(taken.getsockname()[1]),
        ]
        result = CliRunner().invoke(
            main, [*arguments, "--config", str(engine_file(tmp_path, papers, **files))]
        )
    assert result.exit_code == 2
    assert re.search(f"HTTPS cannot be served with .*{words}", result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert "hunter2" not in result.stderr
    assert not (tmp_path / "home").exists()


def test_no_private_key_is_ever_written_down(site: Site, mutual: Site, papers: Papers) -> None:
    for each in (site, mutual):
        written = each.written()
        assert "server_started" in written
        for name in ("server.key", "client.key"):
            body = [
                line
                for line in Path(papers.path(name)).read_text().splitlines()
                if "-----" not in line
            ]
            assert body
            assert not any(line in written for line in body)
