"""Counter-based random numbers: cell n of a column is the same in any task and range.

Called by generate.py only. Applies the finalizer of SplitMix64 to a counter, so that no stream must
be advanced and nothing depends on the release of numpy. Sufficient for test rows; not for secrets.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_LETTERS = np.frombuffer(
    ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" * 5)[:256].encode(), dtype=np.uint8
)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def key_of(*names: object) -> int:
    """The key of a column, from seed, table and column name."""
    text = "\0".join(map(str, names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def random_words(key: int, first: int, count: int) -> Words:
    """The random 64-bit words first .. first + count - 1 of a key."""
    z = np.arange(first, first + count, dtype=np.uint64)
    z *= _STEP
    z += np.uint64(key)
    z ^= z >> np.uint64(30)
    z *= _MIX[0]
    z ^= z >> np.uint64(27)
    z *= _MIX[1]
    z ^= z >> np.uint64(31)
    return z


def below(key: int, first: int, count: int, bound: int) -> npt.NDArray[np.int64]:
    """Whole numbers from 0 to bound - 1."""
    z = random_words(key, first, count)
    if bound <= 1 << 32:
        z >>= _HALF
        z *= np.uint64(max(bound, 1))
        z >>= _HALF
    elif bound < 1 << 64:
        z %= np.uint64(bound)
    return z.view(np.int64)


def between(key: int, first: int, count: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """Whole numbers from low to high - 1; low if both are equal."""
    offset = below(key, first, count, high - low)
    offset += np.int64(low)  # may overflow for ranges over 63 bits; the result is still right
    return offset


def fractions(key: int, first: int, count: int, low: float, high: float) -> npt.NDArray[np.float64]:
    """Numbers from low to below high."""
    share = (random_words(key, first, count) >> np.uint64(11)).astype(np.float64)
    share *= 2.0**-53
    if low == 0:
        share *= high
        return share
    return low * (1 - share) + high * share


def letters(key: int, first: int, count: int, length: int) -> bytes:
    """`count` texts of `length` letters each, concatenated."""
    return _LETTERS[raw_bytes(key, first, count, length)].tobytes()


def raw_bytes(key: int, first: int, count: int, length: int) -> npt.NDArray[np.uint8]:
    """`count` rows of `length` random bytes."""
    width = max(1, -(-length // 8))
    octets = (
        random_words(key, first * width, count * width).view(np.uint8).reshape(count, width * 8)
    )
    return np.ascontiguousarray(octets[:, :length])


def digits(key: int, first: int, count: int, precision: int) -> Any:
    """`count` numbers of up to `precision` digits, as 128-bit little-endian words of Arrow."""
    out = np.zeros((count, 2), dtype=np.uint64)
    low = random_words(key, first * 2, count * 2).reshape(count, 2)
    if precision <= 18:
        out[:, 0] = low[:, 0] % np.uint64(10**precision)
        return out
    # high * 10^18 + low in 32-bit pieces: numpy has no wider multiplication.
    unit = 10**18
    high = low[:, 1] % np.uint64(10 ** min(precision - 18, 19))
    rest = low[:, 0] % np.uint64(unit)
    unit_low, unit_high = np.uint64(unit & 0xFFFFFFFF), np.uint64(unit >> 32)
    high_low, high_high = high & _LOW, high >> _HALF
    bottom = high_low * unit_low
    middle = high_high * unit_low + (bottom >> _HALF)
    across = high_low * unit_high + (middle & _LOW)
    product = (across << _HALF) | (bottom & _LOW)
    out[:, 0] = product + rest
    out[:, 1] = (
        high_high * unit_high + (middle >> _HALF) + (across >> _HALF) + (out[:, 0] < product)
    )
    return out
