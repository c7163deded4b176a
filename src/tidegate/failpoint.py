"""Named places around every durable write, where the tests kill the process.

Callers: store, checkpoints, pipeline, coordinator, driver, connectors. Unless a process is started
with TIDEGATE_FAILPOINT set (empty will do, for one that arms them later), `failpoint` is an empty
function.

A durable write is bracketed by `failpoint("area.step.before")` and `failpoint("area.step.after")`,
and, where it has an inside (several files, bytes before a rename), by
`failpoint("area.step.middle")`. Names are literals, so that a test can list them from the source.

TIDEGATE_FAILPOINT = "<name>[@<hit>][=<act>]": at the hit-th passage (1 by default) act is `kill`
(the default: SIGKILL to the whole session of processes), `stop` (SIGSTOP to this process), `raise`
(a RuntimeError) or `exit`. Several are separated by commas.
"""

import os
import signal
import sys
import threading

_armed: dict[str, tuple[int, str]] = {}
_passed: dict[str, int] = {}
_lock = threading.Lock()


def arm(text: str) -> None:
    """Arm the failpoints that are named; those of before are forgotten."""
    _armed.clear()
    _passed.clear()
    for item in filter(None, text.split(",")):
        place, _, act = item.partition("=")
        name, _, hit = place.partition("@")
        _armed[name] = (int(hit or 1), act or "kill")


def _kill_session() -> None:
    """SIGKILL all processes of the session that this one belongs to, itself last: as the end of a
    container would.
    """
    session = os.getsid(0)
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            if pid != os.getpid() and os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    os.kill(os.getpid(), signal.SIGKILL)


def _act(name: str) -> None:
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        hit, act = _armed[name]
        due = _passed[name] == hit
    if not due:
        return
    print(f"failpoint {name}: {act}", file=sys.stderr, flush=True)
    if act == "kill":
        _kill_session()
    elif act == "stop":
        signal.pthread_kill(
            threading.get_ident(), signal.SIGSTOP
        )  # through this very thread: it must not run on for a moment
    elif act == "exit":
        os._exit(86)
    else:
        raise RuntimeError(f"failpoint {name}")


if "TIDEGATE_FAILPOINT" in os.environ:
    arm(os.environ["TIDEGATE_FAILPOINT"])

    def failpoint(name: str) -> None:
        """Act if this name is armed and its passage is due."""
        if name in _armed:
            _act(name)

else:

    def failpoint(name: str) -> None:
        """Nothing: no failpoint is armed in this process."""
