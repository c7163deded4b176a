"""The command line: one file for each group of verbs, imported when it is called, so that `tidegate
validate` needs no JVM, no Arrow, no Spark.
"""

from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from tidegate import __version__
from tidegate.cli import exits

VERBS = {
    "accept-change": "tidegate.cli.accept_change:accept_change",
    "cancel": "tidegate.cli.jobs:cancel",
    "capacity": "tidegate.cli.capacity:capacity",
    "checkpoints": "tidegate.cli.checkpoints:checkpoints",
    "completion": "tidegate.cli.completion:completion",
    "config": "tidegate.cli.config:config",
    "connectors": "tidegate.cli.connectors:connectors",
    "doctor": "tidegate.cli.doctor:doctor",
    "explain": "tidegate.cli.explain:explain",
    "infer": "tidegate.cli.infer:infer",
    "jobs": "tidegate.cli.jobs:jobs",
    "logs": "tidegate.cli.jobs:logs",
    "restore-plan": "tidegate.cli.restore_plan:restore_plan",
    "run": "tidegate.cli.run:run",
    "savepoint": "tidegate.cli.savepoint:savepoint",
    "savepoints": "tidegate.cli.savepoint:savepoints",
    "seatunnel": "tidegate.cli.seatunnel:seatunnel",
    "server": "tidegate.cli.server:server",
    "show": "tidegate.cli.jobs:show",
    "spark-conf": "tidegate.cli.spark_submit:spark_conf",
    "state": "tidegate.cli.state:state",
    "stop": "tidegate.cli.jobs:stop",
    "submit": "tidegate.cli.submit:submit",
    "support-bundle": "tidegate.cli.bundle:support_bundle",
    "token": "tidegate.cli.token:token",
    "validate": "tidegate.cli.validate:validate",
    "worker": "tidegate.cli.server:worker",
}


class Verbs(click.Group):
    """Verbs by name, imported late."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run a verb.

        Output that cannot be written ends it with a code of its own, and never with a traceback.
        """
        from tidegate.cli import output

        output.prepare()
        try:
            return super().main(*arguments, **named)
        except (OSError, SystemExit):
            error = output.lost()
            if error is None:
                raise
        code = output.exit_code(error)
        if code != exits.NOBODY_READS:  # of that one nobody wants to hear
            with suppress(OSError):
                click.echo(f"tidegate: {output.describe(error)}", err=True)
        raise SystemExit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends every verb with the code that shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # behind the terminal's ^C
            ctx.exit(exits.CANCELED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate")
def main() -> None:
    """Data-integration jobs on Spark that never lose their place."""
