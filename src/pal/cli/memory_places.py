"""Options that the commands of memory share, and the notes that they open."""

import os
from contextlib import suppress
from pathlib import Path

import click
from msgspec import Struct

from pal.cli.opening import find_home
from pal.cli.settings import settings_of
from pal.text import plain
from palimpsest.coding.providers import profile_of
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.memory.changes import RefusedChange
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.notebook import Memories, Notebook, NoteEvent, memories_of
from palimpsest.memory.topic_place import notes_place
from palimpsest.stores.home import Home

SCOPES = ("user", "project", "team")
scope_option = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    callback=lambda _context, _option, value: value or "",
    help="Only notes of the user, of the project or of its team.",
)
cwd_option = click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder of the project; default: the working directory.",
)


class OpenedMemories(Struct, frozen=True):
    """The notes of a project folder, with the home that keeps them."""

    home: Home
    root: Path
    memories: Memories

    def notebooks(self, scope: str) -> tuple[Notebook, ...]:
        """Return the notebook of a scope, or all of them without one. Raises `BadInput` if there is none."""
        return (self.memories.of_scope(scope),) if scope else self.memories.notebooks

    def now(self) -> str:
        """Return the time, with a zone."""
        return iso_time(self.home.clock.now())


class ChangedNotes(Struct, frozen=True):
    """What a command did to notes: the names of those it saved and of those that left, and why."""

    scope: str
    saved: tuple[str, ...]
    past: tuple[str, ...]
    reason: str


def open_memories(cwd: Path) -> OpenedMemories:
    """Return the notes of a project folder. Raises `BadInput` if the home keeps nothing."""
    home, root = find_home(), cwd.resolve()
    memories = memories_of(home, root)
    if memories is None:
        raise BadInput("a home in memory keeps no notes; set PAL_HOME to a folder", where="memory")
    _say_where(home, root)
    return OpenedMemories(home, root, memories)


def _say_where(home: Home, root: Path) -> None:
    """Say where else the notes are if the profile of the settings keeps them as files: these commands do not show those."""
    with suppress(PalimpsestError):
        chosen = profile_of(settings_of(home), "", os.environ)
        if chosen.notes.folder == "claude":
            place = plain(str(notes_place(root)))
            click.echo(f"pal: sessions of {chosen.program} keep their notes as files in {place}; this is about those of the home", err=True)


def word_of(memories: Memories, notebook: Notebook) -> str:
    """Return the word by which the option --scope names a notebook."""
    return next(word for word in SCOPES if getattr(memories, word) is notebook)


def changed(word: str, outcome: tuple[NoteEvent, ...] | RefusedChange) -> ChangedNotes:
    """Return what a change did. Raises `BadInput` if it was refused."""
    if isinstance(outcome, RefusedChange):
        raise BadInput(outcome.reason, where="memory")
    saved = tuple(event.name for event in outcome if isinstance(event, NoteSaved))
    past = tuple(event.name for event in outcome if isinstance(event, NoteForgotten))
    return ChangedNotes(word, saved, past, outcome[0].reason if outcome else "")
