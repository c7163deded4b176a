"""Render pages: templates, page header, role checks and error pages."""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidegate import __version__
from tidegate.api.auth import permission_denied, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.responses import INCOMPLETE_BODY, internal_error
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
    """Renders the templates with the values that all pages share."""

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
        """Render a page.

        The headers forbid content of other origins, framing and caching.
        """
        principal = principal_of(request)
        now = datetime.fromtimestamp(self.context.clock.now_ms() / 1000, UTC)
        known = {
            "who": principal,
            "operator": principal.role.may(Role.OPERATOR),
            "admin": principal.role.may(Role.ADMIN),
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
        """Return the addresses of servers that a page may switch to if this one fails."""
        if self.context.out_of_date() is not None:
            return set()
        return {server.address for server in coordinators_of(self.context) if server.address}

    def servers(self) -> list[str]:
        return sorted(self._servers() - {self.context.me.address})

    def redirect(self, path: str) -> Response:
        """Redirect to a page, which is requested with GET."""
        return RedirectResponse(f"{self.root}{path}", 303)

    def with_errors(self, handler: Handler, needed: Role) -> Handler:
        """Wrap a handler: check the caller's role, and turn every error into a page."""

        async def show(request: Request) -> Response:
            principal = principal_of(request)
            if not principal.role.may(needed):
                return self.page(
                    request,
                    "error.html",
                    status=403,
                    condition="not-allowed",
                    message=permission_denied(principal, needed),
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
                return Response(INCOMPLETE_BODY, 400)
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
