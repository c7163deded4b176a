"""Actions. Each has a confirmation page (GET) and carries the action out (POST).

A confirmation page shows what is kept, what the action costs, and the equivalent command. Forms
work without JavaScript. A token is kept in a cookie that scripts cannot read and other sites cannot
use.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tidegate.api.auth import COOKIE, audit_facts, principal_of
from tidegate.api.login_return import KEY as NEXT
from tidegate.api.login_return import local_page
from tidegate.api.seatunnel.bulk import FORMATS, parts_of
from tidegate.api.seatunnel.commands import JobCommands, StopMode, read_body
from tidegate.api.seatunnel.job_source import format_of, plan_with_problems
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.seatunnel.restore_params import restore_options, submit_query
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.jobs import job_details
from tidegate.api.v1.state import collect, restore_plan, savepoint, storage, survey, undo
from tidegate.coordinator import savepoint_requests
from tidegate.coordinator.accepted_changes import stopped_job
from tidegate.coordinator.commands import UnknownJob
from tidegate.coordinator.tokens import authenticate
from tidegate.model.errors import UserError
from tidegate.model.problem import BadJob, Problem
from tidegate.model.table_changes import AcceptedChange
from tidegate.ui.drawing import graph
from tidegate.ui.page_renderer import PageRenderer

EXAMPLE = """env {
  job.mode = "BATCH"
  job.name = "hello"
}
source {
  FakeSource {
    plugin_output = "people"
    row.num = 1000
    schema { fields { id = bigint, name = string } }
  }
}
sink {
  Console { plugin_input = "people" }
}
"""
STOP_WORDS = {
    StopMode.CANCEL: "at its next checkpoint",
    StopMode.SAVEPOINT: "with a savepoint",
    StopMode.FORCE: "by force",
}
COOKIE_S = 12 * 3600


class Actions:
    def __init__(self, frame: PageRenderer) -> None:
        self.frame = frame
        self.context = frame.context
        self.writes = JobCommands(frame.context)

    async def stop(self, request: Request) -> Response:
        """Confirm a stop; then request it."""
        job_id = job_id_of(request.path_params["job_id"])
        job = job_details(self.context.current(), job_id, self.context.clock.now_ms())
        if request.method == "POST":
            how = _stop_mode((await _form(request)).get("how", ""))
            audit_facts(request, action=how.value)
            await run_in_threadpool(self.writes.stop, job_id, how, principal_of(request).name)
            return self.frame.redirect(f"/ui/jobs/{job_id}")
        how = _stop_mode(request.query_params.get("how", StopMode.CANCEL.value))
        return self.frame.page(request, "stop.html", job=job, how=how.value, words=STOP_WORDS[how])

    async def savepoint(self, request: Request) -> Response:
        """Confirm a savepoint; then request it. The job continues."""
        job_id = job_id_of(request.path_params["job_id"])
        if request.method == "POST":
            await run_in_threadpool(
                lambda: self.context.commands.savepoint(
                    job_id, stop=False, by=principal_of(request).name
                )
            )
            self.context.record_write()
            return self.frame.redirect(f"/ui/jobs/{job_id}")
        return self.frame.page(
            request,
            "savepoint.html",
            job=job_details(self.context.current(), job_id, self.context.clock.now_ms()),
        )

    async def delete_savepoint(self, request: Request) -> Response:
        """Confirm the deletion of a savepoint; then delete it, unless a job is restored from it."""
        job_id, there = job_id_of(request.path_params["job_id"]), self.context.commands.savepoints
        found = await run_in_threadpool(there.find, job_id, request.path_params["savepoint_id"])
        if request.method == "POST":
            await run_in_threadpool(
                savepoint_requests.delete_savepoint, self.context.store, there, found
            )
            return self.frame.redirect("/ui/storage")
        return self.frame.page(request, "delete_savepoint.html", savepoint=savepoint(found))

    async def resume(self, request: Request) -> Response:
        """Show the restore plan of an ended job; then resume the job."""
        job_id = job_id_of(request.path_params["job_id"])
        outcome, given = (
            self.context.current().outcome(job_id),
            request.query_params.get("restore", "latest"),
        )
        if outcome is None or outcome.value.plan is None:
            raise UnknownJob(job_id)
        plan, name = outcome.value.plan, outcome.value.name
        if request.method == "POST":
            form = await _form(request)
            query = submit_query(
                str(job_id), None, form.get("restore", "latest"), form.get("onSinkLost")
            )
            options, by = restore_options(query), principal_of(request).name
            audit_facts(request, action="resume", restore=query["restore"][:100])
            await run_in_threadpool(
                lambda: self.context.commands.submit(
                    plan, file="", job_id=job_id, name=name, restore=options, by=by
                )
            )
            self.context.record_write()
            return self.frame.redirect(f"/ui/jobs/{job_id}")
        planned, refusal = None, ""
        try:
            planned = await run_in_threadpool(
                restore_plan,
                self.context,
                plan,
                job_id,
                name,
                {"jobId": str(job_id), "restore": given},
            )
        except UserError as error:
            refusal = str(error)
        return self.frame.page(
            request,
            "resume.html",
            job_id=job_id,
            name=name,
            given=given,
            plan=planned,
            refusal=refusal,
        )

    async def accept_change(self, request: Request) -> Response:
        """Show what a decision about a table change means; then resume the job with it."""
        job_id = job_id_of(request.path_params["job_id"])
        if request.method == "POST":
            decided = _accepted_change(await _form(request))
            await run_in_threadpool(self.writes.accept_change, job_id, decided, request)
            return self.frame.redirect(f"/ui/jobs/{job_id}")
        decided = _accepted_change(request.query_params)
        outcome = stopped_job(self.context.current().snapshot(job_id), decided)
        assert outcome.plan is not None, "who has failed has run"
        query = {"jobId": str(job_id), "restore": "latest", "acceptChange": str(decided)}
        planned, refusal = None, ""
        try:
            planned = await run_in_threadpool(
                restore_plan, self.context, outcome.plan, job_id, outcome.name, query
            )
        except UserError as error:
            refusal = str(error)
        return self.frame.page(
            request,
            "accept_change.html",
            job_id=job_id,
            name=outcome.name,
            change=decided,
            plan=planned,
            refusal=refusal,
        )

    async def survey(self, request: Request) -> Response:
        """Inspect the storage now. Moves nothing."""
        found, seen = await run_in_threadpool(lambda: (survey(self.context), storage(self.context)))
        saved = await run_in_threadpool(self.context.commands.savepoints.list)
        return self.frame.page(
            request,
            "storage.html",
            storage=seen,
            savepoints=[savepoint(each) for each in saved],
            survey=found,
        )

    async def collect(self, request: Request) -> Response:
        """Show what the collector would move; after confirmation run it."""
        if request.method == "POST" and (await _form(request)).get("confirmed") == "yes":
            await run_in_threadpool(collect, self.context)
            return self.frame.redirect("/ui/storage")
        return self.frame.page(
            request, "collect.html", survey=await run_in_threadpool(survey, self.context)
        )

    async def undo(self, request: Request) -> Response:
        await run_in_threadpool(undo, self.context, (await _form(request)).get("id", ""))
        return self.frame.redirect("/ui/storage")

    async def submit(self, request: Request) -> Response:
        """Check a pasted or uploaded job file, and submit it."""
        if request.method == "GET":
            return self._submission(request, {"text": EXAMPLE})
        form = await _form(request)
        text, format = form.get("text", ""), form.get("format") or "hocon"
        if form.get("act") != "submit":
            plan, problems = await run_in_threadpool(plan_with_problems, text, format_of(format))
            drawn = graph(shapes.graph(plan)) if plan is not None else None
            return self._submission(
                request, form, problems=problems, drawn=drawn, good=plan is not None
            )
        query = {key: form[key] for key in ("jobId", "jobName", "restore") if form.get(key)}
        try:
            record = await run_in_threadpool(
                self.writes.submit,
                text.encode(),
                format_of(format),
                query,
                principal_of(request).name,
            )
        except BadJob as error:
            return self._submission(request, form, problems=error.problems, status=422)
        except UserError as error:
            return self._submission(request, form, refusal=str(error), status=409)
        audit_facts(request, jobId=str(record.job_id), jobName=record.name, action="submit")
        return self.frame.redirect(f"/ui/jobs/{record.job_id}")

    def _submission(
        self, request: Request, form: dict[str, str], *, status: int = 200, **found: object
    ) -> Response:
        values = {"problems": [], "drawn": None, "good": None, "refusal": "", **found}
        given = {
            key: form.get(key, "") for key in ("text", "format", "jobId", "jobName", "restore")
        }
        problems: Sequence[Problem] = values["problems"]  # type: ignore[assignment]  # from `found`
        marked = sorted({problem.at.line for problem in problems if problem.at.line})
        return self.frame.page(
            request, "submit.html", status=status, given=given, marked=marked, **values
        )

    async def login(self, request: Request) -> Response:
        """Log in with a token; a cookie keeps it for COOKIE_S or until the browser is closed."""
        if request.method == "GET":
            return self.frame.page(
                request,
                "login.html",
                refused=False,
                wanted=local_page(request.query_params.get(NEXT, "")),
            )
        form = await _form(request)
        text, wanted = form.get("token", "").strip(), local_page(form.get(NEXT, ""))
        seen = self.context.cache.tokens()
        if (
            authenticate(
                text,
                lambda key: seen[key].value if key in seen else None,
                self.context.clock.now_ms(),
            )
            is None
        ):
            return self.frame.page(request, "login.html", status=401, refused=True, wanted=wanted)
        answer = self.frame.redirect(wanted)
        answer.set_cookie(
            COOKIE,
            text,
            max_age=COOKIE_S,
            path="/",
            httponly=True,
            samesite="strict",
            secure=self._secure(),
        )
        return answer

    async def logout(self, _request: Request) -> Response:
        answer = self.frame.redirect("/ui/login")
        answer.delete_cookie(
            COOKIE, path="/", httponly=True, samesite="strict", secure=self._secure()
        )
        return answer

    def _secure(self) -> bool:
        """Return whether browsers reach these pages over HTTPS, directly or through a proxy."""
        http = self.context.settings.http
        return http.https or http.external_url.lower().startswith("https:")


def _stop_mode(word: str) -> StopMode:
    modes = [mode.value for mode in STOP_WORDS]
    if word not in modes:
        raise UserError(f"{word!r} is not a stop mode: use {', '.join(modes)}")
    return StopMode(word)


def _accepted_change(given: Mapping[str, str]) -> AcceptedChange:
    """Parse a decision about a change from a form."""
    at, word, table = given.get("at", ""), given.get("choice", ""), given.get("table", "")
    return AcceptedChange.parse(f"{table + '@' if table else ''}{at}={word}")


async def _form(request: Request) -> dict[str, str]:
    """Parse a form. An uploaded file becomes the field `text`, in the format of its suffix."""
    content_type, body = request.headers.get("content-type", ""), await read_body(request)
    if not content_type.lower().startswith("multipart/form-data"):
        return {
            key: values[0]
            for key, values in parse_qs(
                body.decode("utf-8", "replace"), keep_blank_values=True
            ).items()
        }
    form = {}
    for name, file, content in parts_of(content_type, body):
        if name == "file" and file:
            form["text"] = content.decode("utf-8", "replace")
            suffix = file[file.rfind(".") :].lower()
            form["format"] = FORMATS[suffix].value if suffix in FORMATS else "hocon"
        elif name != "file":
            form.setdefault(name, content.decode("utf-8", "replace"))
    return form
