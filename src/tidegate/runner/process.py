"""Processes by name and not by luck: a pid with its start time, and the session that it leads.
Called by coordinator (who lives?) and worker.

A driver is one session: Python, its JVM, the worker daemons. Daemons make process groups of their
own, so only an empty session proves death. Linux only (/proc).
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
STOPPED = ("T", "t")
STATES = {  # of /proc/<pid>/stat, where they are a reason for silence
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
class StillThere:
    """These pids did not go within the deadline."""

    pids: tuple[int, ...]


def boot_id() -> str:
    """Which boot of this machine this is."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def started_at(pid: int, *, zombie: bool = False) -> int | None:
    """The start time of a process in clock ticks since boot; None where there is none, or, unless
    it is asked for, only its zombie.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") and not zombie else int(fields[19])


def held_up(process: ProcessRef) -> str:
    """Why a session on this host makes no progress, as far as the kernel says; empty where it says
    nothing, or the process is elsewhere.
    """
    if (
        process.host != socket.gethostname()
        or process.boot != boot_id()
        or started_at(process.pid, zombie=True) != process.started
    ):
        return ""
    name, state = _name_and_state(process.pid)
    if state in STATES:
        return f"the driver's process {process.pid} {STATES[state].format(pid=process.pid)}"
    for pid in session_members(process):
        name, state = _name_and_state(pid)
        if state in STOPPED:
            return f"process {pid} ({name}) of the driver's session {STATES[state].format(pid=pid)}"
    return ""


def _name_and_state(pid: int) -> tuple[str, str]:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2]


def reference(pid: int) -> ProcessRef:
    """The name of this process or of a child that nobody has waited for: it has a name even when it
    has died already.
    """
    return ProcessRef(
        pid=pid,
        started=started_at(pid, zombie=True) or 0,
        boot=boot_id(),
        host=socket.gethostname(),
    )


def is_alive(process: ProcessRef) -> bool:
    """Whether exactly this process runs on this host."""
    return (
        process.host == socket.gethostname()
        and process.boot == boot_id()
        and started_at(process.pid) == process.started
    )


def session_members(process: ProcessRef) -> list[int]:
    """The pids of the session that this process leads, or led.

    A later process with the same pid is not taken for it.
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
    """SIGTERM to every process of the session, once."""
    for pid in session_members(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def end_own_session() -> NoReturn:
    """SIGKILL the session that this process leads, itself last."""
    me = reference(os.getpid())
    for pid in session_members(me):
        if pid != me.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(me.pid, signal.SIGKILL)
    raise AssertionError("unreachable")


def kill_session(
    process: ProcessRef, deadline_s: float = KILL_DEADLINE_S
) -> ProvenDead | StillThere:
    """SIGKILL until the session is empty."""
    seen: set[int] = set()
    end = time.monotonic() + deadline_s
    while members := session_members(process):
        if time.monotonic() > end:
            return StillThere(tuple(members))
        for pid in members:
            seen.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)
    return ProvenDead(len(seen))
