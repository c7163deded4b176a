"""The suites of the test kit report their assertions as test modules do."""

import pytest

for name in ("store_contract", "store_outcomes", "store_durability"):
    pytest.register_assert_rewrite(f"tidegate.testing.{name}")
