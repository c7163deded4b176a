"""Amounts as people read them, one way everywhere: pages, tables of the command line, messages.
Pure.
"""

UNITS = ("B", "KB", "MB", "GB", "TB")


def size_text(amount: float) -> str:
    """`812 B`, `4.2 MB`: thousands, as disks are sold and quotas are set."""
    for unit in UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} {UNITS[-1]}"
