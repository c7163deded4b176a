"""Routes of the web UI. Mounted by the server next to the API."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tidegate.api.context import ApiContext
from tidegate.model.records import Role
from tidegate.ui.actions import Actions
from tidegate.ui.page_renderer import HERE, Handler, PageRenderer
from tidegate.ui.pages import Pages


def routes(context: ApiContext) -> list[BaseRoute]:
    """Create the routes of all pages."""
    frame = PageRenderer(context)
    pages, acting = Pages(frame), Actions(frame)

    async def front(_request: Request) -> Response:
        return frame.redirect("/ui/")

    seen: dict[str, Handler] = {
        "/": pages.overview,
        "/jobs": pages.jobs,
        "/jobs/{job_id}": pages.job,
        "/jobs/{job_id}/logs": pages.logs,
        "/cluster": pages.cluster,
        "/cleanup": pages.cleanup,
        "/storage": pages.storage,
    }
    return [
        Route("/", front, methods=["GET"]),
        Mount(
            "/ui",
            routes=[
                Mount("/static", StaticFiles(directory=HERE / "static")),
                *(
                    Route(path, frame.with_errors(handler, Role.VIEWER), methods=["GET"])
                    for path, handler in seen.items()
                ),
                Route(
                    "/submit",
                    frame.with_errors(acting.submit, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/stop",
                    frame.with_errors(acting.stop, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/savepoint",
                    frame.with_errors(acting.savepoint, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/resume",
                    frame.with_errors(acting.resume, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/accept-change",
                    frame.with_errors(acting.accept_change, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/savepoints/{job_id}/{savepoint_id}/delete",
                    frame.with_errors(acting.delete_savepoint, Role.ADMIN),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/storage/survey",
                    frame.with_errors(acting.survey, Role.OPERATOR),
                    methods=["POST"],
                ),
                Route(
                    "/storage/collect",
                    frame.with_errors(acting.collect, Role.ADMIN),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/storage/undo", frame.with_errors(acting.undo, Role.ADMIN), methods=["POST"]
                ),
                Route(
                    "/login", frame.with_errors(acting.login, Role.VIEWER), methods=["GET", "POST"]
                ),
                Route("/logout", frame.with_errors(acting.logout, Role.VIEWER), methods=["POST"]),
                Route(
                    "/{path:path}", frame.with_errors(pages.unknown, Role.VIEWER), methods=["GET"]
                ),
            ],
        ),
    ]
