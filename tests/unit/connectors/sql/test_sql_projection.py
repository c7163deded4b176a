"""VECTOR_REDUCE by projection: one matrix for all processes and jobs, and preserved lengths."""

import math
import subprocess
import sys

import pytest

from tidegate.connectors.sql.functions_other import PROJECTIONS
from tidegate.connectors.sql.projection import METHODS, reduced
from tidegate.model.errors import TerminalError

VECTOR = [math.sin(i) for i in range(300)]


def test_method_names_are_equal_in_query_and_task() -> None:
    assert METHODS == PROJECTIONS


@pytest.mark.parametrize("method", METHODS)
def test_projection_approximately_preserves_lengths_and_angles(method: str) -> None:
    other = [math.cos(i) for i in range(300)]
    a, b = reduced(VECTOR, 128, method), reduced(other, 128, method)
    assert len(a) == 128
    assert math.dist(a, b) == pytest.approx(math.dist(VECTOR, other), rel=0.3)


@pytest.mark.parametrize("method", METHODS)
def test_projection_is_equal_in_another_process(method: str) -> None:
    program = (
        "import math, sys; from tidegate.connectors.sql.projection import"
        f" reduced;print(reduced([math.sin(i) for i in range(300)], 3, '{method}'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(reduced(VECTOR, 3, method))


def test_projection_is_stable_between_releases() -> None:
    """Stored vectors must stay comparable with new ones."""
    ones = [1.0] * 5
    assert reduced(ones, 2, METHODS[0]) == pytest.approx(GAUSSIAN)
    assert reduced(ones, 2, METHODS[1]) == pytest.approx(SPARSE)


@pytest.mark.parametrize("method", METHODS)
def test_short_vectors_and_nulls_are_returned_unchanged(method: str) -> None:
    assert reduced([1.0, 2.0], 2, method) == [1.0, 2.0]
    assert reduced([1.0, None], 4, method) == [1.0, None]
    assert reduced(None, 2, method) is None
    assert reduced([1.0], None, method) is None
    assert reduced([1.0, None, 2.0], 2, method) == reduced([1.0, 0.0, 2.0], 2, method)
    with pytest.raises(TerminalError, match="the target dimension is 0"):
        reduced([1.0], 0, method)


GAUSSIAN = [1.077552053431584, 0.31977929549716433]
SPARSE = [1.224744871391589, 2.449489742783178]
