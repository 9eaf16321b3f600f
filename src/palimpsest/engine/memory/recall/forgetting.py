"""Hides what views still show of notes that were forgotten: recalled notes, results of the tools of memory, and statements of notes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from palimpsest.core.edits import Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, NoteForgotten, Recalled, ToolReturned, ViewEdited
from palimpsest.core.items import Item, seq_of, text_of
from palimpsest.core.log.undo import FORGET, FORGOTTEN
from palimpsest.core.view import CHANGED
from palimpsest.engine.loop.context import NOTES
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.engine.memory.session_memory import SessionMemory
from palimpsest.memory.note import KINDS

_TOOLS: Final = frozenset({"recall", "remember", "memory"})
_NAME: Final = rf"(?:{'|'.join(KINDS)})_[a-z0-9_]{{1,60}}"
_NAMED: Final = re.compile(rf"\[({_NAME})[\] ]|(?<![a-z0-9_])({_NAME})\.md")
_WHY: Final = "a note was forgotten"


class ForgottenNames(Mapping[str, int]):
    """When each forgotten note was forgotten, in milliseconds since 1970, by its name.

    The logs do not keep the names, which often repeat what the notes said; a name is looked up by its digest.
    """

    def __init__(self, times: Sequence[tuple[Notebook, Mapping[str, int]]] = ()) -> None:
        self._times = [each for each in times if each[1]]

    def __getitem__(self, name: str) -> int:
        found = [times[known] for notebook, times in self._times if (known := notebook.name_in_log(name)) in times]
        if not found:
            raise KeyError(name)
        return max(found)

    def __iter__(self) -> Iterator[str]:
        """Yield the names as the logs keep them."""
        return (name for _, times in self._times for name in times)

    def __len__(self) -> int:
        return sum(len(times) for _, times in self._times)


class HidesForgotten:
    """Compares the view of a session with what was forgotten, here or in another session, and masks what shows it.

    Names are compared, and times: a note that was learned again later is not hidden. Several threads may use it, one at a time.
    """

    def __init__(self, memory: SessionMemory) -> None:
        self._session = memory.agent.session
        self._memory = memory
        self._stamps: tuple[str, ...] = ()
        self._forgotten = ForgottenNames()

    def hide(self) -> bool:
        """Mask the items that show forgotten notes, and save a checkpoint without them. Returns whether statements of notes changed."""
        forgotten = self._names()
        if not forgotten:
            return False
        log = self._session.log
        with log.locked():
            if log.open_call is not None:
                return False
            items = [item for item in log.view.items if item.mask is None or item.mask.text != FORGOTTEN]
            showing = [item for item in items if self._shows(item, forgotten)]
            if showing:
                before = self._session.used
                mask = Mask(tuple(item.id for item in showing), FORGOTTEN)
                log.append(ViewEdited((mask,), by=FORGET, why=_WHY, tokens_before=before))
            stated = any(item.source.removesuffix(CHANGED) in NOTES for item in showing)
            again = stated or self._in_head(forgotten)
        if showing:
            log.checkpoint()
        return again

    def shown_in_head(self) -> bool:
        """Return whether the head of the view shows a forgotten note."""
        forgotten = self._names()
        return bool(forgotten) and self._in_head(forgotten)

    def _in_head(self, forgotten: Mapping[str, int]) -> bool:
        return any(self._shows(item, forgotten) for item in self._session.log.view.head)

    def _shows(self, item: Item, forgotten: Mapping[str, int]) -> bool:
        """Return whether an item shows a note that was forgotten after the item came."""
        is_statement = item.source.removesuffix(CHANGED) in NOTES
        if item.kind not in {"recalled", "result"} and not is_statement:
            return False
        event = self._session.log.event(seq_of(item.id))
        if is_statement:
            return any(forgotten[name] >= event.at for name in _named(text_of(item.content), forgotten))
        return any(forgotten[name] >= event.at for name in _shown_names(event, item, forgotten))

    def _names(self) -> ForgottenNames:
        """Return the names of forgotten notes and when each was forgotten; the logs are read if they changed."""
        if not self._memory.is_used():
            return ForgottenNames()
        notebooks = self._memory.memories.notebooks
        stamps = tuple(notebook.change_stamp() for notebook in notebooks)
        if stamps != self._stamps:
            found: list[tuple[Notebook, Mapping[str, int]]] = []
            for notebook in notebooks:
                try:
                    events = notebook.history()
                except PalimpsestError:
                    # A damaged log of a scope is repaired by its next writer; what it says until then is not known.
                    continue
                forgotten = ((event.at, event.body) for event in events if isinstance(event.body, NoteForgotten))
                found.append((notebook, {body.name: at for at, body in forgotten if body.how == "forgotten"}))
            self._stamps, self._forgotten = stamps, ForgottenNames(found)
        return self._forgotten


def _shown_names(event: Event, item: Item, forgotten: Mapping[str, int]) -> Iterator[str]:
    """Yield the forgotten notes that an item of recalled notes or of the result of a tool shows."""
    body = event.body
    match body:
        case Recalled(notes=notes, parts=parts):
            # One part a note, unless another program recorded it.
            place = int(item.id.rpartition(".")[2])
            names = (notes[place],) if len(notes) == len(parts) and place < len(notes) else notes
            yield from (name for name in names if name in forgotten)
        case ToolReturned(tool=tool) if tool in _TOOLS:
            yield from _named(text_of(item.content), forgotten)
        case _:
            return


def _named(text: str, forgotten: Mapping[str, int]) -> Iterator[str]:
    """Yield the names that stand in a text as notes are named: in brackets, or as files."""
    names = dict.fromkeys(match[1] or match[2] for match in _NAMED.finditer(text))
    yield from (name for name in names if name in forgotten)
