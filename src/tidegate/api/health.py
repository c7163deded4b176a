"""GET /health and GET /ready, for probes and load balancers without a token.

Accesses neither the store nor the disk. health: this process works, and it can read and write the
store. ready: it has a current view of the store. Anonymous callers get the same responses without
names, addresses and error messages.
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
        """Report whether this server can read and write the store, and which server leads."""
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
            text = ""
            if reason:
                text = UNREACHABLE if stale is not None else UNWRITABLE
            document |= {"message": text, "store": store | {"reason": text}}
            del document["server"], document["leader"]
        return JSONResponse(document, 503 if reason else 200)

    async def ready(self, request: Request) -> Response:
        """Report whether requests are answered from a current view of the store."""
        reason = self.context.out_of_date()
        if reason is None:
            return JSONResponse({"status": "ok", "message": ""})
        text = UNREACHABLE if principal_of(request) is ANONYMOUS else str(reason)
        return JSONResponse({"status": "fail", "message": text}, 503)
