"""`pal completion`: the completion script for a shell."""

import click
from click.shell_completion import get_completion_class

from palimpsest.apps.cli.main import cli
from palimpsest.apps.cli.output import emit, json_option

_EXAMPLES = """\b
Examples:
  eval "$(pal completion bash)"                              in ~/.bashrc
  eval "$(pal completion zsh)"                               in ~/.zshrc
  pal completion fish > ~/.config/fish/completions/pal.fish"""


@click.command(epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(*, shell: str, as_json: bool) -> None:
    """Print the completion script for a shell: commands, options and session ids."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"completion is not available for {shell}")
    script = found(cli, {}, "pal", "_PAL_COMPLETE").source()
    if as_json:
        emit({"shell": shell, "script": script})
    else:
        click.echo(script)
