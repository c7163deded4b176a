"""The command line: one file per group of commands, imported only when a command is called.

So `tidegate validate` needs no JVM, no Arrow and no Spark.
"""

from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from tidegate import __version__
from tidegate.cli import exits

COMMANDS = {
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


class LazyGroup(click.Group):
    """Commands by name; the module of a command is imported when it is called."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run a command.

        If its output cannot be written, it ends with an exit code of its own, without a traceback.
        """
        from tidegate.cli import output

        output.prepare()
        try:
            return super().main(*arguments, **named)
        except (OSError, SystemExit):
            error = output.flush_output()
            if error is None:
                raise
        code = output.exit_code(error)
        if code != exits.OUTPUT_CLOSED:  # a closed pipe is no error worth a message
            with suppress(OSError):
                click.echo(f"tidegate: {output.describe(error)}", err=True)
        raise SystemExit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """End a command on Ctrl-C with the exit code that shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # ends the line of the terminal's ^C
            ctx.exit(exits.CANCELED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(COMMANDS)

    def get_command(  # click's signature
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate")
def main() -> None:
    """Run fault-tolerant data-integration jobs on Spark, with exactly-once checkpoints."""
