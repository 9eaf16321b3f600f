"""`pal index`, `pal delete` and `pal completion`: the search index, the removal of a session, and the script for a shell."""

import click
from click.shell_completion import get_completion_class

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.main import cli
from palimpsest.apps.cli.opening.home import AnyHome, SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import print_index_faults, session_argument
from palimpsest.apps.cli.output.values import confirm, emit, json_option, progress
from palimpsest.core.errors import StoreError
from palimpsest.stores.home import remove
from palimpsest.stores.snapshots.shadow import forget_session


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


@click.command(epilog="\b\nExample:\n  pal delete 20310401-090000-aaaa")
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(*, session: str, yes: bool, as_json: bool) -> None:
    """Delete a session for good; this is the one command that cannot be undone.

    A session is not deleted if a fork depends on it or another process is writing it. It is removed from the search index.
    Blobs stay, because other sessions may need them. Snapshots of files that only this session needs are removed too.
    """
    home = find_home()
    location = find_session(home, session)
    if not yes:
        stat = location.store.stat(location.session)
        confirm(f"session {location.session} ({stat.size:,} bytes) would be deleted for good", stat.name)
    remove(location.store, location.session)
    index_updated = _remove_from_index(home, location)
    snapshots_removed = _remove_snapshots(home, location)
    if as_json:
        emit({"session": location.session, "deleted": True})
    else:
        click.echo(f"deleted {location.session}")
    if not (index_updated and snapshots_removed):
        click.get_current_context().exit(FINDINGS)


def _remove_snapshots(home: AnyHome, location: SessionLocation) -> bool:
    """Remove the snapshots of files that only this session needs. Returns false, after printing the reason, if that failed."""
    if location.store is not home.store or home.folder is None:
        return True
    try:
        forget_session(home.folder, location.session)
    except StoreError as error:
        click.echo(f"pal: {error}; its snapshots of files stay", err=True)
        return False
    return True


def _remove_from_index(home: AnyHome, location: SessionLocation) -> bool:
    """Remove a session from the search index. Returns false, after printing the reason, if that failed."""
    if location.store is not home.store or not home.has_index:
        return True
    try:
        with home.index() as index:
            index.forget(location.session)
    except StoreError as error:
        click.echo(f"pal: {error}; `pal index` removes the deleted session from it", err=True)
        return False
    return True


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
