"""Recall at a prompt: the notes that bear on it are recorded before it, and what shows forgotten ones is masked."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from palimpsest.agent.context import NOTES
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, Failed, Recalled, ToolReturned, ViewEdited
from palimpsest.core.items import Item, Mask, Part, Text, seq_of, text_of
from palimpsest.core.text import lazy_pattern
from palimpsest.core.undo import FORGET, FORGOTTEN
from palimpsest.core.view import CHANGED
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.policies.profile import Profile

if TYPE_CHECKING:
    from palimpsest.memory.file_notes import FilePrompt
    from palimpsest.memory.query import MemorySearch
    from palimpsest.memory.recall_prompts import NotePrompt


# Characters of a prompt that are searched for, and of a failure that are recorded.
_LONGEST_PROMPT: Final = 4_000
_LONGEST_MESSAGE: Final = 500


def memory_search(memory: SessionMemory) -> "Callable[[], MemorySearch]":
    """Return what makes the search over notes and past sessions, once a tool asks for it."""

    def made() -> "MemorySearch":
        from palimpsest.memory.query import MemorySearch  # few sessions ask for it

        return MemorySearch(memory, memory.session.log.session)

    return made


def stated_notes(memory: SessionMemory) -> Mapping[str, str]:
    """Return what the context states of the notes, by the key of its source; nothing if there are none. It reads files."""
    session = memory.session
    if memory.in_files:
        return _stated_files(memory)
    if not memory.is_used() or session.profile.notes.head == "nothing":
        return {}
    from palimpsest.memory.recall_prompts import head_texts  # a session without notes needs none of it

    return head_texts(memory, session.profile.notes, session.log.view)


def _stated_files(memory: SessionMemory) -> Mapping[str, str]:
    """Return the index of notes that are plain files, and how to use them: from the first session on, and not for a sub-agent."""
    session = memory.session
    if memory.topics is None or session.profile.notes.folder == "home" or session.log.opened.opener is not None:
        return {}
    from palimpsest.memory.file_notes import file_texts  # one profile needs it

    return file_texts(memory.topics)


def recall_problems(memory: SessionMemory | None) -> tuple[str, ...]:
    """Return what the user should know about memory: what it lacks, and what it asks of a model if its notes are plain files."""
    if memory is None:
        return ()
    if memory.in_files:
        from palimpsest.memory.file_notes import file_notices

        return file_notices(memory)
    if not memory.config.recall_embeddings:
        return ()
    from palimpsest.memory.vectors import (
        MISSING,  # few settings ask for it
        is_installed,
    )

    return () if is_installed() else (f"memory.recall_embeddings is on, but recall goes by words alone: {MISSING}",)


def recalls(profile: Profile) -> bool:
    """Return whether prompts recall notes under a profile."""
    return profile.notes.recall != "off"


class NoteRecall:
    """Recalls notes at prompts. A failure is recorded once, and never breaks a turn. `open_tasks` say what is being worked on."""

    def __init__(self, memory: SessionMemory, open_tasks: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._memory = memory
        self._open_tasks = open_tasks
        self._prompt: NotePrompt | FilePrompt | None = None
        self._has_failed = False
        self._preparing: Thread | None = None

    def prepare(self) -> None:
        """Load the index of the notes in a thread, so that the first prompt does not wait for it; nothing if there is none."""
        if not self._memory.in_files and self._memory.is_used() and self._memory.session.profile.notes.head != "nothing":
            self._preparing = Thread(target=self._prepared, name="load notes", daemon=True)
            self._preparing.start()

    def close(self) -> None:
        """Wait for what is being loaded."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None

    def _prepared(self) -> None:
        # What is wrong with the notes is recorded when a prompt meets it.
        with suppress(Exception):
            prompt = self._made()
            if prompt is not None:
                prompt.prepare()

    async def recall(self, parts: tuple[Part, ...]) -> None:
        """Record the notes that a prompt recalls; nothing if there are none, or the profile or the settings recall none."""
        session, config = self._memory.session, self._memory.config
        text = "\n".join(part.text for part in parts if isinstance(part, Text)).strip()[:_LONGEST_PROMPT]
        if not text or not config.recall_notes or not recalls(session.profile):
            return
        try:
            prompt = self._prompt or self._made()
            recalled = None if prompt is None else await prompt.recall(text)
        except Exception as error:  # noqa: BLE001 - a turn goes on without notes, whatever is wrong with them
            if not self._has_failed:
                self._has_failed = True
                kind = error.kind if isinstance(error, PalimpsestError) else type(error).__name__
                session.log.append(Failed("recall", kind, str(error)[:_LONGEST_MESSAGE], by="memory"))
            return
        if recalled is not None:
            session.log.append(recalled)

    def _made(self) -> "NotePrompt | FilePrompt | None":
        """Return what finds notes, once there are any."""
        if self._memory.in_files:
            if self._memory.topics is None:
                return None
            from palimpsest.memory.file_notes import FilePrompt

            self._prompt = FilePrompt(self._memory, self._memory.topics)
            return self._prompt
        if not self._memory.has_notes():
            return None
        from palimpsest.memory.note_index import note_index  # a session without notes needs no ranking
        from palimpsest.memory.recall_prompts import NotePrompt

        index = note_index(self._memory)
        self._prompt = None if index is None else NotePrompt(self._memory, index, self._open_tasks)
        return self._prompt


_NAME: Final = lazy_pattern(r"(?:user|feedback|project|reference)_[a-z0-9_]{1,60}")
_TOOLS: Final = frozenset({"recall", "remember", "memory"})
_WHY: Final = "a note was forgotten"


class HidesForgottenNotes:
    """Compares the view of a session with what was forgotten, here or in another session, and masks what shows it.

    Of what was forgotten only digests of its names are kept, so the names that a view shows are looked up among them, with the time: a
    note that was learned again later is not hidden. Several threads may use it, one at a time.
    """

    def __init__(self, memory: SessionMemory) -> None:
        self._session = memory.session
        self._memory = memory
        self._stamps: tuple[str, ...] = ()
        self._known: tuple[Callable[[str], int], ...] = ()

    def hide(self) -> bool:
        """Mask the items that show forgotten notes, and save a checkpoint without them. Returns whether statements of notes changed."""
        if not self._memory.is_used():
            return False
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
        return self._memory.is_used() and self._is_due() and any(map(self._shows, self._session.log.view.head))

    def _is_due(self) -> bool:
        """Return whether something was ever forgotten; what was is read again if it changed."""
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
