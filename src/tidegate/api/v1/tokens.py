"""Access tokens for those who administer: listed, made, revoked. The secret of a token is in one
answer, once; a line of the audit log tells of each act.

These ask the store itself, in threads: whoever has just made a token wants to see it, at whichever
server.
"""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from tidegate.api.auth import AUDIT, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.models import Model
from tidegate.api.v1.roles import ADMIN
from tidegate.coordinator.tokens import LIVES_S_MAX, NAME_MAX, Tokens, TokenStatus, status_of
from tidegate.model.records import AccessToken, Role

TokenId = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="the id of a token")]


class TokenModel(Model):
    """Who may come in, and how far; the secret is known to nobody."""

    id: str
    name: str
    role: Role
    made: datetime
    expires: datetime | None = Field(description="null: never")
    status: TokenStatus = Field(
        description=(
            "only an active one lets anybody in; a damaged record has no true dates and can only be"
            " revoked"
        )
    )


class NewToken(TokenModel):
    """A token that has just been made."""

    token: str = Field(description="what its holder sends; it is shown this once")


class TokenRequest(Model):
    """A token that shall be."""

    name: str = Field(min_length=1, max_length=NAME_MAX, description="who has it")
    role: Role = Role.VIEWER
    lives_s: int | None = Field(
        default=None,
        ge=1,
        le=LIVES_S_MAX,
        description="how long it lives, in seconds; for ever without it",
    )


def routes(context: ApiContext) -> APIRouter:
    """All of them are for admins."""
    router, tokens = (
        APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[ADMIN]),
        Tokens(context.store, context.clock),
    )

    @router.get("")
    def list_tokens() -> list[TokenModel]:
        """All tokens, the oldest first."""
        return [TokenModel(**shown(each, context.clock.now_ms())) for each in tokens.all()]

    @router.post("", status_code=201)
    def create_token(body: TokenRequest, request: Request, response: Response) -> NewToken:
        """Make a token. Its secret is in this answer and nowhere else."""
        made, text = tokens.create(
            body.name, body.role, None if body.lives_s is None else body.lives_s * 1000
        )
        _audit(request, f"made token {made.id} {made.name!r}, {made.role.value}")
        context.catch_up()
        response.headers["Cache-Control"] = "no-store"
        return NewToken(**shown(made, context.clock.now_ms()), token=text)

    @router.delete("/{token_id}", status_code=204)
    def revoke_token(token_id: TokenId, request: Request) -> None:
        """Let nobody in with it any more."""
        tokens.revoke(token_id)
        _audit(request, f"revoked token {token_id}")
        context.catch_up()

    return router


def shown(token: AccessToken, now_ms: int) -> dict[str, Any]:
    """What may be seen of a token.

    A damaged one has expired in 1970, for readers that know no status.
    """
    status = status_of(token, now_ms)
    dates: dict[str, datetime | None] = {"made": shapes.at(0), "expires": shapes.at(0)}
    if status is not TokenStatus.DAMAGED:
        dates = {"made": shapes.at(token.created_ms), "expires": shapes.moment(token.expires_ms)}
    return {"id": token.id, "name": token.name, "role": token.role, **dates, "status": status}


def _audit(request: Request, what: str) -> None:
    who = principal_of(request)
    AUDIT.info(
        "token",
        extra={
            "by": who.name,
            "role": who.role.value,
            "from": request.client.host if request.client else "",
            "what": what,
        },
    )
