"""SeaTunnel's format of an error response, and the size limit of a request body."""

import logging
import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.model.errors import UserError

BODY_BYTES_MAX = 10 * 1024 * 1024
PATH_CHARS_MAX = 200
INCOMPLETE_BODY = "The connection was closed before the whole request body arrived"


class BodyTooLarge(UserError):
    """The body of a request exceeds BODY_BYTES_MAX."""

    condition = "body-too-large"

    def __init__(self) -> None:
        super().__init__(
            f"the body of the request is larger than {BODY_BYTES_MAX // 1024 // 1024} MB"
        )


def fail(status: int, message: str) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"status": "fail", "message": message}, status, headers)


def internal_error(request: Request, log: logging.Logger) -> str:
    """Log the current exception; return the message for the caller, with the request id."""
    request_id = secrets.token_hex(6)
    log.exception(
        "request_failed",
        extra={
            "request": request_id,
            "why": f"{request.method} {request.url.path[:PATH_CHARS_MAX]}",
        },
    )
    return f"Internal server error; see the server log, request id {request_id}"
