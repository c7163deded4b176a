"""What all pages share: templates, the head of the page, who may see it, and how errors look."""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidegate import __version__
from tidegate.api.auth import principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.responses import internal_error
from tidegate.api.v1.cluster import coordinators_of
from tidegate.model.errors import TidegateError, TransientError, UserError
from tidegate.model.records import Role
from tidegate.store.errors import StoreDamaged
from tidegate.ui import formats as words

LOG = logging.getLogger("tidegate.ui")
HERE = Path(__file__).parent
NOT_FOUND = (
    "unknown-job",
    "unknown-plugin",
    "no-savepoint",
    "quarantine-missing",
    "unknown-log",
    "unknown-page",
)
Handler = Callable[[Request], Awaitable[Response]]


class PageRenderer:
    """What all pages share: templates, the address of everything, and the head of the page."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        path = context.settings.http.context_path.strip("/")
        self.root = f"/{path}" if path else ""
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            name: getattr(words, name)
            for name in (
                "symbol",
                "kind",
                "number",
                "size",
                "span",
                "iso",
                "utc",
                "counted",
                "is_terminal",
            )
        }
        self.templates.globals |= {"root": self.root, "version": __version__, "ago": words.ago}

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """A whole page.

        Nothing on it may come from elsewhere, be framed, or be kept by anybody on the way.
        """
        who = principal_of(request)
        now = datetime.fromtimestamp(self.context.clock.now_ms() / 1000, UTC)
        known = {
            "who": who,
            "operator": who.role.may(Role.OPERATOR),
            "admin": who.role.may(Role.ADMIN),
            "guarded": self.context.settings.http.requires_authentication,
            "now": now,
            "here": request.url.path,
            "query": request.query_params,
        }
        text = self.templates.get_template(template).render(**known, **values)
        others = " ".join(sorted(self._servers() - {self.context.me.address}))
        headers = {
            "Content-Security-Policy": (
                f"default-src 'self'; connect-src 'self' {others}; frame-ancestors 'none';"
                " form-action 'self'; base-uri 'none'"
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(text, status, headers)

    def _servers(self) -> set[str]:
        """Addresses of servers that a page may go on with, should this one die."""
        if self.context.out_of_date() is not None:
            return set()
        return {server.address for server in coordinators_of(self.context) if server.address}

    def servers(self) -> list[str]:
        return sorted(self._servers() - {self.context.me.address})

    def redirect(self, path: str) -> Response:
        """Go there next, by GET."""
        return RedirectResponse(f"{self.root}{path}", 303)

    def with_errors(self, handler: Handler, needed: Role) -> Handler:
        """The handler, for those who may, with every error as a page."""

        async def show(request: Request) -> Response:
            who = principal_of(request)
            if not who.role.may(needed):
                why = f"{who.name} is {who.role.value} here, and this needs the role {needed.value}"
                return self.page(
                    request, "error.html", status=403, condition="not-allowed", message=why
                )
            try:
                return await handler(request)
            except UserError as error:
                return self.page(
                    request,
                    "error.html",
                    status=404 if error.condition in NOT_FOUND else 400,
                    condition=error.condition,
                    message=str(error),
                )
            except ClientDisconnect:
                return Response("the connection ended before the body of the request did", 400)
            except (TransientError, StoreDamaged) as error:
                return self.page(
                    request, "error.html", status=503, condition=error.condition, message=str(error)
                )
            except TidegateError as error:
                return self.page(
                    request, "error.html", status=500, condition=error.condition, message=str(error)
                )
            except Exception:
                return self.page(
                    request,
                    "error.html",
                    status=500,
                    condition="internal",
                    message=internal_error(request, LOG),
                )

        return show
