"""`pal index` and `pal completion`: the search index, and the script for a shell."""

import click
from click.shell_completion import get_completion_class

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.main import cli
from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.opening.logs import print_index_faults
from palimpsest.apps.cli.output.values import emit, json_option, progress


@click.command(epilog="\b\nExample:\n  pal index --rebuild")
@click.option("--rebuild", is_flag=True, help="Rebuild it from the logs; no data can be lost.")
@json_option
def index(*, rebuild: bool, as_json: bool) -> None:
    """Update the search index; other commands do so when they need it.

    Deleted and redacted texts are removed from its file. A redaction that keeps the length of a log of more than
    32 MiB may need --rebuild to be noticed. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as opened, progress("indexing") as show_progress:
        report = opened.rebuild(show_progress) if rebuild else opened.refresh(show_progress)
        opened.purge(show_progress)
        faults, note = opened.faults(), opened.note
    if as_json:
        skipped = [{"path": path, "why": why} for path, why in faults]
        numbers = {"read": report.read, "bytes": report.bytes, "bad_lines": report.bad_lines, "gone": report.gone}
        emit({**numbers, "skipped": skipped, "note": note})
    else:
        done = ((report.read, "sessions read"), (report.bytes, "new bytes"), (report.gone, "sessions removed"))
        click.echo(", ".join(f"{count:,} {what}" for count, what in done if count) or "the index is up to date")
        print_index_faults(faults)
        if note:
            click.echo(f"pal: {note}", err=True)
    if faults or note:
        click.get_current_context().exit(FINDINGS)


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
