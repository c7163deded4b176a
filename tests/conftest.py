"""What every tier shares: a clean environment, a home of its own, one seed.

Anything that a single tier needs lives in that tier.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A developer's own installation must neither be used nor touched, and no failpoint may be armed in
# the process that runs the tests.
for name in [
    name for name in os.environ if name.startswith("TIDEGATE_") and name != "TIDEGATE_TEST_SEED"
]:
    del os.environ[name]

# The same for everyone, so that a change is judged by what it changes; new seeds are for the soak,
# which draws one each time.
SEED = int(os.environ.get("TIDEGATE_TEST_SEED") or 20_240_501)

# Two slow cores are no reason to fail: a hung example is found by the timeout of the test.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with TIDEGATE_TEST_SEED={SEED})"


@pytest.fixture(scope="session")
def seed() -> int:
    """The source of every choice that a test makes by chance."""
    return SEED


@pytest.fixture(autouse=True)
def home_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an installation goes when a test does not say."""
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "tidegate-home"))
