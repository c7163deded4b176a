"""DES_ENCRYPT and DES_DECRYPT of SeaTunnel: DES-CBC with a fixed vector, PKCS padding, base64.

Exists for old job files; new ones should use AES. Called for each row in the tasks (spark.py
registers it). Errors must contain neither key nor text.
"""

import base64

from tidegate.model.errors import TerminalError

_VECTOR = b"12345678"
_IP = [
    58 - 8 * (i % 8) + 2 * (i // 8) if i < 32 else 57 - 8 * (i % 8) + 2 * ((i - 32) // 8)
    for i in range(64)
]
_FP = [_IP.index(i + 1) + 1 for i in range(64)]
_E = [(4 * (i // 6) + i % 6 - 1) % 32 + 1 for i in range(48)]
_P = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
]  # fmt: skip
_PC1 = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2,
    59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36, 63, 55, 47, 39,
    31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37,
    29, 21, 13, 5, 28, 20, 12, 4,
]  # fmt: skip
_PC2 = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4,
    26, 8, 16, 7, 27, 20, 13, 2, 41, 52, 31, 37, 47, 55, 30, 40,
    51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
]  # fmt: skip
_SHIFTS = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]
_S = [
    [int(digit, 16) for digit in box]
    for box in (
        "e4d12fb83a6c59070f74e2d1a6cb953841e8d62bfc973a50fc8249175b3ea06d",
        "f18e6b34972dc05a3d47f28ec01a69b50e7ba4d158c6932fd8a13f42b67c05e9",
        "a09e63f51dc7b428d709346a285ecbf1d6498f30b12c5ae71ad069874fe3b52c",
        "7de3069a1285bc4fd8b56f03472c1ae9a690cb7df13e52843f06a1d8945bc72e",
        "2c417ab6853fd0e9eb2c47d150fa3986421bad78f9c5630eb8c71e2d6f09a453",
        "c1af92680d34e75baf427c9561de0b389ef528c3704a1db6432c95fabe17608d",
        "4b2ef08d3c975a61d0b7491ae35c2f8614bdc37eaf6805926bd814a7950fe23c",
        "d2846fb1a93e50c71fd8a374c56b0e927b419ce206adf35821e74a8dfc90356b",
    )
]


def _permuted(value: int, width: int, table: list[int]) -> int:
    result = 0
    for position in table:
        result = result << 1 | value >> (width - position) & 1
    return result


def _round_keys(key: bytes) -> list[int]:
    bits = _permuted(int.from_bytes(key, "big"), 64, _PC1)
    left, right, mask = bits >> 28, bits & 0xFFFFFFF, 0xFFFFFFF
    keys = []
    for shift in _SHIFTS:
        left = (left << shift | left >> (28 - shift)) & mask
        right = (right << shift | right >> (28 - shift)) & mask
        keys.append(_permuted(left << 28 | right, 56, _PC2))
    return keys


def _mixed(half: int, key: int) -> int:
    bits = _permuted(half, 32, _E) ^ key
    result = 0
    for box in range(8):
        six = bits >> (42 - 6 * box) & 63
        result = result << 4 | _S[box][(six >> 4 & 2 | six & 1) * 16 + (six >> 1 & 15)]
    return _permuted(result, 32, _P)


def _block(block: bytes, keys: list[int]) -> bytes:
    bits = _permuted(int.from_bytes(block, "big"), 64, _IP)
    left, right = bits >> 32, bits & 0xFFFFFFFF
    for key in keys:
        left, right = right, left ^ _mixed(right, key)
    return _permuted(right << 32 | left, 64, _FP).to_bytes(8, "big")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _key(password: str | None) -> bytes:
    if password is None or len(password) < 8:
        raise TerminalError(
            "the password of DES_ENCRYPT and DES_DECRYPT needs 8 characters or more"
        )
    return password.encode()[:8]


def encrypt(password: str | None, data: str | None) -> str | None:
    keys = _round_keys(_key(password))
    if data is None:
        return None
    raw = data.encode()
    raw += bytes([8 - len(raw) % 8]) * (8 - len(raw) % 8)
    before, result = _VECTOR, b""
    for at in range(0, len(raw), 8):
        before = _block(_xor(raw[at : at + 8], before), keys)
        result += before
    return base64.b64encode(result).decode()


def decrypt(password: str | None, data: str | None) -> str | None:
    """Decrypt a text; return it unchanged if it is no encrypted text, as SeaTunnel does."""
    keys = _round_keys(_key(password))[::-1]
    if data is None:
        return None
    try:
        raw = base64.b64decode(data, validate=True)
        before, result = _VECTOR, b""
        for at in range(0, len(raw), 8):
            result += _xor(_block(raw[at : at + 8], keys), before)
            before = raw[at : at + 8]
        padding = result[-1]
        if not 1 <= padding <= 8 or result[-padding:] != bytes([padding]) * padding:
            return data
        return result[:-padding].decode()
    except (ValueError, IndexError):
        return data
