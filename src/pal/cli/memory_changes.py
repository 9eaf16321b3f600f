"""The commands that change and search notes: `pal memory add`, `edit`, `forget`, `undo`, `promote`, `search` and `why`."""

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
from msgspec import Struct
from msgspec.structs import replace

from pal.cli.command_line import FINDINGS
from pal.cli.memory_places import ChangedNotes, OpenedMemories, changed, cwd_option, open_memories, scope_option, word_of
from pal.cli.output import confirm, emit, json_option, local_time
from pal.cli.tables import console, one_line
from pal.text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten
from palimpsest.core.text import counted, iso_time
from palimpsest.core.tokens import estimate
from palimpsest.memory.erasing import said_by
from palimpsest.memory.index_text import shown_time
from palimpsest.memory.note import KINDS, NoteKind, encode_note
from palimpsest.memory.note_evidence import CitedEvent, NoteChange, changes_of, cited_events
from palimpsest.memory.notebook import Notebook, make_team_notebook
from palimpsest.memory.query import FoundMemory, search_notes, search_sessions
from palimpsest.memory.recalled_handbook import found_summaries, summaries
from palimpsest.memory.session_memory import project_memory
from palimpsest.memory.store import MOST_FILES
from palimpsest.memory.writing import LocatedNote, NewNote, add_note, edit_note, locate
from palimpsest.stores.files import write_private
from palimpsest.stores.home import Home
from palimpsest.stores.memory_config import MemoryConfig


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


_DATE = len("2026-05-04")
_WIDTH = 78
_MOST_SUMMARIES = 5


