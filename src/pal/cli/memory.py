"""The commands `pal memory list` and `pal memory show`, and the table of all commands of `pal memory`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from msgspec import Struct
from rich.text import Text

from pal.cli.command_line import FINDINGS, TableGroup
from pal.cli.memory_places import OpenedMemories, cwd_option, open_memories, scope_option, word_of
from pal.cli.output import emit, json_option
from pal.cli.tables import console, one_line, print_listing
from pal.text import plain
from palimpsest.memory.note import KINDS, Note, NoteKind, redacted, time_of
from palimpsest.memory.note_evidence import changed_files
from palimpsest.memory.store import Notes
from palimpsest.memory.writing import Place, locate

# Name: (module and attribute below apps/cli, one line of help). `pal memory --help` needs only this table.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "list": ("pal.cli.memory:list_", "List notes: name, kind, time, trust, uses, and what each is about."),
    "show": ("pal.cli.memory:show", "Show a note, what it replaced, and whether its files changed since."),
    "add": ("pal.cli.memory_changes:add", "Add a note in your own words, or correct one."),
    "edit": ("pal.cli.memory_changes:edit", "Edit a note in $EDITOR; it is checked before it replaces the old one."),
    "forget": ("pal.cli.memory_changes:forget", "Delete a note for good, with all its past versions."),
    "undo": ("pal.cli.memory_changes:undo", "Bring back the last past version of a note."),
    "promote": ("pal.cli.memory_changes:promote", "Accept notes that are in quarantine."),
    "search": ("pal.cli.memory_changes:search", "Find notes, and what was said in past sessions."),
    "why": ("pal.cli.memory_changes:why", "Show what a note rests on: who said it, when and in which session."),
    "import": ("pal.cli.memory_work:import_", "Import the notes of Claude Code or Codex."),
    "export": ("pal.cli.memory_work:export", "Export notes as topic files of Claude Code, as JSON or as one document."),
    "run": ("pal.cli.memory_work:run", "Read finished sessions and consolidate notes now; shows the cost before and after."),
    "status": ("pal.cli.memory_work:status", "Show what the pipeline over finished sessions did, what waits and why."),
    "eval": ("pal_lab.commands:evaluate", "Measure recall: quality on data with known evidence, and latency."),
}


@click.group(
    cls=TableGroup,
    table=_COMMANDS,
    epilog='\b\nExamples:\n  pal memory add "Tests run with make check." --kind project\n  pal memory list',
)
def memory() -> None:
    """Notes that outlive a session: about you, this project, and where things are.

    Each note is a Markdown file that you can read and edit. Notes about you hold in every project, all others in the project of the
    working directory.
    """


_MOST_PROBLEMS = 5
_DATE = len("2026-05-04")
# Columns of what a note is about.
_WIDEST = 150


class ListedNote(Struct, frozen=True):
    """A row of `pal memory list --json`."""

    name: str
    kind: NoteKind
    scope: str
    place: Place
    when: str
    trust: str
    uses: int
    about: str
    person: str
    rev: int
    pinned: bool


@click.command("list", epilog="\b\nExamples:\n  pal memory list --kind feedback\n  pal memory list --quarantine --json")
@click.option("--kind", type=click.Choice(KINDS), help="Only notes of this kind.")
@click.option("--past", "place", flag_value="past", help="Instead, versions that were superseded or retracted.")
@click.option("--quarantine", "place", flag_value="quarantine", help="Instead, notes that wait for `pal memory promote`.")
@scope_option
@cwd_option
@json_option
def list_(*, kind: str | None, place: Place | None, scope: str, cwd: Path, as_json: bool) -> None:
    """List the notes that hold here, newest first.

    Exit code 1 if a file among them is no note; standard error names it.
    """
    opened = open_memories(cwd)
    shown: Place = place or "active"
    rows: list[ListedNote] = []
    problems: list[tuple[str, str]] = []
    for notebook in opened.notebooks(scope):
        notes = notebook.notes()
        word = word_of(opened.memories, notebook)
        problems += [(f"{word}/{path}", why) for path, why in notes.problems]
        rows += [_listed_note(word, shown, key, note) for key, note in held(notes, shown).items() if kind in (None, note.kind)]
    rows.sort(key=lambda row: row.name)
    rows.sort(key=lambda row: time_of(row.when), reverse=True)
    if as_json:
        emit(rows)
    elif rows:
        _print_notes(rows)
    else:
        click.echo('there are no such notes; `pal memory add "…"` adds one', err=True)
    _end(problems)


@click.command(epilog="\b\nExample:\n  pal memory show user_editor")
@click.argument("name")
@scope_option
@cwd_option
@json_option
def show(*, name: str, scope: str, cwd: Path, as_json: bool) -> None:
    """Show the note NAME, or a past version NAME@REV: its text, what it replaced and what replaced it.

    Says which of the files that it cites have changed since.
    """
    opened = open_memories(cwd)
    found = locate(opened.memories, name, scope)
    note, notes = redacted(found.note), found.notebook.notes()
    word = word_of(opened.memories, found.notebook)
    changed = changed_files(opened.root, note)
    chain = [past for past in notes.past.values() if past.revision != note.revision and past.name in _related(note, notes)]
    chain.sort(key=lambda past: (time_of(past.when), past.rev), reverse=True)
    if as_json:
        fields = note_fields(note)
        versions = [_listed_note(word, "past", past.revision, past) for past in chain]
        emit({**fields, "scope": word, "place": found.place, "changed_files": changed, "versions": versions})
        return
    _print_note(note, f"{word}, {found.place}", changed, chain, opened)


def note_fields(note: Note) -> dict[str, object]:
    """Return all fields of a note for JSON, also those at their default, without those of other programs."""
    return {field: getattr(note, field) for field in note.__struct_fields__ if field not in ("other", "order")}


def held(notes: Notes, place: Place) -> dict[str, Note]:
    """Return the notes of one place by name, past versions by `name@rev`."""
    return dict({"active": notes.active, "quarantine": notes.quarantine, "past": notes.past}[place])


def _related(note: Note, notes: Notes) -> frozenset[str]:
    """Return the names of a note and of all that it superseded, directly or through others."""
    found: set[str] = {note.name}
    links = list(note.supersedes)
    while links:
        link = links.pop()
        name = link.partition("@")[0]
        past = notes.past.get(link)
        if name not in found and past is not None:
            links += past.supersedes
        found.add(name)
    return frozenset(found)


def _listed_note(word: str, place: Place, key: str, note: Note) -> ListedNote:
    clean = redacted(note)
    return ListedNote(key, note.kind, word, place, note.when, note.trust, note.uses, clean.about, clean.person, note.rev, note.pinned)


def _print_notes(rows: list[ListedNote]) -> None:
    # Names are needed whole by other commands, so what a note is about stands below.
    lines = [((row.name, row.kind, row.when[:_DATE], row.trust, str(row.uses)), Text(_subject(row))) for row in rows]
    print_listing(console(), ("name", "kind", "when", "trust", "uses"), lines, frozenset(("uses",)))


def _subject(row: ListedNote) -> str:
    about = row.about if row.person == "user" else f"{row.person}: {row.about}"
    return one_line(about, _WIDEST)


def _print_note(note: Note, place: str, changed: tuple[str, ...], chain: list[Note], opened: OpenedMemories) -> None:
    for line in _head(note, place, changed, chain):
        click.echo(plain(line))
    click.echo()
    click.echo(plain(note.body.strip()))


def _head(note: Note, place: str, changed: tuple[str, ...], chain: list[Note]) -> Iterator[str]:
    yield f"{note.revision}  ({place})"
    yield f"about      {note.about}"
    yield f"person     {note.person} ({note.relationship})"
    yield f"learned    {note.when}, {note.trust}: {note.backstory}"
    if note.valid_from or note.valid_to:
        yield f"valid      {note.valid_from or '…'} to {note.valid_to or '…'}"
    if note.intensity:
        yield f"intensity  {note.intensity:g}"
    if note.attribute:
        yield f"attribute  {note.attribute} ({note.policy})"
    yield f"evidence   {', '.join(note.evidence)}"
    if note.status != "active":
        yield f"status     {note.status}" + (f" by {note.superseded_by}" if note.superseded_by else "")
    for path in changed:
        yield f"stale      {path} (file changed since)"
    for past in chain:
        until = f", until {past.valid_to[:_DATE]}" if past.valid_to else ""
        yield f"was        {past.revision} ({past.status}{until}): {past.about}"


def _end(problems: list[tuple[str, str]]) -> None:
    for path, why in problems[:_MOST_PROBLEMS]:
        click.echo(plain(" ".join(f"pal: {path}: {why}".split())), err=True)
    if len(problems) > _MOST_PROBLEMS:
        click.echo(f"pal: {len(problems) - _MOST_PROBLEMS:,} more files are no notes", err=True)
    if problems:
        click.get_current_context().exit(FINDINGS)
