"""`pal memory add` and `pal memory edit`: notes in the user's own words."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.memory.places import ChangedNotes, changed, cwd_option, open_memories, scope_option, word_of
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.engine.memory.access.writing import NewNote, add_note, edit_note, locate
from palimpsest.engine.memory.memories import make_team_notebook
from palimpsest.memory.note import KINDS, NoteKind
from palimpsest.memory.note_file import encode_note
from palimpsest.stores.files import write_private

# Bytes of a text that is read; a note holds far less, and says so.
_MOST_READ: Final = 100_000


@click.command(
    epilog='\b\nExamples:\n  pal memory add "I prefer short answers." --kind feedback\n'
    "  git log -1 --format=%B | pal memory add --kind project --about 'why the cache was dropped'"
)
@click.argument("text", required=False)
@click.option("--kind", type=click.Choice(KINDS), default="project", show_default=True, help="What the note is about.")
@click.option("--about", default="", metavar="LINE", help="One line by which it is found; default: the first line.")
@click.option("--person", default="user", show_default=True, metavar="WHO", help="Whom it is about.")
@click.option("--relationship", default="", metavar="WHAT", help="Relation of that person to you; default: self.")
@click.option("--backstory", default="", metavar="TEXT", help="When, from whom and why you learned it.")
@click.option(
    "--intensity", type=click.FloatRange(0, 1), default=0.0, metavar="0…1", help="How much you care: notes with more stay longer."
)
@click.option("--attribute", default="", metavar="KEY", help="Stable key such as test.command; a new value replaces the old one.")
@click.option("--from", "valid_from", default="", metavar="DATE", help="First day on which it holds, such as 2026-05-04.")
@click.option("--until", "valid_to", default="", metavar="DATE", help="Day on which it ceases to hold.")
@click.option("--replaces", default="", metavar="NAME", help="The note that this one corrects; `pal memory undo NAME` brings it back.")
@scope_option
@cwd_option
@json_option
def add(*, text: str | None, kind: NoteKind, scope: str, cwd: Path, as_json: bool, intensity: float, **fields: str) -> None:
    """Add a note: TEXT, or standard input without it or with `-`.

    Notes of kind user go to all of your projects, others to this one; --scope says otherwise: with `--scope team` the note goes to
    .palimpsest/memory in the project, which its repository shares. Secrets are replaced before anything is written.
    """
    opened = open_memories(cwd)
    written = _given_text(text)
    if scope == "team" and opened.memories.team is None:
        # The first note of a team makes its folder in the project.
        make_team_notebook(opened.home, opened.root)
        opened = open_memories(cwd)
    relationship = fields.pop("relationship") or ("self" if fields["person"] == "user" else "unknown")
    new = NewNote(kind=kind, text=written, relationship=relationship, intensity=intensity, **fields)
    if new.replaces:
        notebook = locate(opened.memories, new.replaces, scope, ("active",)).notebook
    else:
        notebook = opened.memories.of_scope(scope) if scope else opened.memories.place_of(kind)
    _report(changed(word_of(opened.memories, notebook), add_note(notebook, new, opened.now())), as_json=as_json)


@click.command(epilog="\b\nExample:\n  EDITOR=nano pal memory edit user_editor")
@click.argument("name")
@scope_option
@cwd_option
@json_option
def edit(*, name: str, scope: str, cwd: Path, as_json: bool) -> None:
    """Edit a copy of the note NAME in $VISUAL or $EDITOR.

    The copy is checked before it replaces the note; if it is no valid note, or the editor fails, the old one stays as it is. The old
    version is kept; `pal memory undo NAME` brings it back.
    """
    opened = open_memories(cwd)
    found = locate(opened.memories, name, scope, ("active",))
    before = encode_note(found.note)
    after = _edited(f"{found.note.name}.md", before)
    word = word_of(opened.memories, found.notebook)
    if after == before:
        _report(ChangedNotes(word, (), (), "nothing was changed"), as_json=as_json)
        return
    _report(changed(word, edit_note(found.notebook, found.note, after, opened.now())), as_json=as_json)


def _given_text(text: str | None) -> str:
    if text is None or text == "-":
        if sys.stdin.isatty():
            click.echo("Type the note; end with Ctrl-D.", err=True)
        text = sys.stdin.buffer.read(_MOST_READ).decode("utf-8", "replace")
    if not text.strip():
        raise BadInput("there is no text; give it as an argument or on standard input", where="memory add")
    return text


def _edited(name: str, text: str) -> str:
    """Return the text as the user's editor leaves it. Raises `BadInput` if it cannot be started or fails, or the file is no text."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    # Only the user can read the copy: the folder has mode 0700.
    with TemporaryDirectory(prefix="pal-note-") as folder:
        copy = Path(folder) / name
        write_private(copy, text.encode())
        try:
            with _interrupts_go_to_the_editor():
                done = subprocess.run((*shlex.split(command), str(copy)), check=False)  # noqa: S603 - the user's own editor
            after = copy.read_bytes()[:_MOST_READ].decode("utf-8")
        except (OSError, ValueError) as error:
            raise BadInput(f"the editor cannot be used: {error}; the note is as it was", where=command) from error
    if done.returncode:
        raise BadInput(f"the editor ended with code {done.returncode}; the note is as it was", where=command)
    return after


@contextmanager
def _interrupts_go_to_the_editor() -> Iterator[None]:
    """Leave Ctrl-C to the editor, to which it may be a key; if it ends the editor, that is a failed edit."""
    # A handler and not `SIG_IGN`, which the editor would inherit.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(done: ChangedNotes, *, as_json: bool) -> None:
    if as_json:
        emit(done)
    elif done.saved:
        gone = f"; it replaces {', '.join(done.past)}" if done.past else ""
        click.echo(plain(f"{done.reason or 'saved'}: {', '.join(done.saved)} ({done.scope}){gone}"))
    else:
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)
