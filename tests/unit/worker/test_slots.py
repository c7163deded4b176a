"""How many drivers fit on a host."""

from pathlib import Path

import pytest

from tidegate.worker.slots import memory_bytes, slots

GIB = 1024**3


@pytest.mark.parametrize(
    ("wanted", "memory", "expected"),
    [
        (None, 16 * GIB, 16),
        (None, 16 * GIB - 1, 15),
        (None, GIB, 2),
        (None, 0, 2),
        (5, 64 * GIB, 5),
        (1, 64 * GIB, 1),
    ],
)
def test_slots_are_as_configured_or_derived_from_memory(
    wanted: int | None, memory: int, expected: int
) -> None:
    assert slots(wanted, memory) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max\n", 8 * GIB), (f"{2 * GIB}\n", 2 * GIB), (f"{64 * GIB}\n", 8 * GIB), (None, 8 * GIB)],
)
def test_the_memory_of_a_container_is_its_limit(
    tmp_path: Path, limit: str | None, expected: int
) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text(f"MemTotal:       {8 * GIB // 1024} kB\nMemFree:  12 kB\n")
    if limit is not None:
        cgroup.write_text(limit)
    assert memory_bytes(meminfo, cgroup) == expected


def test_this_machine_has_memory() -> None:
    assert memory_bytes() > 0
