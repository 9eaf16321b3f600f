"""`pal memory why`: the events that a note rests on, quoted, and every change of it."""

from pathlib import Path

import click
from msgspec.structs import replace

from palimpsest.apps.cli.memory.places import OpenedMemories, cwd_option, open_memories, scope_option, word_of
from palimpsest.apps.cli.output.values import emit, json_option, local_time
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput
from palimpsest.core.format.texts import iso_time
from palimpsest.engine.memory.access.evidence import CitedEvent, NoteChange, changes_of, cited_events
from palimpsest.engine.memory.access.writing import locate
from palimpsest.engine.memory.notebook import Notebook


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
