"""Access tokens: made, listed, revoked, recognised. Called by the API and the command line; a server recognises them by its own picture of the store.

A token is `tg_<id>_<secret>`; the store has the id and the digest of the secret. So who reads the store, a backup of it or a log cannot come in with it.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.records import TOKENS, AccessToken, Role
from tidegate.pipeline.clock import Clock
from tidegate.store.base import Check, Delete, Put, Store, sound

NAME_MAX = 100
_FORM = re.compile(r"tg_([0-9a-f]{12})_([0-9A-Za-z_-]{43})")


class UnknownToken(UserError):
    """No such token."""

    condition = "unknown-token"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id!r} here: `tidegate token list` names them")


class Tokens:
    """The tokens of one installation."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock

    def create(self, name: str, role: Role, lives_ms: int = 0) -> tuple[AccessToken, str]:
        """A new token and its text, which nobody can read again."""
        if not name.strip() or len(name) > NAME_MAX or not name.isprintable():
            raise UserError(f"a token needs a name of 1 to {NAME_MAX} printable characters, that says who has it")
        token_id, secret, now_ms = secrets.token_hex(6), secrets.token_urlsafe(32), self.clock.now_ms()
        token = AccessToken(
            id=token_id, name=name.strip(), role=role, sha256=digest(secret), created_ms=now_ms, expires_ms=now_ms + lives_ms if lives_ms else 0
        )
        failpoint("token.create.before")
        self.store.transact([Check(TOKENS, token_id, 0)], [Put(TOKENS, token_id, to_document(token))])
        failpoint("token.create.after")
        return token, f"tg_{token_id}_{secret}"

    def all(self) -> list[AccessToken]:
        """All of them, the oldest first."""
        found = [from_document(AccessToken, entry.value, f"token {entry.key}") for entry in sound(self.store.list(TOKENS, ""))]
        return sorted(found, key=lambda token: (token.created_ms, token.id))

    def revoke(self, token_id: str) -> None:
        """From now on nobody comes in with it; other servers know it within a turn of their pictures."""
        entry = self.store.get(TOKENS, token_id)
        if entry is None:
            raise UnknownToken(token_id)
        failpoint("token.revoke.before")
        self.store.transact([Check(TOKENS, token_id, entry.version)], [Delete(TOKENS, token_id)])
        failpoint("token.revoke.after")


def recognised(text: str, find: Callable[[str], AccessToken | None], now_ms: int) -> AccessToken | None:
    """Whose token this is; None where it is nobody's, or its time is over. Compared in constant time, also where there is no such id."""
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    token = find(form[1])
    same = hmac.compare_digest(digest(form[2]), token.sha256 if token else digest(""))
    return token if token is not None and same and not 0 < token.expires_ms <= now_ms else None


def digest(secret: str) -> str:
    """What the store keeps of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
