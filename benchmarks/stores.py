"""The stores that the control plane is measured on, each fresh and gone at the end.

Called by control_plane.py and store_growth.py.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.sides import Trouble
from tidegate.testing.servers.etcd import EtcdServer
from tidegate.testing.servers.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where a store is, and how much room it takes there: what the disk holds, not what the
    documents add up to.
    """

    name: str
    url: str
    bytes: Callable[[], int]


def store_places(
    part: str, place: Path, shm: Path, names: Sequence[str]
) -> Iterator[AbstractContextManager[StorePlace]]:
    """Those that are wanted for a part of the benchmarks, one after the other."""
    for name in names:
        if name not in KINDS:
            raise Trouble(f"there is no store {name!r}: say {', '.join(KINDS)}")
        yield KINDS[name]((shm if name == "tmpfs" else place) / f"{part}-store-{name}")


def sqlite(directory: Path) -> AbstractContextManager[StorePlace]:
    """One file, with its log."""
    return _sqlite("sqlite", directory)


def tmpfs(directory: Path) -> AbstractContextManager[StorePlace]:
    """The same, without a disk below it: what is left is our own."""
    return _sqlite("tmpfs", directory)


@contextmanager
def _sqlite(name: str, directory: Path) -> Iterator[StorePlace]:
    directory.mkdir(parents=True)
    yield StorePlace(
        name,
        f"sqlite:///{directory / 'tidegate.db'}",
        lambda: sum(file.stat().st_size for file in directory.iterdir()),
    )


@contextmanager
def postgresql(directory: Path) -> Iterator[StorePlace]:  # noqa: ARG001  # own directory
    """A server of our own, with its own settings for everything; its log of changes is not counted,
    as it belongs to the server.
    """
    with PostgresServer() as server:

        def size() -> int:
            with psycopg.connect(server.url) as db:
                found = db.execute(
                    "select sum(pg_total_relation_size(oid)) from pg_class"
                    " where relnamespace = 'tidegate'::regnamespace and relkind = 'r'"
                )
                return int((found.fetchone() or [0])[0])

        yield StorePlace("postgresql", server.url, size)


@contextmanager
def etcd(directory: Path) -> Iterator[StorePlace]:
    """A server of our own: the size of its file."""
    with EtcdServer(directory) as server:
        yield StorePlace(
            "etcd", server.url, lambda: int(server.ask("/v3/maintenance/status", {})["dbSize"])
        )


KINDS: dict[str, Callable[[Path], AbstractContextManager[StorePlace]]] = {
    "sqlite": sqlite,
    "tmpfs": tmpfs,
    "postgresql": postgresql,
    "etcd": etcd,
}
