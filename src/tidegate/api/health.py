"""GET /health and GET /ready: for probes and load balancers, which have no token. Called by app.py
and v1/app.py; touches neither store nor disk.

health: this process works, and it can read and write its store. ready: it has a current view of the
store, so its answers are true. Who has not said who it is sees the same answers without names,
addresses and texts of errors.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate import __version__
from tidegate.api.auth import ANONYMOUS, principal_of
from tidegate.api.context import ApiContext

UNREACHABLE = "the store cannot be reached"
UNWRITABLE = "the store cannot be written"


class HealthReport:
    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def health(self, request: Request) -> Response:
        """Whether this server can use the store, and who leads."""
        context, lease = self.context, self.context.cache.lease()
        reason, age_s = context.store_problem(), context.cache.age_s()
        stale = context.out_of_date()
        store: dict[str, Any] = {
            "reachable": not reason,
            "reason": reason,
            "secondsSinceLastRead": None if age_s == float("inf") else round(age_s, 3),
            "damagedDocuments": context.cache.damaged(),
        }
        document: dict[str, Any] = {
            "status": "fail" if reason else "ok",
            "message": str(stale) if stale is not None else reason,
            "server": {"id": context.me.id, "address": context.me.address, "version": __version__},
            "leading": lease is not None and lease.value.holder == context.me.id,
            "leader": (
                {
                    "id": lease.value.holder,
                    "address": lease.value.address,
                    "term": lease.value.term,
                }
                if lease
                else None
            ),
            "store": store,
        }
        if principal_of(request) is ANONYMOUS:
            text = "" if not reason else UNREACHABLE if stale is not None else UNWRITABLE
            document |= {"message": text, "store": store | {"reason": text}}
            del document["server"], document["leader"]
        return JSONResponse(document, 503 if reason else 200)

    async def ready(self, request: Request) -> Response:
        """Whether requests are answered from a current view of the store."""
        reason = self.context.out_of_date()
        text = (
            ""
            if reason is None
            else UNREACHABLE
            if principal_of(request) is ANONYMOUS
            else str(reason)
        )
        return JSONResponse(
            {"status": "ok" if reason is None else "fail", "message": text},
            200 if reason is None else 503,
        )
