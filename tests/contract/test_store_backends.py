"""Every backend passes the whole contract."""

import threading
from pathlib import Path

import pytest

from tidegate.store import Store, open_store
from tidegate.testing.store_contract import StoreContract
from tidegate.testing.store_durability import DurableStoreContract, run_workers
from tidegate.testing.store_worker import ACTS


class MemoryWorld:
    """All users share the first one's backend; workers are threads."""

    def __init__(self) -> None:
        self._first: Store | None = None

    def open(self, *, compaction_threshold: int = 10_000) -> Store:
        if self._first is None:
            self._first = open_store("memory:", compaction_threshold=compaction_threshold)
        return Store(self._first.backend)

    def work(self, act: str, *, workers: int, amount: int) -> None:
        errors: list[BaseException] = []

        def work(worker: int) -> None:
            try:
                ACTS[act](self.open(), worker, amount)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


class SqliteWorld:
    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"

    def open(self, *, compaction_threshold: int = 10_000) -> Store:
        return open_store(self.url, compaction_threshold=compaction_threshold)

    def work(self, act: str, *, workers: int, amount: int) -> None:
        run_workers(self.url, act, workers=workers, amount=amount)


class TestMemory(StoreContract):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()


class TestSqlite(DurableStoreContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> SqliteWorld:
        return SqliteWorld(tmp_path / "store.db")
