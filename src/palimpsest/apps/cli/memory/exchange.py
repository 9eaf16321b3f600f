"""`pal memory import` and `pal memory export`: notes from and for other programs."""

from pathlib import Path
from typing import Literal

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.memory.notes import note_fields
from palimpsest.apps.cli.memory.places import cwd_option, open_memories, scope_option, word_of
from palimpsest.apps.cli.opening.home import expand_path
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.format.texts import counted
from palimpsest.engine.memory.access.exporting import one_document, write_topic_files
from palimpsest.engine.memory.access.importing import ImportedNotes, folder_at, import_notes, own_folders
from palimpsest.memory.note import redacted

_MOST_SHOWN = 10


@click.command("import", epilog="\b\nExamples:\n  pal memory import\n  pal memory import ~/.codex/memories")
@click.argument("folder", required=False, metavar="[FOLDER]")
@scope_option
@cwd_option
@json_option
def import_(*, folder: str | None, scope: str, cwd: Path, as_json: bool) -> None:
    """Import the notes that Claude Code or Codex keeps: those of this project and user, or those in FOLDER.

    What was imported before is not imported again. Files that others could have written, such as those of a repository or of a team, go
    to quarantine: read them with `pal memory list --quarantine`, accept them with `pal memory promote`. Exit code 1 if something was
    left out.
    """
    opened = open_memories(cwd)
    home = Path.home()
    folders = own_folders(opened.root, home) if folder is None else (folder_at(expand_path(folder), home),)
    if not folders:
        raise BadInput("neither Claude Code nor Codex keeps notes for this folder; name a folder", where=str(opened.root))
    done = [import_notes(opened.memories, each, opened.root, scope) for each in folders]
    total = ImportedNotes(
        tuple(name for each in done for name in each.saved),
        tuple(name for each in done for name in each.quarantined),
        sum(each.known for each in done),
        tuple(file for each in done for file in each.skipped),
        sum(each.sessions for each in done),
    )
    if as_json:
        emit({**msgspec.to_builtins(total), "folders": [str(each.path) for each in folders]})
    else:
        _print(total)
    if total.skipped:
        click.get_current_context().exit(FINDINGS)


@click.command(epilog="\b\nExamples:\n  pal memory export --format markdown > notes.md\n  pal memory export notes/ --format claude")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path), metavar="[FOLDER]")
@click.option(
    "--format",
    "form",
    type=click.Choice(("claude", "json", "markdown")),
    default="markdown",
    show_default=True,
    help="Topic files of Claude Code in FOLDER, or JSON or one Markdown document on standard output.",
)
@click.option("--force", is_flag=True, help="Replace files in FOLDER.")
@scope_option
@cwd_option
@json_option
def export(*, folder: Path | None, form: Literal["claude", "json", "markdown"], force: bool, scope: str, cwd: Path, as_json: bool) -> None:
    """Export the active notes; secrets are replaced.

    A topic file that was imported from Claude Code and not changed since is exported with its old bytes.
    """
    opened = open_memories(cwd)
    notes = [(word_of(opened.memories, book), note) for book in opened.notebooks(scope) for note in book.notes().active.values()]
    if form == "claude":
        if folder is None:
            raise click.UsageError("Topic files need a FOLDER")
        # A note of the user holds against one of the same name in the project.
        named = {note.name: note for _, note in reversed(notes)}
        paths = write_topic_files(named.values(), folder, replace=force)
        if as_json:
            emit({"format": form, "notes": len(named), "folder": str(folder), "files": [path.name for path in paths]})
        else:
            click.echo(f"exported {counted(len(named), 'note')} to {folder}")
        return
    if folder is not None:
        raise click.UsageError(f"The format {form} goes to standard output; redirect it")
    if form == "json" or as_json:
        emit([{**note_fields(redacted(note)), "scope": word} for word, note in notes])
    else:
        click.echo(plain(one_document(note for _, note in notes)), nl=False)


def _print(done: ImportedNotes) -> None:
    counts = (len(done.saved), len(done.quarantined), done.known, len(done.skipped))
    click.echo("imported {}, in quarantine {}, known before {}, left out {}".format(*counts))
    for what, names in (("imported", done.saved), ("quarantine", done.quarantined)):
        for name in names[:_MOST_SHOWN]:
            click.echo(f"  {what}: {name}")
        if len(names) > _MOST_SHOWN:
            click.echo(f"  {what}: {len(names) - _MOST_SHOWN} more")
    if done.sessions:
        click.echo(f"  {done.sessions} summaries of sessions became no notes; `pal import` imports the sessions themselves")
    for file in done.skipped[:_MOST_SHOWN]:
        click.echo(plain(f"pal: {file.path}: {file.why}"), err=True)
    if len(done.skipped) > _MOST_SHOWN:
        click.echo(f"pal: {len(done.skipped) - _MOST_SHOWN} more were left out; --json names them", err=True)
