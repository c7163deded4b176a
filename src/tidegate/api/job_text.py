"""A job that came as the body of a request -> Plan, or everything that is wrong with it. Called by writes, in a thread, as checks may look at the disk.

A request has no place on the server's disk and no part in its environment: it can include no files, and `${NAME}` finds no variable of the server's process.
"""

from tidegate.config.hocon import Unreadable
from tidegate.config.load import Format, read_text
from tidegate.model.errors import UserError
from tidegate.model.plan import Plan
from tidegate.model.problem import BadJob
from tidegate.planner.plan import in_file_order, plan

NAME = "job"  # how problems name the text, and the job's name where nobody gave one


def format_of(text: str | None) -> Format:
    """The `format` of a request; JSON where nothing is said."""
    try:
        return Format((text or Format.JSON.value).lower())
    except ValueError:
        raise UserError(f"format={text} is not known: say json, hocon or sql") from None


def decoded(body: bytes) -> str:
    """The text of a body."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the body of the request is not UTF-8 text") from None


def plan_text(text: str, format: Format) -> Plan:
    """The plan of a job; BadJob with all problems."""
    reading = read_text(text, NAME, format, read=_no_file)
    if reading.spec is None:
        raise BadJob(reading.errors)
    planned = plan(reading.spec)
    if reading.errors or planned.plan is None:
        wrong = {problem.path for problem in reading.errors if problem.path.count("[")}
        news = [problem for problem in planned.errors if problem.path not in wrong]
        raise BadJob(in_file_order([*reading.errors, *news], NAME))
    return planned.plan


def _no_file(_path: str) -> str | None:
    raise Unreadable("a job that is submitted by request cannot include files of the server: send it whole")
