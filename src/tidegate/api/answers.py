"""The reference's shape of an error, for whoever has to give one."""

from starlette.responses import JSONResponse, Response


def fail(status: int, message: str) -> Response:
    """`{"status": "fail", "message": ...}`."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"status": "fail", "message": message}, status, headers)
