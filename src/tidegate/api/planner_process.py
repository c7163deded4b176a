"""Plan a large job file in a child process with limits of time and memory. Called by job_source.

A server's threads share one interpreter: parsing megabytes of text next to the leader delays its
lease renewals, and the memory is missing for jobs. The child limits itself, so whatever the text
causes ends there. One text at a time; a caller that waits too long gets PlannerBusy.
"""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.model.document import from_document, to_document
from tidegate.model.errors import TransientError, UserError
from tidegate.model.plan import Plan
from tidegate.model.problem import Problem

CPU_S_MAX = 30
WALL_S_MAX = 120
"""A child on a busy machine, or one that waits for a slow disk."""
MEMORY_BYTES_MAX = 2 << 30
WAIT_S_MAX = 60
_one_child = threading.Semaphore()

PlanFunction = Callable[[str, str, str], tuple[Plan | None, list[Problem]]]


class JobTooLarge(UserError):
    """Planning a job file exceeds a limit."""

    condition = "job-too-large"


class PlannerBusy(TransientError):
    """Another large job file is being planned."""

    condition = "busy"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningResult:
    plan: Plan | None
    problems: tuple[Problem, ...]


def plan_isolated(text: str, format: str, strictness: str) -> tuple[Plan | None, list[Problem]]:
    """Return the plan and the problems of a text, as the planner in this process would."""
    if not _one_child.acquire(timeout=WAIT_S_MAX):
        raise PlannerBusy("the server is reading another large job file; try again")
    try:
        child = subprocess.run(
            [sys.executable, "-m", __name__, str(CPU_S_MAX), str(MEMORY_BYTES_MAX)],
            input=json.dumps({"text": text, "format": format, "strictness": strictness}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=WALL_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_large() from None
    finally:
        _one_child.release()
    if child.returncode:
        raise _too_large()
    result = from_document(PlanningResult, json.loads(child.stdout), "the plan of a job")
    return result.plan, list(result.problems)


def _too_large() -> JobTooLarge:
    return JobTooLarge(
        f"the job file is too large or too complex: reading it takes more than {CPU_S_MAX} s of "
        f"processor time or {MEMORY_BYTES_MAX >> 20} MiB of memory. Split it into several jobs"
    )


def serve(plan_text: PlanFunction, cpu_s: int, memory_bytes: int) -> None:
    """Read one text from standard input, and print its plan and problems."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    plan, problems = plan_text(request["text"], request["format"], request["strictness"])
    result = to_document(PlanningResult(plan=plan, problems=tuple(problems)))
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    from tidegate.api.seatunnel.job_source import plan_in_process
    from tidegate.config.load import Format
    from tidegate.model.problem import Strictness

    serve(
        lambda text, format, strictness: plan_in_process(
            text, Format(format), Strictness(strictness)
        ),
        *map(int, sys.argv[1:]),
    )
