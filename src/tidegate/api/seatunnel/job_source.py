"""Turn the job file in a request body into a Plan, or a list of all its problems.

Called in a thread, as checks may read the disk. A job file in a request cannot include files of the
server, and `${NAME}` is not replaced by environment variables of the server process.
"""

from tidegate.api.planner_process import plan_isolated
from tidegate.config.hocon.parse import Unreadable
from tidegate.config.load import Format, read_text
from tidegate.model.errors import UserError
from tidegate.model.plan import Plan
from tidegate.model.problem import BadJob, Problem, Severity, Strictness
from tidegate.planner.plan import in_file_order, plan

NAME = "job"  # file name in problems, and default name of the job
ISOLATED_CHARS_MIN = 32_768
"""Texts of this length are planned in a child process; shorter ones take milliseconds."""


def format_of(text: str | None) -> Format:
    """Parse the parameter `format`; JSON by default."""
    try:
        return Format((text or Format.JSON.value).lower())
    except ValueError:
        raise UserError(f"format={text} is unknown: use json, hocon or sql") from None


def strictness_of(lenient: str | None) -> Strictness:
    """Parse the parameter `lenient`; false by default."""
    if (lenient or "false").lower() not in ("true", "false"):
        raise UserError(f"lenient={lenient} is invalid: use true or false")
    return Strictness.LENIENT if lenient and lenient.lower() == "true" else Strictness.NORMAL


def decode_body(body: bytes) -> str:
    """Decode a body as UTF-8."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the body of the request is not UTF-8 text") from None


def plan_text(text: str, format: Format, strictness: Strictness = Strictness.NORMAL) -> Plan:
    """Plan a job; raises BadJob with all errors."""
    planned, problems = plan_with_problems(text, format, strictness)
    if planned is None:
        raise BadJob([problem for problem in problems if problem.severity is Severity.ERROR])
    return planned


def plan_with_problems(
    text: str, format: Format, strictness: Strictness = Strictness.NORMAL
) -> tuple[Plan | None, list[Problem]]:
    """Return the plan of a job, None if it has errors, and all problems including warnings."""
    if len(text) >= ISOLATED_CHARS_MIN:
        return plan_isolated(text, format.value, strictness.value)
    return plan_in_process(text, format, strictness)


def plan_in_process(
    text: str, format: Format, strictness: Strictness = Strictness.NORMAL
) -> tuple[Plan | None, list[Problem]]:
    """Plan a job in this process; see plan_with_problems."""
    reading = read_text(text, NAME, format, read=_no_file)
    if reading.spec is None:
        return None, list(reading.problems)
    planned = plan(reading.spec, strictness=strictness)
    wrong = {problem.path for problem in reading.errors if problem.path.count("[")}
    problems = in_file_order(
        [
            *reading.problems,
            *(problem for problem in planned.problems if problem.path not in wrong),
        ],
        NAME,
    )
    return None if reading.errors else planned.plan, problems


def _no_file(_path: str) -> str | None:
    raise Unreadable(
        "a job that is submitted by request cannot include files of the server: send it whole"
    )
