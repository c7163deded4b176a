"""What etcd refuses, as errors of a store. Called by etcd_http.py, where it enters."""

from typing import Any

from tidegate.model.errors import TidegateError, UserError
from tidegate.store.errors import AnswerLost, StoreRefused, StoreUnavailable

# Texts of etcd that say: nothing was done. Of anything else that is no refusal of the request
# itself, nobody knows.
_TOKEN_EXPIRED = (
    "invalid auth token",
    "revision in header is old",
    "auth revision is old",
    "auth old revision",
)
_NOT_ALLOWED = (
    "permission denied",
    "user name is empty",
    "user name not found",
    "authentication failed",
    "authentication is not enabled",
)
_TOO_BIG = ("request is too large", "too many operations", "message larger than max")
_NOT_DONE = ("too many requests", "not capable", "corrupt cluster")
_NO_SPACE = ("database space exceeded", "no space")
_INVALID = 3  # codes of gRPC
_NOT_TAKEN = (9, 11)  # failed precondition, out of range


class NotSent(StoreUnavailable):
    """This endpoint surely has not got the request; another may be tried."""


class TokenExpired(StoreUnavailable):
    """The login is too old; nothing was done."""


class HistoryGone(StoreUnavailable):
    """A revision of etcd's that has been compacted, or is not there yet."""


def refusal(where: str, answer: dict[str, Any], *, once: bool) -> TidegateError:
    """The error for an answer that is one."""
    text, code = (
        str(answer.get("message") or answer.get("error") or "no reason given"),
        answer.get("code", answer.get("grpc_code")),
    )
    lower = text.lower()
    if any(known in lower for known in _TOKEN_EXPIRED):
        return TokenExpired(f"etcd at {where} no longer takes the login of this process: {text}")
    if any(known in lower for known in _NOT_ALLOWED):
        return UserError(
            f"etcd at {where} does not let this user work on the store ({text}): check user,"
            " password and permissions in the address of the store"
        )
    if any(known in lower for known in _TOO_BIG):
        return StoreRefused(
            f"the transaction is too big for etcd at {where} ({text}); nothing was written: raise"
            " --max-request-bytes, or write less at a time"
        )
    if any(known in lower for known in _NO_SPACE):
        return StoreUnavailable(
            f"etcd at {where} has no space left ({text}), and nothing was written: compact and"
            " defragment it, then disarm its alarm, or raise its quota"
        )
    if "required revision" in lower:
        return HistoryGone(f"etcd at {where} has no such revision: {text}")
    if code == _INVALID:
        return StoreRefused(f"etcd at {where} does not take the request: {text}")
    if code in _NOT_TAKEN or any(known in lower for known in _NOT_DONE):
        return StoreUnavailable(f"etcd at {where} refused the request: {text}")
    why = f"etcd at {where} failed: {text}"
    return AnswerLost(why) if once else StoreUnavailable(why)
