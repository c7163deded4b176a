"""The file behind standard output is bounded, and its rotation loses no output."""

import os
from pathlib import Path

from tidegate.clock import SystemClock
from tidegate.driver.console import ConsoleLog


def test_a_full_file_is_rotated_and_two_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    with path.open("ab") as stream:
        descriptor = os.dup(stream.fileno())
    log = ConsoleLog(path, SystemClock(), descriptor=descriptor, bytes_max=100)
    for number in range(100):
        os.write(descriptor, b"%09d\n" % number)
        log.step()
    os.close(descriptor)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["console.log", "console.log.1"]
    assert (tmp_path / "console.log.1").read_bytes() == b"".join(
        b"%09d\n" % n for n in range(90, 100)
    )
    assert path.read_bytes() == b""
