"""`tidegate completion SHELL`: prints the script for shell completion."""

import click
from click.shell_completion import ShellComplete, get_completion_class

VARIABLE = "_TIDEGATE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    Examples:
      eval "$(tidegate completion bash)"    # in ~/.bashrc
      eval "$(tidegate completion zsh)"     # in ~/.zshrc, after compinit
      tidegate completion fish > ~/.config/fish/completions/tidegate.fish
    """
    made = completer(context.find_root().command, shell)
    click.echo(made.source_template % made.source_vars())


def completer(main: click.Command, shell: str) -> ShellComplete:
    kind = get_completion_class(shell)
    assert kind is not None, "click supports these shells"
    return kind(main, {}, "tidegate", VARIABLE)
