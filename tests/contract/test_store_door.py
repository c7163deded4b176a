"""`open_store` opens what is a store, makes what is not there, and says in a sentence what is wrong
with anything else.
"""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tidegate
from tidegate.model.errors import Domain, UserError
from tidegate.store import Put, StoreDamaged, StoreUnavailable, open_store
from tidegate.store.backend import Retention
from tidegate.store.memory import MemoryBackend
from tidegate.store.sqlite.errors import StoreTooNew, translate_errors
from tidegate.testing.servers.postgres import PostgresServer

NO_ADDRESSES = [
    "",
    "x",
    "mysql://u:geheim@h/db",
    "redis://h?password=geheim",
    "postgresql:",
    "postgresql:/db",
    "etcd:",
    "etcd:h:2379",
]
NO_ADDRESSES += ["sqlite:", "sqlite:/x.db", "sqlite://x.db", "sqlite:///", "memory", "memory:x"]


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_an_invalid_url_is_rejected_with_the_valid_forms(url: str) -> None:
    with pytest.raises(
        UserError, match=r"sqlite:///absolute/path .*postgresql://.* etcd://.* memory:"
    ) as error:
        open_store(url)
    assert "geheim" not in str(error.value)


def test_a_threshold_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="compaction-threshold is 0"):
        open_store("memory:", compaction_threshold=0)


def test_a_postgresql_store_can_be_opened_by_both_names_of_its_scheme(
    postgres: PostgresServer,
) -> None:
    first = open_store(f"{postgres.url}?schema=door")
    first.transact(writes=[Put("jobs", "a", {})])
    second = open_store(f"{postgres.url.replace('postgresql:', 'postgres:')}?schema=door")
    assert [e.key for e in second.list("jobs")] == ["a"]
    for store in (first, second):
        store.close()


class RecordedEtcd(MemoryBackend):
    """Takes what the door makes of an address; an etcd that speaks TLS or has users is not at hand
    here.
    """

    taken: ClassVar[dict[str, Any]] = {}

    def __init__(self, endpoints: Sequence[str], *, retention: Retention, **options: Any) -> None:
        super().__init__(retention=retention)
        RecordedEtcd.taken = {"endpoints": endpoints, **options}


PLAIN = {"create": True, "prefix": "tidegate", "username": "", "password": "", "tls": False}


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("etcd://one", {"endpoints": ["one:2379"]}),
        ("etcd://one:1,two:2,[::1]:3/", {"endpoints": ["one:1", "two:2", "[::1]:3"]}),
        ("etcd://[::1]/a/b", {"endpoints": ["[::1]:2379"], "prefix": "a/b"}),
        (
            "etcd://tide:ge%40heim%2F@one:1/blue?tls=true",
            {
                "endpoints": ["one:1"],
                "prefix": "blue",
                "username": "tide",
                "password": "ge@heim/",
                "tls": True,
            },
        ),
    ],
)
def test_an_address_of_an_etcd_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch, url: str, taken: dict[str, Any]
) -> None:
    monkeypatch.setattr("tidegate.store.etcd.backend.EtcdBackend", RecordedEtcd)
    open_store(url).close()
    assert RecordedEtcd.taken == {**PLAIN, **taken}


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "/p",
        "one:x",
        "one:1,",
        ":1",
        "u:geheim@",
        "u:gehe@im@one:1",
        "[::1",
        "u:geheim@one:1?ssl=yes",
        "one?tls=yes",
        "one#p",
    ],
)
def test_an_address_of_an_etcd_that_is_none_is_refused_without_its_password(rest: str) -> None:
    with pytest.raises(UserError, match="is not the address of an etcd") as error:
        open_store(f"etcd://{rest}")
    assert "gehe" not in str(error.value)


@pytest.mark.parametrize("name", ["store.db", "100% größe?.db", "a#b c.db", "file:x"])
def test_the_path_is_taken_literally_and_the_file_is_private(tmp_path: Path, name: str) -> None:
    open_store(f"sqlite:///{tmp_path / name}").close()
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {name, name + ".lock"}


def test_memory_stores_are_independent() -> None:
    first, second = open_store("memory:"), open_store("memory:")
    first.transact(writes=[Put("jobs", "a", {})])
    assert second.list("jobs") == []


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"the directory {tmp_path}/no of the store does not exist"):
        open_store(f"sqlite:///{tmp_path}/no/store.db")


