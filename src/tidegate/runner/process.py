"""Identifies processes by pid and start time, and manages the session that a process leads.

Called by coordinator, to check for liveness, and by worker. A driver is one session: Python, its
JVM, the Python worker daemons. Daemons create process groups of their own, so only an empty session
proves that a driver is dead. Linux only (/proc).
"""

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tidegate.model.records import ProcessRef

PROC = Path("/proc")
KILL_DEADLINE_S = 20.0
POLL_S = 0.02
STOPPED_STATES = ("T", "t")
BLOCKED_STATES = {  # of /proc/<pid>/stat, if they explain the lack of progress
    "T": "is stopped (SIGSTOP); send SIGCONT: `kill -CONT {pid}`",
    "t": "is stopped by a debugger (traced)",
    "D": "waits for a disk or a network file system (state D)",
    "Z": "has ended and waits for its parent (zombie)",
}


@dataclass(frozen=True, slots=True)
class ProvenDead:
    """No process of the session is left; this many had to be killed."""

    killed: int


@dataclass(frozen=True, slots=True)
class StillRunning:
    """These processes did not exit within the deadline."""

    pids: tuple[int, ...]


def boot_id() -> str:
    """The id of the current boot of this machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def started_at(pid: int, *, zombie: bool = False) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None if it does not exist.

    A zombie counts only if `zombie` is set.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") and not zombie else int(fields[19])


def blocked_reason(process: ProcessRef) -> str:
    """Return why a session on this host makes no progress, according to the kernel.

    Empty if the kernel gives no reason, or the process is on another host.
    """
    if (
        process.host != socket.gethostname()
        or process.boot != boot_id()
        or started_at(process.pid, zombie=True) != process.started
    ):
        return ""
    name, state = _name_and_state(process.pid)
    if state in BLOCKED_STATES:
        return f"the driver's process {process.pid} {BLOCKED_STATES[state].format(pid=process.pid)}"
    for pid in session_members(process):
        name, state = _name_and_state(pid)
        if state in STOPPED_STATES:
            reason = BLOCKED_STATES[state].format(pid=pid)
            return f"process {pid} ({name}) of the driver's session {reason}"
    return ""


def _name_and_state(pid: int) -> tuple[str, str]:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2]


def process_ref(pid: int) -> ProcessRef:
    """Return the identity of this process or of a child, even of one that has exited.

    The child must not have been waited for.
    """
    return ProcessRef(
        pid=pid,
        started=started_at(pid, zombie=True) or 0,
        boot=boot_id(),
        host=socket.gethostname(),
    )


def is_alive(process: ProcessRef) -> bool:
    """Return whether this process, and not a later one with its pid, runs on this host."""
    return (
        process.host == socket.gethostname()
        and process.boot == boot_id()
        and started_at(process.pid) == process.started
    )


def session_members(process: ProcessRef) -> list[int]:
    """Return the pids of the session that this process leads, or led.

    Returns none if a later process has the same pid.
    """
    if process.host != socket.gethostname() or process.boot != boot_id():
        return []
    leader = started_at(process.pid)
    if leader is not None and leader != process.started:
        return []
    members = []
    for pid in (int(name) for name in os.listdir(PROC) if name.isdigit()):
        try:
            if os.getsid(pid) == process.pid and started_at(pid) is not None:
                members.append(pid)
        except OSError:
            continue
    return members


def terminate_session(process: ProcessRef) -> None:
    """Send SIGTERM once to every process of the session."""
    for pid in session_members(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def end_own_session() -> NoReturn:
    """SIGKILL the session that this process leads, itself last."""
    me = process_ref(os.getpid())
    for pid in session_members(me):
        if pid != me.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(me.pid, signal.SIGKILL)
    raise AssertionError("unreachable")


def kill_session(
    process: ProcessRef, deadline_s: float = KILL_DEADLINE_S
) -> ProvenDead | StillRunning:
    """Send SIGKILL until the session is empty or the deadline is over."""
    seen: set[int] = set()
    end = time.monotonic() + deadline_s
    while members := session_members(process):
        if time.monotonic() > end:
            return StillRunning(tuple(members))
        for pid in members:
            seen.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)
    return ProvenDead(len(seen))
