"""Access tokens: create, list, revoke, authenticate.

Called by the API and the command line; a server authenticates them by its own cluster cache. A
token never expires only if no lifetime is given; one that is zero, negative, longer than
`LIVES_S_MAX` or not a duration is rejected before anything is stored. An impossible record, as an
earlier release could write it, is listed as damaged, does not authenticate, and can be revoked.

A token is `tg_<id>_<secret>`; the store has the id and the digest of the secret. So a copy of the
store, a backup or a log does not contain a usable token.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from enum import StrEnum

from tidegate.clock import Clock
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.records import TOKENS, AccessToken, Role
from tidegate.plugin.option import milliseconds
from tidegate.store.base import Check, Delete, Entry, Put, Store

NAME_MAX = 100
LIVES_S_MAX = 100 * 366 * 24 * 3600
MOMENT_MS_MAX = 253_402_300_799_000  # the end of the year 9999, after which no date can be shown
SPAN_CHARS_MAX = 40
DAMAGED = -1  # as `expires_ms`: of a record that cannot be read
_FORM = re.compile(r"tg_([0-9a-f]{12})_([0-9A-Za-z_-]{43})")


class UnknownToken(UserError):
    condition = "unknown-token"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id!r} here: `tidegate token list` names them")


class BadLifetime(UserError):
    """A duration that is not a valid lifetime of a token."""

    condition = "bad-lifetime"

    def __init__(self, given: str) -> None:
        super().__init__(
            f"{given[:SPAN_CHARS_MAX]!r} is not a valid lifetime of a token: give a duration from"
            f" 1s to {LIVES_S_MAX // 86_400}d (90d, 12h, 30m), or none for a token that never"
            " expires"
        )


class TokenStatus(StrEnum):
    """Whether a token authenticates its bearer."""

    ACTIVE = "active"
    EXPIRED = "expired"
    DAMAGED = "damaged"


class Tokens:
    """The access tokens of one installation."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    def create(self, name: str, role: Role, lives_ms: int | None = None) -> tuple[AccessToken, str]:
        """Create a token; return it with its text, which cannot be read again.

        Without `lives_ms` it never expires.
        """
        if lives_ms is not None and not 1_000 <= lives_ms <= LIVES_S_MAX * 1_000:
            raise BadLifetime(f"{lives_ms} ms")
        if not name.strip() or len(name) > NAME_MAX or not name.isprintable():
            raise UserError(
                f"a token needs a name of 1 to {NAME_MAX} printable characters, which says who"
                " uses it"
            )
        token_id, secret, now_ms = (
            secrets.token_hex(6),
            secrets.token_urlsafe(32),
            self.clock.now_ms(),
        )
        expires_ms = 0 if lives_ms is None else now_ms + lives_ms
        token = AccessToken(
            id=token_id,
            name=name.strip(),
            role=role,
            sha256=digest(secret),
            created_ms=now_ms,
            expires_ms=expires_ms,
        )
        failpoint("token.create.before")
        self.store.transact(
            [Check(TOKENS, token_id, 0)], [Put(TOKENS, token_id, to_document(token))]
        )
        failpoint("token.create.after")
        return token, f"tg_{token_id}_{secret}"

    def all(self) -> list[AccessToken]:
        """Return all tokens, the oldest first."""
        found = [_token(entry) for entry in self.store.list(TOKENS, "")]
        return sorted(found, key=lambda token: (token.created_ms, token.id))

    def revoke(self, token_id: str) -> None:
        """Revoke a token; other servers apply it with their next refresh of the cluster cache."""
        entry = self.store.get(TOKENS, token_id)
        if entry is None:
            raise UnknownToken(token_id)
        failpoint("token.revoke.before")
        self.store.transact([Check(TOKENS, token_id, entry.version)], [Delete(TOKENS, token_id)])
        failpoint("token.revoke.after")


def authenticate(
    text: str, find: Callable[[str], AccessToken | None], now_ms: int
) -> AccessToken | None:
    """Return the token of this text; None if it is unknown or not active.

    Compared in constant time, also if there is no such id.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    token = find(form[1])
    same = hmac.compare_digest(digest(form[2]), token.sha256 if token else digest(""))
    return (
        token
        if token is not None and same and status_of(token, now_ms) is TokenStatus.ACTIVE
        else None
    )


def status_of(token: AccessToken, now_ms: int) -> TokenStatus:
    """Return whether the token is usable at this moment."""
    possible = all(
        type(ms) is int and 0 <= ms <= MOMENT_MS_MAX for ms in (token.created_ms, token.expires_ms)
    )
    if not possible:
        return TokenStatus.DAMAGED
    return TokenStatus.EXPIRED if 0 < token.expires_ms <= now_ms else TokenStatus.ACTIVE


def lifetime_ms(text: str) -> int:
    """Parse a lifetime as a user writes it; BadLifetime if it is not valid."""
    plain = text.strip()
    if not plain.isascii() or not plain or len(plain) > SPAN_CHARS_MAX:
        raise BadLifetime(text)
    try:
        found = milliseconds(plain)
    except ValueError:
        raise BadLifetime(text) from None
    if not 1_000 <= found <= LIVES_S_MAX * 1_000:
        raise BadLifetime(text)
    return found


def _token(entry: Entry) -> AccessToken:
    """Decode the record; one that cannot be read keeps its id, so that it can be revoked."""
    try:
        return from_document(AccessToken, entry.value, f"token {entry.key}")
    except (TidegateError, TypeError, ValueError, KeyError, AttributeError):
        return AccessToken(
            id=entry.key,
            name="(unreadable)",
            role=Role.VIEWER,
            sha256="",
            created_ms=0,
            expires_ms=DAMAGED,
        )


def digest(secret: str) -> str:
    """Return what the store keeps of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
