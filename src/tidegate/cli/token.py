"""`tidegate token`: who may use the API. Works on the store itself, so whoever can reach that needs
no token to make the first one; with `--server` it asks a server instead, as an admin who is
elsewhere does.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from tidegate.cli import remote
from tidegate.cli.server import load_settings
from tidegate.client import Client
from tidegate.clock import SystemClock
from tidegate.coordinator.tokens import Tokens, TokenStatus, lifetime_ms, status_of
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.records import AccessToken, Role
from tidegate.server import open_the_store

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Place = tuple[str | None, Path | None]
Row = dict[str, str | None]
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


class TokenAdmin(Protocol):
    """Where the tokens are kept."""

    def create(self, name: str, role: Role, lives_ms: int | None) -> tuple[Row, str]:
        """A new token and its text."""

    def all(self) -> list[Row]:
        """All of them, without secrets."""

    def revoke(self, token_id: str) -> None: ...


class LocalTokens:
    """In the store of this installation."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def create(self, name: str, role: Role, lives_ms: int | None) -> tuple[Row, str]:
        """A new token and its text."""
        made, text = self.tokens.create(name, role, lives_ms)
        return document(made, self.tokens.clock.now_ms()), text

    def all(self) -> list[Row]:
        """All of them, without secrets."""
        return [document(each, self.tokens.clock.now_ms()) for each in self.tokens.all()]

    def revoke(self, token_id: str) -> None:
        self.tokens.revoke(token_id)


class RemoteTokens:
    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, role: Role, lives_ms: int | None) -> tuple[Row, str]:
        """A new token and its text.

        Where an answer is lost, a token may be there that nobody has: `list` shows it.
        """
        lifetime = {} if lives_ms is None else {"lifetime_s": lives_ms // 1000}
        made = self.client.post("/api/v1/tokens", {"name": name, "role": role.value, **lifetime})
        return _row(made), made["token"]

    def all(self) -> list[Row]:
        """All of them, without secrets."""
        return [_row(each) for each in self.client.get("/api/v1/tokens")]

    def revoke(self, token_id: str) -> None:
        self.client.delete(f"/api/v1/tokens/{token_id}")


def server_options(command: F) -> F:
    """`--server` and `--ca-file`, for a command that works on the store without them."""
    decorated = click.option(
        "--ca-file", help="PEM file of the authority that has signed the servers' certificates."
    )(command)
    return click.option(
        "--server",
        metavar="URL[,URL]",
        help="Ask a server instead of the store; TIDEGATE_TOKEN must be an admin's.",
    )(decorated)


@click.group()
@click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file; its state.url says where the tokens are.",
)
@click.pass_context
def token(context: click.Context, home: str | None, config: Path | None) -> None:
    """Make, list and revoke access tokens: in the store of the installation, or with --server at a
    server.

    \b
    Examples:
      tidegate token create ci --role operator --expires 90d
      tidegate token list --server https://etl:8443 --ca-file ca.pem
      tidegate token revoke 3f9a0c1d2e4b
    """
    context.obj = (home, config)


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.VIEWER.value,
    show_default=True,
    help="What it may do.",
)
@click.option(
    "--expires",
    metavar="SPAN",
    help="How long it lives, from 1s to 36600d: 12h, 90d; for ever without it.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@server_options
@click.pass_obj
def create(
    place: Place,
    name: str,
    role: str,
    expires: str | None,
    as_json: bool,
    server: str | None,
    ca_file: str | None,
) -> None:
    """Make a token; it is shown now and never again."""
    try:
        lives_ms = (
            None if expires is None else lifetime_ms(expires)
        )  # an empty text is a variable that was not set, and no wish
    except UserError as error:
        raise click.UsageError(f"--expires: {error}") from None
    made, text = with_tokens(place, server, ca_file, lambda book: book.create(name, Role(role), lives_ms))
    if as_json:
        remote.print_json({**made, "token": text})
        return
    click.echo(text)
    click.echo(
        f"tidegate: that is the token of {made['name']!r} ({made['role']}), shown this once: keep"
        f" it safe. Its id is {made['id']}",
        err=True,
    )


@token.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@server_options
@click.pass_obj
def list_command(place: Place, as_json: bool, server: str | None, ca_file: str | None) -> None:
    """List the tokens; their secrets are known to nobody."""
    found = with_tokens(place, server, ca_file, lambda book: book.all())
    if as_json:
        remote.print_json(found)
    else:
        remote.print_table(
            ("id", "name", "role", "made", "expires", "status"),
            [[str(value or "never") for value in each.values()] for each in found],
        )


@token.command()
@click.argument("id")
@server_options
@click.pass_obj
def revoke(place: Place, id: str, server: str | None, ca_file: str | None) -> None:
    """Let nobody in with this token any more."""
    with_tokens(place, server, ca_file, lambda book: book.revoke(id))
    click.echo(f"token {id} is revoked")


def with_tokens(
    place: Place, server: str | None, ca_file: str | None, act: Callable[[TokenAdmin], T]
) -> T:
    """What `act` makes of the tokens, wherever they are; what goes wrong is a sentence."""
    if server is None:
        with open_tokens(place) as tokens:
            return act(LocalTokens(tokens))
    asked: Callable[..., T] = remote.options(lambda *, client: act(RemoteTokens(client)))
    return asked(server=server, ca_file=ca_file)


@contextlib.contextmanager
def open_tokens(place: Place) -> Iterator[Tokens]:
    """The tokens of the installation; what goes wrong is a sentence."""
    start = load_settings(*place)
    try:
        start.home.create()
        with contextlib.closing(open_the_store(start)) as store:
            yield Tokens(store, SystemClock())
    except UserError as error:
        raise click.UsageError(str(error)) from None
    except (TidegateError, OSError) as error:
        raise click.ClickException(str(error)) from None


def document(token: AccessToken, now_ms: int) -> Row:
    """A token without its secret; a damaged one without its dates, which cannot be true."""
    status = status_of(token, now_ms)
    dates: Row = {"made": "?", "expires": "?"}
    if status is not TokenStatus.DAMAGED:
        dates = {"made": _moment(token.created_ms), "expires": _moment(token.expires_ms)}
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        **dates,
        "status": status.value,
    }


def _row(answer: dict[str, Any]) -> Row:
    """What a server tells of a token, in the same words."""
    moments = {
        key: datetime.fromisoformat(answer[field]).strftime(MOMENT) if answer[field] else None
        for key, field in (("made", "created"), ("expires", "expires"))
    }
    return {
        **{key: str(answer[key]) for key in ("id", "name", "role")},
        **moments,
        "status": str(answer.get("status", "")),
    }


def _moment(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(MOMENT) if ms else None
