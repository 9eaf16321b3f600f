"""Uses of notes that were counted since the last consolidation: notes are weighed with them, and they are written into the files."""

from collections.abc import Mapping

from msgspec.structs import replace

from palimpsest.engine.memory.index_files import opened
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.stores.notes.recall_index import NoteUse


def active_with_uses(notebook: Notebook) -> dict[str, Note]:
    """Return the active notes as they are weighed: with all uses, those in their files and those that were counted since."""
    return with_uses(notebook.notes().active, _counted(notebook))


def with_uses(notes: Mapping[str, Note], counted: Mapping[str, NoteUse]) -> dict[str, Note]:
    """Return notes by name with further uses added to those that they state."""
    return {name: _with_use(note, counted[name]) if name in counted else note for name, note in notes.items()}


def write_uses(notebook: Notebook) -> int:
    """Write what was counted into the files of the notes, under their revisions, and return how many notes it is.

    The counts leave the database afterwards: a process that is killed in between counts them twice, and loses none.
    """
    counted = _counted(notebook)
    active = notebook.notes().active
    saved = tuple(_with_use(active[name], use) for name, use in sorted(counted.items()) if name in active)
    if saved:
        notebook.apply(AcceptedChange(saved, reason="uses were counted"), "consolidate")
    if counted:
        with opened(notebook.index_file) as stored:
            stored.subtract_usage(notebook.scope, counted)
    return len(saved)


def _counted(notebook: Notebook) -> Mapping[str, NoteUse]:
    if not notebook.index_file.exists():
        return {}
    with opened(notebook.index_file) as stored:
        return stored.usage(notebook.scope)


def _with_use(note: Note, use: NoteUse) -> Note:
    return replace(note, uses=note.uses + use.uses, shown=note.shown + use.shown, last_used=max(note.last_used, use.last_used))
