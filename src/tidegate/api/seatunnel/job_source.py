"""A job that came as the body of a request -> Plan, or everything that is wrong with it. Called by
writes, in a thread, as checks may look at the disk.

A request has no place on the server's disk and no part in its environment: it can include no files,
and `${NAME}` finds no variable of the server's process.
"""

from tidegate.api.planner_process import plan_isolated
from tidegate.config.hocon.parse import Unreadable
from tidegate.config.load import Format, read_text
from tidegate.model.errors import UserError
from tidegate.model.plan import Plan
from tidegate.model.problem import BadJob, Problem, Severity, Strictness
from tidegate.planner.plan import in_file_order, plan

NAME = "job"  # how problems name the text, and the job's name where nobody gave one
ISOLATED_CHARS_MIN = 32_768
"""From this length on a text is planned in a process of its own; below it, it costs milliseconds."""


def format_of(text: str | None) -> Format:
    """The `format` of a request; JSON where nothing is said."""
    try:
        return Format((text or Format.JSON.value).lower())
    except ValueError:
        raise UserError(f"format={text} is not known: say json, hocon or sql") from None


def strictness_of(lenient: str | None) -> Strictness:
    """The `lenient` of a request."""
    if (lenient or "false").lower() not in ("true", "false"):
        raise UserError(f"lenient={lenient} is not known: say true or false")
    return Strictness.LENIENT if lenient and lenient.lower() == "true" else Strictness.NORMAL


def decode_body(body: bytes) -> str:
    """The text of a body."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the body of the request is not UTF-8 text") from None


def plan_text(text: str, format: Format, strictness: Strictness = Strictness.NORMAL) -> Plan:
    """The plan of a job; BadJob with all problems."""
    planned, problems = plan_with_problems(text, format, strictness)
    if planned is None:
        raise BadJob([problem for problem in problems if problem.severity is Severity.ERROR])
    return planned


def plan_with_problems(
    text: str, format: Format, strictness: Strictness = Strictness.NORMAL
) -> tuple[Plan | None, list[Problem]]:
    """The plan of a job, where it has one, and all its problems, warnings too."""
    if len(text) >= ISOLATED_CHARS_MIN:
        return plan_isolated(text, format.value, strictness.value)
    return plan_in_process(text, format, strictness)


def plan_in_process(
    text: str, format: Format, strictness: Strictness = Strictness.NORMAL
) -> tuple[Plan | None, list[Problem]]:
    """The same in this process."""
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
