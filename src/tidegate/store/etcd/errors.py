"""Translate errors of etcd into errors of the store. Called by http.py."""

from typing import Any

from tidegate.model.errors import TidegateError, UserError
from tidegate.store.errors import AnswerLost, StoreRefused, StoreUnavailable

# Texts of etcd after which nothing was done. After any other error that does not reject the request
# itself, the outcome is unknown.
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
    """The endpoint has certainly not received the request; another may be tried."""


class TokenExpired(StoreUnavailable):
    """The login token has expired; nothing was done."""


class HistoryGone(StoreUnavailable):
    """The requested etcd revision was compacted, or does not exist yet."""


def translate_answer(where: str, answer: dict[str, Any], *, once: bool) -> TidegateError:
    """Return the error for an error answer."""
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
