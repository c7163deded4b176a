"""Encrypted connections to real servers, with certificates of a test authority.

All connections of a source are encrypted, and untrusted servers are rejected.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_kit import Mirror, make_source
from database_kit import Place
from test_mysql_cdc import EVERY_TYPE, VALUES

from tidegate.databases.dialect import dialect_of
from tidegate.databases.errors import TlsFailed
from tidegate.databases.session import open_session
from tidegate.databases.url import System, parse_url
from tidegate.home import Home
from tidegate.model.records import JobOutcome, JobStatus
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Papers:
    """An authority, a server certificate that it signed, and an unrelated authority."""

    authority: Path
    certificate: Path
    key: Path
    untrusted: Path


@pytest.fixture(scope="module")
def papers() -> Iterator[Papers]:
    """Certificates in a directory that servers running as another user can read."""
    place = Path(tempfile.mkdtemp(prefix="tidegate-papers-"))
    place.chmod(0o755)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True, timeout=120)

    try:
        for name in ("authority", "untrusted"):
            openssl(
                "req",
                "-x509",
                *CURVE,
                "-keyout",
                f"{name}.key",
                "-out",
                f"{name}.pem",
                "-days",
                "30",
                "-subj",
                f"/CN={name}",
            )
        openssl(
            "req", *CURVE, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=tidegate"
        )
        (place / "names").write_text("subjectAltName = IP:127.0.0.1\n")
        signing = [
            "-CA",
            "authority.pem",
            "-CAkey",
            "authority.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "names",
        ]
        openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *signing)
        (place / "server.key").chmod(0o600)
        if os.geteuid() == 0:  # the server of MariaDB is root then, that of PostgreSQL is not
            shutil.chown(place / "server.key", "root", "postgres")
            (place / "server.key").chmod(0o640)
        yield Papers(
            place / "authority.pem",
            place / "server.pem",
            place / "server.key",
            place / "untrusted.pem",
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def maria_tls(papers: Papers) -> Iterator[MariaDbServer]:
    """A server that accepts the user `careful` only over TLS."""
    settings = {
        "ssl-cert": str(papers.certificate),
        "ssl-key": str(papers.key),
        "innodb-flush-method": "nosync",
        "sync-binlog": "0",
    }
    with MariaDbServer(settings=settings) as server:
        server.execute(
            "create user careful@'127.0.0.1' identified by 'x' require ssl",
            "grant all on *.* to careful@'127.0.0.1'",
            "create database shop",
        )
        server.execute(
            EVERY_TYPE,
            *(f"insert into everything values {values}" for values in VALUES),
            database="shop",
        )
        yield server


@pytest.fixture(scope="module")
def postgres_tls(papers: Papers) -> Iterator[PostgresServer]:
    """A server that rejects unencrypted connections."""
    rules = papers.certificate.with_name("rules")
    rules.write_text(
        "hostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust\n"
    )
    files = {
        "ssl_cert_file": str(papers.certificate),
        "ssl_key_file": str(papers.key),
        "hba_file": str(rules),
    }
    with PostgresServer(
        settings={"wal_level": "logical", "ssl": "on", "fsync": "off", **files}
    ) as server:
        yield server


@pytest.mark.parametrize(
    "parameters",
    [
        "sslMode=VERIFY_IDENTITY&serverSslCert={ca}",
        "useSSL=true&verifyServerCertificate=true&sslrootcert={ca}",
        "requireSSL=true",
    ],
)
def test_mariadb_reads_are_encrypted(
    maria_tls: MariaDbServer, papers: Papers, parameters: str
) -> None:
    url = f"{maria_tls.url('shop')}?{parameters.format(ca=papers.authority)}"
    mirror = Mirror(
        make_source(
            "MySQL-CDC",
            {
                "url": url,
                "username": "careful",
                "password": "x",
                "table-names": ["shop.everything"],
            },
        )
    )
    mirror.run()
    assert len(mirror.rows) == 2
    maria_tls.execute("insert into everything (id, v) values (3, 'new')", database="shop")
    mirror.run()
    assert len(mirror.rows) == 3
    maria_tls.execute("delete from everything where id = 3", database="shop")


def test_rows_over_an_encrypted_connection_are_the_same_in_every_type(
    maria_tls: MariaDbServer,
) -> None:
    dialect = dialect_of(System.MYSQL)
    found = []
    for parameters in ("", "?sslMode=REQUIRED"):
        address = parse_url(maria_tls.url("shop") + parameters, maria_tls.user, maria_tls.password)
        with open_session(address) as session:
            info = dialect.table_info(session, dialect.parse_table("shop.everything", address))
            assert bool(session.query("show session status like 'Ssl_cipher'")[0][1]) == bool(
                parameters
            )
        assert info is not None
        types = [(c.name, dialect.data_type(c)) for c in info.columns]
        selected = ", ".join(
            dialect.expression(c, kind) for c, (_, kind) in zip(info.columns, types, strict=True)
        )
        batches = dialect.batches(
            address, f"select {selected} from everything order by id", types, 0
        )
        found.append([row for batch in batches for row in batch.to_pylist()])
    assert found[0] == found[1]
    assert len(found[0]) == 2


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("sslMode=VERIFY_CA&serverSslCert={untrusted}", "certificate verify failed"),
        ("useSSL=true&verifyServerCertificate=true", "certificate verify failed"),
        ("sslMode=VERIFY_CA&serverSslCert=/no/such.pem", "/no/such.pem"),
        ("sslMode=SOMETIMES", "one of DISABLED, REQUIRED"),
    ],
)
def test_untrusted_mariadb_is_rejected_with_a_remedy(
    maria_tls: MariaDbServer, papers: Papers, parameters: str, why: str
) -> None:
    url = f"{maria_tls.url('shop')}?{parameters.format(untrusted=papers.untrusted)}"
    source = make_source(
        "MySQL-CDC",
        {"url": url, "username": "careful", "password": "x", "table-names": ["shop.everything"]},
    )
    with pytest.raises(TlsFailed, match=f"(?s){why}.*sslrootcert=/path/ca.pem"):
        source.tables()


def test_server_without_tls_is_rejected(mariadb: MariaDbServer, maria: Place, pg: Place) -> None:
    for url, user, password in (
        (f"{maria.url}?requireSSL=true", maria.user, maria.password),
        (f"{pg.url}?sslmode=require", pg.user, pg.password),
    ):
        with pytest.raises(TlsFailed, match="cannot open an encrypted connection"):
            open_session(parse_url(url, user, password))
    assert mariadb.port


@pytest.mark.timeout(600)
def test_postgres_reads_are_encrypted_and_untrusted_servers_rejected(
    papers: Papers, postgres_tls: PostgresServer
) -> None:
    url = f"jdbc:postgresql://127.0.0.1:{postgres_tls.port}/postgres"
    with psycopg.connect(postgres_tls.url, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, name text)")
        connection.execute("alter table orders replica identity full")
        connection.execute("insert into orders values (1, 'a')")

        def source(parameters: str, settings: dict[str, Any] | None = None) -> Any:
            options = {
                "url": url + parameters,
                "username": "postgres",
                "password": "any",
                "slot.name": "tls",
                "table-names": ["postgres.public.orders"],
            }
            return make_source(
                "Postgres-CDC", {**options, **({"debezium": settings} if settings else {})}
            )

        mirror = Mirror(source(f"?ssl=true&sslrootcert={papers.authority}"))
        mirror.run()
        with mirror.source.session() as session:
            assert (
                session.scalar("select ssl from pg_stat_ssl where pid = pg_backend_pid()") is True
            )
        connection.execute("insert into orders values (2, 'b')")
        mirror.source = source(
            "",
            {"database.sslmode": "verify-ca", "database": {"sslrootcert": str(papers.authority)}},
        )
        mirror.run()
        assert len(mirror.rows) == 2
        for parameters in (
            f"?sslmode=verify-ca&sslrootcert={papers.untrusted}",
            "?sslmode=verify-full&sslrootcert=/no/such.pem",
            "?sslmode=often",
        ):
            with pytest.raises(TlsFailed, match="set the certificate authority"):
                source(parameters).tables()
        connection.execute("select pg_drop_replication_slot('tls')")


def copy(home: Path, source: str, target: str) -> JobOutcome:
    """A whole job from one table to another, in several batches."""
    file = home.with_suffix(".conf")
    file.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "copy", checkpoint.interval = 10
  batch.max-rows = 50, job.retry.times = 0 }}
source {{ Jdbc {{ {source} use_select_count = true, split.size = 20 }} }}
sink {{ Jdbc {{ {target} generate_sink_sql = true, data_save_mode = "DROP_DATA" }} }}"""
    )
    return run_in_process(str(file), Home(home), PlainEngine()).outcome


