"""Access tokens: list, create, revoke; for admins. Every change is written to the audit log.

The secret of a token is in the response that creates it and nowhere else. These handlers read the
store itself, in threads, so that a token is visible on every server at once.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from tidegate.api.auth import AUDIT, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.v1.models import Model, old_name
from tidegate.api.v1.roles import ADMIN
from tidegate.api.v1.serializers import to_optional_time, to_time
from tidegate.coordinator.tokens import LIVES_S_MAX, NAME_MAX, Tokens, TokenStatus, status_of
from tidegate.model.records import AccessToken, Role

TokenId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="the id of a token")]


class TokenModel(Model):
    """An access token without its secret."""

    old_names: ClassVar[Mapping[str, str]] = {"made": "created"}

    id: str
    name: str
    role: Role
    created: datetime
    expires: datetime | None = Field(description="null: never")
    status: TokenStatus = Field(
        description=(
            "only an active token is accepted; a damaged record has no valid dates and can only be"
            " revoked"
        )
    )
    made: datetime | None = old_name("created")


class NewToken(TokenModel):
    """A new token with its secret."""

    token: str = Field(description="the secret that clients send; it is shown only once")


class TokenRequest(Model):
    """A request for a new token."""

    old_names: ClassVar[Mapping[str, str]] = {"lives_s": "lifetime_s"}

    name: str = Field(min_length=1, max_length=NAME_MAX, description="its owner")
    role: Role = Role.VIEWER
    lifetime_s: int | None = Field(
        default=None,
        ge=1,
        le=LIVES_S_MAX,
        description="lifetime in seconds; without it the token never expires",
    )
    lives_s: int | None = old_name("lifetime_s")


def routes(context: ApiContext) -> APIRouter:
    """Create the routes below /tokens, all for admins."""
    router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[ADMIN])
    tokens = Tokens(context.store, context.clock)

    @router.get("")
    def list_tokens() -> list[TokenModel]:
        """List all tokens, oldest first."""
        return [TokenModel(**token_fields(each, context.clock.now_ms())) for each in tokens.all()]

    @router.post("", status_code=201)
    def create_token(body: TokenRequest, request: Request, response: Response) -> NewToken:
        """Create a token. Its secret is in this response and nowhere else."""
        lifetime_ms = None if body.lifetime_s is None else body.lifetime_s * 1000
        created, text = tokens.create(body.name, body.role, lifetime_ms)
        _audit(request, f"created token {created.id} {created.name!r}, {created.role.value}")
        context.catch_up()
        response.headers["Cache-Control"] = "no-store"
        return NewToken(**token_fields(created, context.clock.now_ms()), token=text)

    @router.delete("/{token_id}", status_code=204)
    def revoke_token(token_id: TokenId, request: Request) -> None:
        """Revoke a token: from now on it is rejected."""
        tokens.revoke(token_id)
        _audit(request, f"revoked token {token_id}")
        context.catch_up()

    return router


def token_fields(token: AccessToken, now_ms: int) -> dict[str, Any]:
    """Return the public fields of a token.

    A damaged token has expired in 1970, for clients that do not know the status.
    """
    status = status_of(token, now_ms)
    dates: dict[str, datetime | None] = {"created": to_time(0), "expires": to_time(0)}
    if status is not TokenStatus.DAMAGED:
        dates = {
            "created": to_time(token.created_ms),
            "expires": to_optional_time(token.expires_ms),
        }
    return {"id": token.id, "name": token.name, "role": token.role, **dates, "status": status}


def _audit(request: Request, what: str) -> None:
    principal = principal_of(request)
    AUDIT.info(
        "token_audited",
        extra={
            "by": principal.name,
            "role": principal.role.value,
            "from": request.client.host if request.client else "",
            "what": what,
        },
    )
