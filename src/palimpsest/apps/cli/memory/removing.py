"""`pal memory forget`, `undo` and `promote`: what leaves the notes, and what comes back."""

from pathlib import Path

import click
from msgspec import Struct

from palimpsest.apps.cli.memory.places import ChangedNotes, changed, cwd_option, open_memories, scope_option, word_of
from palimpsest.apps.cli.output.values import confirm, emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten
from palimpsest.core.format.texts import counted
from palimpsest.engine.memory.access.writing import LocatedNote, locate
from palimpsest.memory.weighing.erasing import said_by


class ForgottenNote(Struct, frozen=True):
    """What `pal memory forget --json` prints.

    versions: versions that were deleted; same: other notes that said the same and went too; retracted: notes that lost their support.
    """

    scope: str
    name: str
    versions: int
    same: tuple[str, ...]
    retracted: tuple[str, ...]


@click.command(epilog="\b\nExample:\n  pal memory forget project_old_server --yes")
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the log, so do not repeat the note.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--undo", "undoing", is_flag=True, hidden=True)
@scope_option
@cwd_option
@json_option
def forget(*, name: str, reason: str, yes: bool, undoing: bool, scope: str, cwd: Path, as_json: bool) -> None:
    """Delete the note NAME for good: its file, all past versions, and what summaries say on its account.

    What stays is a mark without its text, so that the same events do not bring it back. It cannot be undone; to keep a note for later,
    replace it by a better one with `pal memory add --replaces NAME`. The sessions it came from are not changed; `pal delete` deletes one.
    """
    if undoing:
        raise BadInput("what was forgotten is gone and cannot be brought back; `pal memory add` adds it again", where=f"memory {name[:80]}")
    opened = open_memories(cwd)
    found = locate(opened.memories, name.partition("@")[0], scope)
    word = word_of(opened.memories, found.notebook)
    versions, same, supported = _removed(found)
    if not yes:
        also = f"; {', '.join(supported)} may lose its support" if supported else ""
        equal = f", and what says the same: {', '.join(same)}" if same else ""
        size = f" ({versions} versions)" if versions > 1 else ""
        confirm(plain(f"this deletes {found.note.name} ({word}): {found.note.about!r}{size}{equal} for good{also}"), "memory forget")
    gone = [
        event
        for event in found.notebook.forget(found.note.name, "user", reason or "asked for by the user")
        if isinstance(event, NoteForgotten)
    ]
    also_gone = tuple(event.name for event in gone[1:] if event.how == "forgotten")
    retracted = tuple(event.name for event in gone if event.how != "forgotten")
    if as_json:
        emit(ForgottenNote(word, found.note.name, versions, also_gone, retracted))
    else:
        parts = (("with it", also_gone), ("retracted", retracted))
        more = "".join(f"; {what}: {', '.join(names)}" for what, names in parts if names)
        click.echo(f"forgotten: {found.note.name} ({word}), {versions} version{'s' if versions > 1 else ''}{more}")


@click.command(epilog="\b\nExample:\n  pal memory undo project_tests")
@click.argument("name")
@scope_option
@cwd_option
@json_option
def undo(*, name: str, scope: str, cwd: Path, as_json: bool) -> None:
    """Bring back the last past version of the note NAME: one that was edited, superseded or retracted.

    The note that took its place is retracted; undo it to go back again. Of a rule all notes come back in
    whose place it stood. What was forgotten cannot be brought back.
    """
    opened = open_memories(cwd)
    try:
        found = locate(opened.memories, name.partition("@")[0], scope, ("past", "active"))
        events = found.notebook.undo(found.note.name, "user")
    except BadInput as error:
        raise BadInput(f"there is no past version of {name[:80]!r}; `pal memory list --past` lists them", where="memory") from error
    outcome = changed(word_of(opened.memories, found.notebook), events)
    _report("undone", outcome, as_json=as_json)


@click.command(epilog="\b\nExamples:\n  pal memory promote project_api_limits\n  pal memory promote --all --yes")
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="All notes in quarantine.")
@click.option("--yes", is_flag=True, help="Do not ask before all are promoted.")
@scope_option
@cwd_option
@json_option
def promote(*, name: str | None, every: bool, yes: bool, scope: str, cwd: Path, as_json: bool) -> None:
    """Accept the note NAME that waits in quarantine, after you have read it with `pal memory show`.

    Notes are held there if their text came from a page, a server or another folder. The note then counts as stated by you.
    """
    opened = open_memories(cwd)
    if (name is None) == (not every):
        raise click.UsageError("Give the name of a note, or --all")
    if name is not None:
        found = locate(opened.memories, name, scope, ("quarantine",))
        outcome = changed(word_of(opened.memories, found.notebook), found.notebook.promote(found.note.name))
        _report("promoted", outcome, as_json=as_json)
        return
    waiting = [(book, held) for book in opened.notebooks(scope) for held in book.notes().quarantine]
    if waiting and not yes:
        confirm(f"this promotes {counted(len(waiting), 'note')}: {', '.join(held for _, held in waiting[:5])}", "memory promote")
    done = [changed(word_of(opened.memories, book), book.promote(held)) for book, held in waiting]
    words = ", ".join(dict.fromkeys(each.scope for each in done))
    saved = tuple(each for part in done for each in part.saved)
    _report("promoted", ChangedNotes(words, saved, (), "promoted from quarantine" if done else "there was none"), as_json=as_json)


def _removed(found: LocatedNote) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return how many versions leave with a note, the other names among them, and the notes that stand for one of them among others."""
    notes, name = found.notebook.notes(), found.note.name
    names = said_by(name, notes.all())
    versions = sum(note.name in names for note in notes.all())
    standing = tuple(note.name for note in notes.active.values() if names.intersection(note.stands_for))
    return versions, tuple(sorted(names - {name})), standing


def _report(what: str, done: ChangedNotes, *, as_json: bool) -> None:
    if as_json:
        emit(done)
    elif done.saved:
        gone = f"; retracted: {', '.join(done.past)}" if done.past else ""
        click.echo(f"{what}: {', '.join(done.saved)} ({done.scope}){gone}")
    else:
        click.echo(f"nothing was {what}", err=True)