@pytest.mark.timeout(600)
def test_job_is_encrypted_at_both_ends(
    maria_tls: MariaDbServer, postgres_tls: PostgresServer, papers: Papers, tmp_path: Path
) -> None:
    """Both servers reject unencrypted connections.

    The first job verifies their certificates, the job in the other direction does not.
    """
    maria_tls.execute(
        "create table wares (id int primary key, name varchar(40))",
        "insert into wares select seq, concat('ü', seq) from seq_1_to_120",
        database="shop",
    )

    def maria(parameters: str, table: str) -> str:
        return (
            f'url = "{maria_tls.url("shop")}?{parameters}", driver = "org.mariadb.jdbc.Driver",'
            f" username = careful, password = x, {table},"
        )

    def postgres(parameters: str, table: str) -> str:
        url = f"jdbc:postgresql://127.0.0.1:{postgres_tls.port}/postgres?{parameters}"
        return (
            f'url = "{url}", driver = "org.postgresql.Driver", username = postgres, password = any,'
            f" {table},"
        )

    there = copy(
        tmp_path / "there",
        maria(f"sslMode=VERIFY_CA&serverSslCert={papers.authority}", 'table_path = "shop.wares"'),
        postgres(f"sslmode=verify-ca&sslrootcert={papers.authority}", 'table = "public.copied"'),
    )
    back = copy(
        tmp_path / "back",
        postgres("sslmode=require", 'table_path = "public.copied"'),
        maria("requireSSL=true", 'database = shop, table = "back"'),
    )
    assert (there.status, back.status) == (JobStatus.FINISHED, JobStatus.FINISHED), (there, back)
    address = parse_url(f"{maria_tls.url('shop')}?sslMode=REQUIRED", "careful", "x")
    with open_session(address) as session:
        assert session.query("select id, name from back order by id") == [
            (n, f"ü{n}") for n in range(1, 121)
        ]
    untrusted = copy(
        tmp_path / "untrusted",
        postgres(
            f"sslmode=verify-ca&sslrootcert={papers.untrusted}", 'table_path = "public.copied"'
        ),
        maria("requireSSL=true", 'database = shop, table = "never"'),
    )
    assert untrusted.status is JobStatus.FAILED
    assert [failure.condition for failure in untrusted.failures] == [TlsFailed.condition]
