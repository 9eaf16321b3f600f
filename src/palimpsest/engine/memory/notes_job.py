"""The job that keeps the running notes of a session: beside the turns, with the prefix that the session has cached."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from palimpsest.core.errors import CannotFold
from palimpsest.core.events import Event, ModelReplied, NotesTaken
from palimpsest.core.items import Item, Text, ToolCall, seq_of
from palimpsest.core.pairs import pending_calls
from palimpsest.core.policy import Answer, EventSpan, JobEnd, JobLimits, JobPlan, JobSteps, Want, path_events, span
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.memory.budget import DayBudget
from palimpsest.memory.running_notes import NotesProgress, NotesSettings, empty_notes, has_grown, is_update_due, notes_update
from palimpsest.profiles.profile import Profile
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.files import write_private

NAME: Final = "running_notes"
FILE: Final = "running-notes.md"
# The policy that folds into running notes; a profile without it has no use for them.
_USED_BY: Final = "swap_notes"
# Bytes of a template or prompt of the user; a longer one is not used.
_LARGEST: Final = 64 * 1024
# Events that are read at a time, newest first, to count the tool calls since the last update.
_CHUNK: Final = 200
_LIMITS: Final = JobLimits(usd=2.0, calls=1, seconds=180.0)


def uses_notes(profile: Profile) -> bool:
    """Return whether the folds of a profile can take running notes."""
    return any(policy.name == _USED_BY for policy in profile.policies)


@dataclass(frozen=True, slots=True)
class TakeNotes:
    """Updates the running notes when the session has grown enough. `profile` returns the current profile of the session.

    `path` is the file of the notes, which is written for people to read; the notes themselves are events of the log. `folders` may hold a
    `template.md` and a `prompt.md` of the user; the first that does counts.
    """

    budget: DayBudget
    config: MemoryConfig
    profile: Callable[[], Profile]
    path: Path
    folders: tuple[Path, ...] = ()
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"replied", "turn_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return `None` unless the profile or the settings want notes and an update may be due."""
        wanted = self.config.running_notes == "on" or (self.config.running_notes == "auto" and uses_notes(self.profile()))
        if not wanted or not self.profile().memory.takes_notes:
            return None
        return self._steps(situation, self.settings())

    def settings(self) -> NotesSettings:
        """Return the settings, with the template and the prompt of the user if there are any."""
        config = self.config
        return NotesSettings(
            first_at=config.notes_first_at,
            growth=config.notes_growth,
            calls=config.notes_calls,
            section_tokens=config.notes_section_tokens,
            file_tokens=config.notes_file_tokens,
            template=self._own_text("template.md"),
            prompt=self._own_text("prompt.md"),
        )

    def _steps(self, situation: JobSituation, settings: NotesSettings) -> JobSteps:
        progress = yield from _progress(situation, settings)
        if not is_update_due(progress, settings):
            return None
        self.budget.check_jobs()
        notes, items = situation.view.notes, settled_items(situation.view.items)
        if not items:
            return None
        covers = seq_of(items[-1].id) if len(items) < len(situation.view.items) else situation.view.seq
        text = empty_notes(settings) if notes is None else notes.text
        update = notes_update(items, text, str(self.path), covers, settings, used=situation.used)
        taken = yield from self.budget.metered(update, cached_is_free=True)
        if taken is None:
            # A failure, so that the next try waits: the same request after every reply would cost and bring nothing.
            raise CannotFold("the reply edits nothing in the running notes", kind="malformed")
        return JobEnd((taken,), commit=partial(self._write, taken))

    def _write(self, taken: NotesTaken) -> JobEnd:
        write_private(self.path, taken.text.encode())
        return JobEnd()

    def _own_text(self, name: str) -> str:
        """Return the text of a file of the user; empty if there is none that can be used."""
        for folder in self.folders:
            try:
                with (folder / name).open("rb") as file:
                    data = file.read(_LARGEST + 1)
                if len(data) <= _LARGEST and (text := data.decode("utf-8")).strip():
                    return text
            except (OSError, UnicodeDecodeError):
                continue
        return ""


def settled_items(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items before the first call that has no result yet, and before the reply that makes it."""
    pending = {item.id for item in pending_calls(items)}
    first = next((place for place, item in enumerate(items) if item.id in pending), None)
    if first is None:
        return items
    reply = seq_of(items[first].id)
    return tuple(item for item in items[:first] if seq_of(item.id) != reply)


def _progress(situation: JobSituation, settings: NotesSettings) -> Generator[Want, Answer, NotesProgress]:
    """Return how far the session is since the last update; tool calls are counted only if the other conditions hold."""
    notes, items = situation.view.notes, situation.view.items
    used_at = 0
    if notes is not None:
        body = (yield from span(EventSpan(notes.seq, notes.seq)))[0].body
        used_at = body.tokens if isinstance(body, NotesTaken) else 0
    if situation.used < used_at:
        # A fold came in between; what the session has grown to since then counts from its new beginning.
        used_at = 0
    is_pause = bool(items) and items[-1].kind == "assistant" and isinstance(items[-1].content, Text)
    progress = NotesProgress(situation.used, used_at, 0, is_pause)
    if is_pause or not has_grown(progress, settings):
        return progress
    after, last, calls = -1 if notes is None else notes.covers, situation.tip, 0
    while last > after and calls < settings.calls:
        first = max(after + 1, last - _CHUNK + 1)
        calls += _count_calls((yield from path_events(situation, first, last)))
        last = first - 1
    return NotesProgress(situation.used, used_at, calls, is_pause)


def _count_calls(events: tuple[Event, ...]) -> int:
    replies = (event.body for event in events if isinstance(event.body, ModelReplied) and event.body.purpose == "turn")
    return sum(isinstance(part, ToolCall) for reply in replies for part in reply.parts)
