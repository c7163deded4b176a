"""The routes of the pages. Put together by the server, beside the API."""

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
    """All pages of one server."""
    frame = PageRenderer(context)
    pages, acting = Pages(frame), Actions(frame)

    async def front(_request: Request) -> Response:
        return frame.moved("/ui/")

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
                    Route(path, frame.shown(handler, Role.VIEWER), methods=["GET"])
                    for path, handler in seen.items()
                ),
                Route(
                    "/submit", frame.shown(acting.submit, Role.OPERATOR), methods=["GET", "POST"]
                ),
                Route(
                    "/jobs/{job_id}/stop",
                    frame.shown(acting.stop, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/savepoint",
                    frame.shown(acting.savepoint, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/resume",
                    frame.shown(acting.resume, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/jobs/{job_id}/accept-change",
                    frame.shown(acting.accept_change, Role.OPERATOR),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/savepoints/{job_id}/{savepoint_id}/delete",
                    frame.shown(acting.delete_savepoint, Role.ADMIN),
                    methods=["GET", "POST"],
                ),
                Route(
                    "/storage/survey", frame.shown(acting.survey, Role.OPERATOR), methods=["POST"]
                ),
                Route(
                    "/storage/collect",
                    frame.shown(acting.collect, Role.ADMIN),
                    methods=["GET", "POST"],
                ),
                Route("/storage/undo", frame.shown(acting.undo, Role.ADMIN), methods=["POST"]),
                Route("/login", frame.shown(acting.login, Role.VIEWER), methods=["GET", "POST"]),
                Route("/logout", frame.shown(acting.logout, Role.VIEWER), methods=["POST"]),
                Route("/{path:path}", frame.shown(pages.nothing, Role.VIEWER), methods=["GET"]),
            ],
        ),
    ]
