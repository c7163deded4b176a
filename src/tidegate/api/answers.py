"""The reference's shape of an error, for whoever has to give one, and how much a request may send."""

from starlette.responses import JSONResponse, Response

from tidegate.model.errors import UserError

BODY_BYTES_MAX = 10 * 1024 * 1024


class BodyTooLarge(UserError):
    """A body over the limit."""

    condition = "body-too-large"

    def __init__(self) -> None:
        super().__init__(f"the body of the request is larger than {BODY_BYTES_MAX // 1024 // 1024} MB")


def fail(status: int, message: str) -> Response:
    """`{"status": "fail", "message": ...}`."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"status": "fail", "message": message}, status, headers)