def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(UserError, match=r"store\.db cannot be a file there"):
        open_store(f"sqlite:///{tmp_path}/store.db")


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be a file there"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    text = "this is a letter, not a database\n" * 100
    (tmp_path / "store.db").write_text(text)
    with pytest.raises(StoreDamaged, match="is not a store"):
        open_store(f"sqlite:///{tmp_path}/store.db")
    assert (tmp_path / "store.db").read_text() == text


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    assert store.transact(writes=[Put("jobs", "a", {})]) == 1
    store.close()


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    _execute(tmp_path / "store.db", "create table photos (name text)")
    with pytest.raises(UserError, match="a database of something else"):
        open_store(f"sqlite:///{tmp_path}/store.db")
    assert _execute(tmp_path / "store.db", "select name from sqlite_schema") == [("photos",)]


def test_a_newer_schema_is_refused_by_its_number(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/store.db").close()
    _execute(tmp_path / "store.db", "update schema_version set version = 7")
    with pytest.raises(StoreTooNew, match="has schema version 7; this Tidegate knows up to 1"):
        open_store(f"sqlite:///{tmp_path}/store.db")


def test_a_damaged_file_is_named_when_the_damage_is_met(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    for n in range(20):
        store.transact(writes=[Put("jobs", f"{n}-{m}", {"text": "x" * 300}) for m in range(20)])
    store.close()
    content = bytearray((tmp_path / "store.db").read_bytes())
    content[8192:] = b"\x55" * (len(content) - 8192)
    (tmp_path / "store.db").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"store\.db is damaged.*restore it from a copy"):
        open_store(f"sqlite:///{tmp_path}/store.db").list("jobs")


def test_a_value_that_is_damaged_inside_is_named_with_its_key(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    store.transact(writes=[Put("jobs", "a", {}), Put("jobs", "b", {})])
    for text in ("{", "[]"):
        _execute(tmp_path / "store.db", f"update entries set value = '{text}' where key = 'b'")
        first, second = store.list("jobs")
        assert first.value == {}
        with pytest.raises(
            StoreDamaged, match="the stored document jobs/b is damaged and is not used: it is not"
        ):
            _ = second.value
    store.close()


@pytest.mark.skipif(os.getuid() != 0, reason="changes its user, to one that may not write")
@pytest.mark.parametrize("made", [True, False])
def test_a_store_that_may_not_be_written_says_so(made: bool) -> None:
    done = _in_process(PERMISSION_SCRIPT, "made" if made else "")
    assert "UserError" in done
    assert "cannot be opened for writing" in done
    assert "check the permissions" in done


PERMISSION_SCRIPT = """
import os, sys, tempfile
from tidegate.store import open_store
with tempfile.TemporaryDirectory() as directory:
    if sys.argv[1]: open_store(f"sqlite:///{directory}/store.db").close()
    os.chmod(directory, 0o755)
    os.seteuid(65534)
    try: open_store(f"sqlite:///{directory}/store.db")
    except Exception as error: print(type(error).__name__, error)
    os.seteuid(0)
"""


def test_a_full_disk_leaves_nothing_half_written_and_writing_resumes() -> None:
    """The kernel's limit on the size of files stands in for a disk that is full."""
    assert _in_process(FULL_SCRIPT) == "StoreUnavailable not there\nstill 1 entry\n2 entries\n"


FULL_SCRIPT = """
import resource, signal, tempfile
from tidegate.store import Put, open_store
with tempfile.TemporaryDirectory() as directory:
    store = open_store(f"sqlite:///{directory}/store.db")
    store.transact(writes=[Put("jobs", "a", {})])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try: store.transact(writes=[Put("jobs", "b", {"text": "x" * 300_000})])
    except Exception as error: print(type(error).__name__, "there" if store.get("jobs", "b") else "not there")
    print("still", len(store.list("jobs")), "entry")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.transact(writes=[Put("jobs", "b", {"text": "x" * 300_000})])
    store.close()
    print(len(open_store(f"sqlite:///{directory}/store.db").list("jobs")), "entries")
"""


def test_a_full_disk_has_a_readable_message(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "small.db", isolation_level=None)
    database.execute("create table t (x text)")
    database.execute("pragma max_page_count = 2")
    with (
        pytest.raises(
            StoreUnavailable, match=r"the disk of the store /x is full .*, and nothing was written"
        ) as error,
        translate_errors(Path("/x")),
    ):
        database.execute("insert into t values (?)", ("x" * 20_000,))
    assert error.value.domain is Domain.EXTERNAL
    database.close()


def _execute(path: Path, statement: str) -> list[tuple[str, ...]]:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        return database.execute(statement).fetchall()
    finally:
        database.close()


def _in_process(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(tidegate.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