@click.command(epilog="\b\nExamples:\n  pal memory search how do the tests run\n  pal memory search staging server --history")
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@click.option("--history", is_flag=True, help="Show below each note what it replaced, and find notes by that too.")
@click.option("--sessions", "passages", flag_value="project", help="Find turns of past sessions of this project, too.")
@click.option("--all-sessions", "passages", flag_value="all", help="Find turns of the sessions of all projects, too.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, metavar="N", help="Print at most N.")
@scope_option
@cwd_option
@json_option
def search(*, words: tuple[str, ...], history: bool, passages: str | None, limit: int, scope: str, cwd: Path, as_json: bool) -> None:
    """Find notes that match WORDS, best first, and turns of past sessions behind them; no model is asked.

    What was corrected is never found before its correction. Exit code 1 if nothing was found, or sessions are not in the index yet.
    """
    opened = open_memories(cwd)
    query = " ".join(words)
    now = opened.home.clock.now()
    found = search_notes(opened.notebooks(scope), query, now, root=opened.root, history=history, most=limit)
    waiting, summarised = 0, _summaries(opened.home, opened.root, query, limit) if scope in ("", "project") else ()
    # Many notes leave room for summaries of sessions.
    found = (*found[: limit - min(len(summarised), limit // 4)], *summarised)[:limit]
    if passages is not None and opened.home.local_folder is not None:
        home = opened.home
        said = search_sessions(opened.home.local_folder, home.store, opened.memories, query, every=passages == "all", most=limit)
        # Many notes leave room for what was said.
        notes = limit - min(len(said.found), limit // 2)
        found, waiting = (*found[:notes], *said.found)[:limit], said.waiting
    if as_json:
        words_of = {notebook.scope: word_of(opened.memories, notebook) for notebook in opened.memories.notebooks}
        emit([replace(each, scope=words_of.get(each.scope, "")) for each in found])
    elif found:
        for each in found:
            _print_found_memory(each)
    else:
        click.echo("nothing found", err=True)
    if beyond := sum(notebook.beyond() for notebook in opened.notebooks(scope)):
        click.echo(f"pal: not searched: {counted(beyond, 'note')} beyond the first {MOST_FILES:,} of a scope; forget some", err=True)
    if waiting:
        click.echo(f"pal: not in the index yet: {counted(waiting, 'session')}; search again to read more of them", err=True)
    if waiting or not found:
        click.get_current_context().exit(FINDINGS)


def _summaries(home: Home, root: Path, query: str, most: int) -> tuple[FoundMemory, ...]:
    """The summaries of sessions that match a query, as files that can be opened."""
    memory = project_memory(home, root, MemoryConfig())
    if memory is None:
        return ()
    found = found_summaries(summaries(memory), query, min(most, _MOST_SUMMARIES))
    return tuple(FoundMemory(str(each.file), 0.0, each.title, (), "summary", estimate(each.text), each.title, each.date) for each in found)


def _print_found_memory(found: FoundMemory) -> None:
    if found.status == "summary":
        click.echo(plain(f"{found.note}  {found.when}"))
    elif found.status == "active":
        stale = "  (file changed since)" if found.stale else ""
        click.echo(plain(f"{found.note}  {shown_time(found.when, is_finer=True)}{stale}"))
    elif found.status == "said":
        click.echo(plain(f"{found.evidence[0]}  {found.about}  {found.when[:_DATE]}"))
    else:
        until = f" until {found.until[:_DATE]}" if found.until else ""
        click.echo(plain(f"  was {found.note}  {found.status}{until}"))
    indent = "  " if found.status in ("active", "said", "summary") else "    "
    console().print(indent + one_line(found.text or found.about, _WIDTH - len(indent)), soft_wrap=True)


@click.command(epilog="\b\nExample:\n  pal memory why user_editor")
@click.argument("name")
@scope_option
@cwd_option
@json_option
def why(*, name: str, scope: str, cwd: Path, as_json: bool) -> None:
    """Show what the note NAME rests on: the message of yours or the event, with its time and session, and each change of the note.

    Of a note that was forgotten only the changes are known.
    """
    opened = open_memories(cwd)
    notebook, cited = _found(opened, name, scope)
    word = word_of(opened.memories, notebook)
    changes = changes_of(notebook, name.partition("@")[0])
    if as_json:
        emit({"name": name, "scope": word, "evidence": [_cited_fields(each) for each in cited], "changes": [*map(_change_fields, changes)]})
        return
    for event in cited:
        _print_event(event)
    click.echo("\nchanges" if cited else "the note was forgotten; changes")
    for change in changes:
        reason = f": {change.reason}" if change.reason else ""
        click.echo(plain(f"  {local_time(change.at)}  rev {change.rev} {change.what} by {change.by or 'unknown'}{reason}"))


def _found(opened: OpenedMemories, name: str, scope: str) -> tuple[Notebook, tuple[CitedEvent, ...]]:
    """Return the notebook of a note with the events that the note cites; none if it was forgotten."""
    try:
        found = locate(opened.memories, name, scope)
    except BadInput:
        for notebook in opened.notebooks(scope):
            if changes_of(notebook, name):
                return notebook, ()
        raise
    return found.notebook, cited_events(opened.home, opened.memories, found.note)


def _print_event(event: CitedEvent) -> None:
    when = "" if event.at is None else f"  {local_time(event.at)}"
    speaker = f"  {event.speaker}" if event.speaker else ""
    click.echo(plain(f"{event.id}{when}{speaker}"))
    for line in event.text.strip().splitlines() or [""]:
        click.echo(plain(f"  > {line}" if event.state == "found" else f"  ({line})"))


def _cited_fields(event: CitedEvent) -> dict[str, object]:
    return {**{field: getattr(event, field) for field in event.__struct_fields__}, "at": None if event.at is None else iso_time(event.at)}


def _change_fields(change: NoteChange) -> dict[str, object]:
    return {**{field: getattr(change, field) for field in replace(change).__struct_fields__}, "at": iso_time(change.at)}


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
    _report_edited(changed(word_of(opened.memories, notebook), add_note(notebook, new, opened.now())), as_json=as_json)


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
        _report_edited(ChangedNotes(word, (), (), "nothing was changed"), as_json=as_json)
        return
    _report_edited(changed(word, edit_note(found.notebook, found.note, after, opened.now())), as_json=as_json)


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


def _report_edited(done: ChangedNotes, *, as_json: bool) -> None:
    if as_json:
        emit(done)
    elif done.saved:
        gone = f"; it replaces {', '.join(done.past)}" if done.past else ""
        click.echo(plain(f"{done.reason or 'saved'}: {', '.join(done.saved)} ({done.scope}){gone}"))
    else:
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)
