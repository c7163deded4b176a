"""The suites of the test kit report their assertions as test modules do, and the servers that
several modules use.
"""

from collections.abc import Iterator

import pytest

from tidegate.testing.servers.postgres import PostgresServer

for name in ("store_contract", "store_outcomes", "store_durability"):
    pytest.register_assert_rewrite(f"tidegate.testing.{name}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all that do not end it. A test takes a schema of its own."""
    with PostgresServer() as server:
        yield server
