"""Notes as hooks show them: the list at the start of a session, and those that bear on a prompt."""

from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from palimpsest.engine.memory.project_memory import ProjectMemory
from palimpsest.engine.memory.recall.head import head_texts
from palimpsest.engine.memory.recall.notes.index import note_index
from palimpsest.engine.memory.recall.notes.search import fitting_hits, scored_notes
from palimpsest.engine.memory.recall.stale_files import StaleFiles
from palimpsest.memory.showing.note_block import show_notes
from palimpsest.memory.showing.note_units import not_to_show, pinned_names
from palimpsest.profiles.profile import NoteRules
from palimpsest.sources.notes import KEY
from palimpsest.stores.files import FileStateSlot

_LONGEST_PROMPT: Final = 20_000
_MOST_SHOWN: Final = 500


class ShownNotes(Struct, frozen=True):
    """The notes that prompts of one session have recalled since its conversation was new or compacted, and their tokens."""

    names: tuple[str, ...] = ()
    tokens: int = 0


def notes_at_start(memory: ProjectMemory, room: int) -> str:
    """Return the index of the notes and the summary of what is remembered, in whole lines of at most `room` characters."""
    text = head_texts(memory, NoteRules(), None).get(KEY, "")
    return text if len(text) <= room else text[:room].rpartition("\n")[0]


def notes_for_prompt(memory: ProjectMemory, prompt: str, slot: FileStateSlot, room: int) -> str:
    """Return the notes that bear on a prompt, which were not shown before, in at most `room` characters; empty if there are none."""
    index = note_index(memory)
    text = prompt.strip()[:_LONGEST_PROMPT]
    if index is None or not text or not memory.config.recall_notes:
        return ""
    before = _loaded(slot)
    index.refresh()
    now = datetime.fromtimestamp(memory.home.clock.now() / 1000, UTC)
    excluded = not_to_show(index.entries, now, ()) | frozenset(before.names) | pinned_names(index.entries)
    hits = fitting_hits(index, text, now, excluded)
    found = scored_notes(index, StaleFiles(memory.root), hits, now, text=text, excluded=excluded)
    tokens = min(memory.config.recall_tokens, max(0, memory.config.recall_epoch_tokens - before.tokens), room // 4)
    shown = show_notes(found, text, tokens=tokens, most=memory.config.recall_notes)
    said = "\n".join(shown.texts)
    if not shown.names or len(said) > room:
        return ""
    slot.save(msgspec.json.encode(ShownNotes((*before.names, *shown.names)[-_MOST_SHOWN:], before.tokens + shown.tokens)))
    return said


def _loaded(slot: FileStateSlot) -> ShownNotes:
    data = slot.load()
    try:
        return ShownNotes() if data is None else msgspec.json.decode(data, type=ShownNotes)
    except (msgspec.DecodeError, UnicodeError):
        return ShownNotes()
