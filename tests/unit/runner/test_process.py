"""Process identity and sessions: sessions are killed whole, and a pid alone is no identity."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tidegate.runner.process import (
    ProvenDead,
    blocked_reason,
    is_alive,
    kill_session,
    process_ref,
    session_members,
)

# A leader, a child in a process group of its own (as Spark's worker daemons), and a grandchild that
# has lost its parent.
FAMILY = """
import os, signal, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        os.write(1, b"g")
        time.sleep(600)
    os.write(1, b"c")
    time.sleep(600)
os.write(1, b"l")
time.sleep(600)
"""


@pytest.fixture
def family() -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert sorted(process.stdout.read(3)) == sorted(b"gcl")
    yield process
    kill_session(process_ref(process.pid))
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_session_contains_all_process_groups(family: "subprocess.Popen[bytes]") -> None:
    assert len(session_members(process_ref(family.pid))) == 3


def test_kill_session_proves_that_it_is_empty(family: "subprocess.Popen[bytes]") -> None:
    ref = process_ref(family.pid)
    assert is_alive(ref)
    assert kill_session(ref) == ProvenDead(3)
    assert session_members(ref) == []
    assert not is_alive(ref)
    assert kill_session(ref) == ProvenDead(0)


def test_session_members_are_found_after_the_leader_died(
    family: "subprocess.Popen[bytes]",
) -> None:
    ref = process_ref(family.pid)
    family.kill()
    family.wait()
    assert not is_alive(ref)
    assert len(session_members(ref)) == 2
    assert kill_session(ref) == ProvenDead(2)


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}, {"host": "elsewhere"}])
def test_a_process_of_another_boot_or_host_is_not_confused(
    family: "subprocess.Popen[bytes]", change: dict[str, object]
) -> None:
    other = replace(process_ref(family.pid), **change)  # type: ignore[arg-type]  # names of fields
    assert not is_alive(other)
    assert kill_session(other) == ProvenDead(0)
    assert is_alive(process_ref(family.pid))


def test_this_process_is_alive() -> None:
    assert is_alive(process_ref(os.getpid()))


def test_a_stopped_process_is_reported_with_its_repair(family: "subprocess.Popen[bytes]") -> None:
    ref = process_ref(family.pid)
    assert blocked_reason(ref) == ""
    family.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, family.pid, os.WSTOPPED | os.WNOWAIT)
    assert (
        blocked_reason(ref)
        == f"the driver's process {family.pid} is stopped (SIGSTOP); send SIGCONT: `kill -CONT"
        f" {family.pid}`"
    )
    assert blocked_reason(replace(ref, host="elsewhere")) == ""
    assert blocked_reason(replace(ref, started=ref.started + 1)) == ""


def test_a_stopped_child_of_a_driver_is_reported(family: "subprocess.Popen[bytes]") -> None:
    ref = process_ref(family.pid)
    child = next(pid for pid in session_members(ref) if pid != family.pid)
    os.kill(child, signal.SIGSTOP)
    while not (said := blocked_reason(ref)):
        assert is_alive(ref)
    assert said.startswith(f"process {child} (python")
    assert "is stopped (SIGSTOP)" in said


def test_a_zombie_is_reported(family: "subprocess.Popen[bytes]") -> None:
    ref = process_ref(family.pid)
    family.kill()
    os.waitid(os.P_PID, family.pid, os.WEXITED | os.WNOWAIT)
    assert "zombie" in blocked_reason(ref)
