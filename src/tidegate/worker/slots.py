"""How many drivers fit on a host: the configured number, else as many as its memory allows.

Pure, except that it reads two files.
"""

import re
from pathlib import Path

DRIVER_MEMORY_BYTES = (
    1024**3
)  # Python, JVM, worker daemon and workers: 0.5 to 0.9 GiB were measured
SLOTS_MIN = 2
MEMINFO = Path("/proc/meminfo")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def slots(wanted: int | None, memory_bytes: int) -> int:
    """Return the slots of a worker on a host with this much memory."""
    return wanted if wanted is not None else max(SLOTS_MIN, memory_bytes // DRIVER_MEMORY_BYTES)


def memory_bytes(meminfo: Path = MEMINFO, cgroup_limit: Path = CGROUP_LIMIT) -> int:
    """Return the memory of this host, or the limit of its container; 0 if unknown."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", _text(meminfo), re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    limit = _text(cgroup_limit).strip()
    return min(total, int(limit)) if total and limit.isdigit() else total


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
