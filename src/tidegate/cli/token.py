"""`tidegate token`: who may use the API. Works on the store itself, so whoever can reach that needs no token to make the first one."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from tidegate.cli import remote
from tidegate.cli.server import started
from tidegate.coordinator.tokens import Tokens
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.records import AccessToken, Role
from tidegate.pipeline.clock import SystemClock
from tidegate.plugin.option import milliseconds
from tidegate.server import open_the_store


@click.group()
@click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
@click.option("--config", type=click.Path(path_type=Path), help="The engine's file; its state.url says where the tokens are.")
@click.pass_context
def token(context: click.Context, home: str | None, config: Path | None) -> None:
    """Make, list and revoke access tokens.

    \b
    Examples:
      tidegate token create ci --role operator --expires 90d
      tidegate token list
      tidegate token revoke 3f9a0c1d2e4b
    """
    context.obj = (home, config)


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), default=Role.VIEWER.value, show_default=True, help="What it may do.")
@click.option("--expires", metavar="SPAN", help="How long it lives: 12h, 90d; for ever without it.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def create(place: tuple[str | None, Path | None], name: str, role: str, expires: str | None, as_json: bool) -> None:
    """Make a token; it is shown now and never again."""
    with opened(place) as tokens:
        made, text = tokens.create(name, Role(role), _span(expires))
    if as_json:
        remote.print_json({**document(made), "token": text})
        return
    click.echo(text)
    click.echo(f"tidegate: that is the token of {made.name!r} ({made.role.value}), shown this once: keep it safe. Its id is {made.id}", err=True)


@token.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def list_command(place: tuple[str | None, Path | None], as_json: bool) -> None:
    """List the tokens; their secrets are known to nobody."""
    with opened(place) as tokens:
        found = [document(each) for each in tokens.all()]
    if as_json:
        remote.print_json(found)
    else:
        remote.print_table(("id", "name", "role", "made", "expires"), [[str(value or "never") for value in each.values()] for each in found])


@token.command()
@click.argument("id")
@click.pass_obj
def revoke(place: tuple[str | None, Path | None], id: str) -> None:
    """Let nobody in with this token any more."""
    with opened(place) as tokens:
        tokens.revoke(id)
    click.echo(f"token {id} is revoked")


@contextlib.contextmanager
def opened(place: tuple[str | None, Path | None]) -> Iterator[Tokens]:
    """The tokens of the installation; what goes wrong is a sentence."""
    start = started(*place)
    try:
        start.home.make()
        with contextlib.closing(open_the_store(start)) as store:
            yield Tokens(store, SystemClock())
    except UserError as error:
        raise click.UsageError(str(error)) from None
    except (TidegateError, OSError) as error:
        raise click.ClickException(str(error)) from None


def document(token: AccessToken) -> dict[str, str | None]:
    """A token without its secret."""
    return {"id": token.id, "name": token.name, "role": token.role.value, "made": _moment(token.created_ms), "expires": _moment(token.expires_ms)}


def _moment(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms else None


def _span(text: str | None) -> int:
    try:
        return milliseconds(text) if text else 0
    except ValueError as error:
        raise click.UsageError(f"--expires: {error}") from None
