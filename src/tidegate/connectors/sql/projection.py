"""VECTOR_REDUCE by random projection: multiplies a vector by a fixed random matrix.

Called for each row in the tasks (spark.py registers it). The matrix depends only on the method and
the two dimensions: every row, retry, task and job uses the same one, so that reduced vectors are
comparable. SeaTunnel draws a new matrix for every row.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tidegate.model.errors import TerminalError

METHODS = ("RANDOM_PROJECTION", "SPARSE_RANDOM_PROJECTION")
_SEED = 20_240_601
_SPARSE = (1 / 6, 5 / 6)
"""Below the first, a factor is positive, above the second negative, otherwise (2 of 3) zero."""


def reduced(vector: Sequence[float | None] | None, size: int | None, method: str) -> Any:
    """Reduce a vector to `size` elements; a shorter vector is returned unchanged.

    A null element counts as 0.
    """
    if vector is None or size is None:
        return None
    if size < 1:
        raise TerminalError(
            f"VECTOR_REDUCE: the target dimension is {size}, and must be at least 1"
        )
    if len(vector) <= size:
        return list(vector)
    values = np.array([0.0 if value is None else value for value in vector])
    # Not `matrix @ values`: its libraries sum in an order that depends on the machine.
    return [float(total) for total in (_matrix(method, size, len(values)) * values).sum(axis=1)]


@lru_cache(maxsize=8)
def _matrix(method: str, rows: int, columns: int) -> Any:
    # RandomState, not Generator: it returns the same numbers in every release of numpy.
    drawn = np.random.RandomState([_SEED, METHODS.index(method), rows, columns])
    if method == METHODS[0]:
        return drawn.standard_normal((rows, columns)) / np.sqrt(rows)
    chance = drawn.random_sample((rows, columns))
    signs = (chance < _SPARSE[0]).astype(float) - (chance >= _SPARSE[1]).astype(float)
    return signs * np.sqrt(3.0 / rows)
