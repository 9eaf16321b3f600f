"""Hides what views still show of notes that were forgotten: recalled notes, results of the tools of memory, and statements of notes."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from palimpsest.core.edits import Mask
from palimpsest.core.events import Event, Recalled, ToolReturned, ViewEdited
from palimpsest.core.items import Item, seq_of, text_of
from palimpsest.core.log.undo import FORGET, FORGOTTEN
from palimpsest.core.view import CHANGED
from palimpsest.engine.loop.context import NOTES
from palimpsest.engine.memory.session_memory import SessionMemory

# Names of notes, as they stand in brackets or as files.
_NAME: Final = re.compile(r"(?:user|feedback|project|reference)_[a-z0-9_]{1,60}")
_TOOLS: Final = frozenset({"recall", "remember", "memory"})
_WHY: Final = "a note was forgotten"


class HidesForgotten:
    """Compares the view of a session with what was forgotten, here or in another session, and masks what shows it.

    Of what was forgotten only digests of its names are kept, so the names that a view shows are looked up among them, with the time: a
    note that was learned again later is not hidden. Several threads may use it, one at a time.
    """

    def __init__(self, memory: SessionMemory) -> None:
        self._session = memory.agent.session
        self._memory = memory
        self._stamps: tuple[str, ...] = ()
        self._known: tuple[Callable[[str], int], ...] = ()

    def hide(self) -> bool:
        """Mask the items that show forgotten notes, and save a checkpoint without them. Returns whether statements of notes changed."""
        log = self._session.log
        with log.locked():
            if not self._is_due() or log.open_call is not None:
                return False
            items = [item for item in log.view.items if item.mask is None or item.mask.text != FORGOTTEN]
            showing = [item for item in items if self._shows(item)]
            if showing:
                masks = (Mask(tuple(item.id for item in showing), FORGOTTEN),)
                lost = self._session.reasoning_lost(log.trial(masks))
                log.append(ViewEdited(masks, by=FORGET, why=_WHY, tokens_before=self._session.used, reasoning_lost=lost))
            stated = any(_states_notes(item) for item in showing)
            again = stated or any(map(self._shows, log.view.head))
        if showing:
            log.checkpoint()
        return again

    def shown_in_head(self) -> bool:
        """Return whether the head of the view shows a forgotten note."""
        return self._is_due() and any(map(self._shows, self._session.log.view.head))

    def _is_due(self) -> bool:
        """Return whether something was ever forgotten; what was is read again if it changed."""
        if not self._memory.is_used():
            return False
        notebooks = self._memory.memories.notebooks
        stamps = tuple(notebook.change_stamp() for notebook in notebooks)
        if stamps != self._stamps:
            self._stamps, self._known = stamps, tuple(notebook.forgotten() for notebook in notebooks)
        return bool(self._known)

    def _shows(self, item: Item) -> bool:
        """Return whether an item shows a note that was forgotten after the item came."""
        if item.kind not in {"recalled", "result"} and not _states_notes(item):
            return False
        event = self._session.log.event(seq_of(item.id))
        return any(known(name) >= event.at for name in _shown_names(event, item) for known in self._known)


def _states_notes(item: Item) -> bool:
    return item.source.removesuffix(CHANGED) in NOTES


def _shown_names(event: Event, item: Item) -> Iterator[str]:
    """Yield the names of the notes that an item shows: recalled ones, or those in the text of a statement or a tool of memory."""
    body = event.body
    match body:
        case Recalled(notes=notes, parts=parts):
            # One part a note, unless another program recorded it.
            place = int(item.id.rpartition(".")[2])
            yield from (notes[place],) if len(notes) == len(parts) and place < len(notes) else notes
        case ToolReturned(tool=tool) if tool not in _TOOLS:
            return
        case _:
            yield from dict.fromkeys(_NAME.findall(text_of(item.content)))
