"""Named points around every durable write, at which the tests kill the process.

Callers: store, checkpoints, pipeline, coordinator, driver, connectors. `failpoint` is an empty
function unless TIDEGATE_FAILPOINT is set when the process starts. Set it to an empty string to arm
failpoints later.

A durable write is bracketed by `failpoint("area.step.before")` and `failpoint("area.step.after")`.
If it has intermediate steps (several files, bytes before a rename), it contains
`failpoint("area.step.middle")`. Names are literals, so that a test can list them from the source.

TIDEGATE_FAILPOINT = "<name>[@<hit>][=<action>]": the action runs at the hit-th passage (default 1)
and is `kill` (default: SIGKILL to the whole process session), `stop` (SIGSTOP to this process),
`raise` (a RuntimeError) or `exit`. Commas separate several failpoints.
"""

import os
import signal
import sys
import threading

_armed: dict[str, tuple[int, str]] = {}
_hits: dict[str, int] = {}
_lock = threading.Lock()


def arm(text: str) -> None:
    """Arm the failpoints named in `text`, and disarm all others."""
    _armed.clear()
    _hits.clear()
    for item in filter(None, text.split(",")):
        passage, _, act = item.partition("=")
        name, _, hit = passage.partition("@")
        _armed[name] = (int(hit or 1), act or "kill")


def _kill_session() -> None:
    """Send SIGKILL to every process of this session, this one last, as the end of a container."""
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
        _hits[name] = _hits.get(name, 0) + 1
        hit, act = _armed[name]
        due = _hits[name] == hit
    if not due:
        return
    print(f"failpoint {name}: {act}", file=sys.stderr, flush=True)
    if act == "kill":
        _kill_session()
    elif act == "stop":
        # Signal this thread: with os.kill it could run a little further before the stop.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif act == "exit":
        os._exit(86)
    else:
        raise RuntimeError(f"failpoint {name}")


if "TIDEGATE_FAILPOINT" in os.environ:
    arm(os.environ["TIDEGATE_FAILPOINT"])

    def failpoint(name: str) -> None:
        """Run the armed action if this passage is the one it waits for."""
        if name in _armed:
            _act(name)

else:

    def failpoint(name: str) -> None:
        """Do nothing, because no failpoint can be armed in this process."""
