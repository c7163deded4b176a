"""Bounds and parsing of ids."""

DIGITS_MAX = 30  # including leading zeros
JOB_ID_MAX = 2**63 - 1


def whole_number(text: str, least: int, most: int) -> int | None:
    """Parse plain digits within bounds, however long the text is; None for anything else.

    The length is checked first, as Python raises ValueError for numbers of thousands of digits,
    which no caller expects.
    """
    if not text or len(text) > DIGITS_MAX or not text.isascii() or not text.isdigit():
        return None
    value = int(text)
    return value if least <= value <= most else None
