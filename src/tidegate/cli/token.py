"""`tidegate token`: manages access tokens of the API.

It uses the store directly, so the first token can be created without one. With `--server` it sends
requests to a server, for admins without access to the store.
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
HomeAndConfig = tuple[str | None, Path | None]
Row = dict[str, str | None]
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


class TokenAdmin(Protocol):
    """Creates, lists and revokes tokens, in the store or at a server."""

    def create(self, name: str, role: Role, lives_ms: int | None) -> tuple[Row, str]:
        """A new token and its text."""

    def all(self) -> list[Row]:
        """All of them, without secrets."""

    def revoke(self, token_id: str) -> None: ...


class LocalTokens:
    """Tokens in the store of this installation."""

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

        If the answer is lost, a token may exist whose text nobody has; `list` shows it.
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
    """Add `--server` and `--ca-file` to a command that otherwise uses the store."""
    decorated = click.option(
        "--ca-file", help="PEM file of the authority that signed the servers' certificates."
    )(command)
    return click.option(
        "--server",
        metavar="URL[,URL]",
        help="Use a server instead of the store; TIDEGATE_TOKEN must be an admin's.",
    )(decorated)


@click.group()
@click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file; its state.url is the store of the tokens.",
)
@click.pass_context
def token(context: click.Context, home: str | None, config: Path | None) -> None:
    """Create, list and revoke access tokens, in the installation's store or at a server.

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
    help="The permissions of the token.",
)
@click.option(
    "--expires",
    metavar="SPAN",
    help="Lifetime, from 1s to 36600d, such as 12h or 90d.  [default: never expires]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
@click.pass_obj
def create(
    installation: HomeAndConfig,
    name: str,
    role: str,
    expires: str | None,
    as_json: bool,
    server: str | None,
    ca_file: str | None,
) -> None:
    """Create a token; it is shown now and never again."""
    try:
        # an empty text is an error: probably a variable that is not set
        lives_ms = None if expires is None else lifetime_ms(expires)
    except UserError as error:
        raise click.UsageError(f"--expires: {error}") from None
    made, text = with_tokens(
        installation, server, ca_file, lambda tokens: tokens.create(name, Role(role), lives_ms)
    )
    if as_json:
        remote.print_json({**made, "token": text})
        return
    click.echo(text)
    click.echo(
        f"tidegate: this is the token of {made['name']!r} ({made['role']}), shown only once: keep"
        f" it safe. Its id is {made['id']}",
        err=True,
    )


@token.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
@click.pass_obj
def list_command(
    installation: HomeAndConfig, as_json: bool, server: str | None, ca_file: str | None
) -> None:
    """List the tokens; their secrets are not stored and cannot be shown."""
    found = with_tokens(installation, server, ca_file, lambda tokens: tokens.all())
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
def revoke(installation: HomeAndConfig, id: str, server: str | None, ca_file: str | None) -> None:
    """Revoke a token, so that the API no longer accepts it."""
    with_tokens(installation, server, ca_file, lambda tokens: tokens.revoke(id))
    click.echo(f"token {id} is revoked")


def with_tokens(
    installation: HomeAndConfig,
    server: str | None,
    ca_file: str | None,
    act: Callable[[TokenAdmin], T],
) -> T:
    """Call `act` with the tokens of the store or of a server; turn errors into messages."""
    if server is None:
        with open_tokens(installation) as tokens:
            return act(LocalTokens(tokens))
    asked: Callable[..., T] = remote.options(lambda *, client: act(RemoteTokens(client)))
    return asked(server=server, ca_file=ca_file)


@contextlib.contextmanager
def open_tokens(installation: HomeAndConfig) -> Iterator[Tokens]:
    """Open the tokens of the installation; turn errors into messages."""
    server_settings = load_settings(*installation)
    try:
        server_settings.home.create()
        with contextlib.closing(open_the_store(server_settings)) as store:
            yield Tokens(store, SystemClock())
    except UserError as error:
        raise click.UsageError(str(error)) from None
    except (TidegateError, OSError) as error:
        raise click.ClickException(str(error)) from None


def document(token: AccessToken, now_ms: int) -> Row:
    """Return a token without its secret; a damaged one has no valid dates."""
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
    """Convert a server's description of a token into a row of the list."""
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
