"""Running notes of a session in ten sections, and the job that keeps them up to date beside the turns."""

import pkgutil
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.core.errors import BadInput, CannotFold
from palimpsest.core.events import Event, ModelReplied, NotesTaken
from palimpsest.core.items import Item, Text, ToolCall, Value, pending_calls, seq_of
from palimpsest.core.plans import (
    Answer,
    Ask,
    EventSpan,
    JobEnd,
    JobLimits,
    JobMoment,
    JobPlan,
    JobSituation,
    JobSteps,
    Want,
    ask,
    path_events,
    span,
)
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.memory.work import MemoryMeter, check_jobs, metered
from palimpsest.policies.profile import Profile
from palimpsest.stores.files import store_errors, write_private
from palimpsest.stores.memory_config import MemoryConfig

PURPOSE: Final = "notes"
SECTIONS: Final[Mapping[str, str]] = {
    "Session Title": "Five to ten words that tell this session from others.",
    "Current State": "What is being worked on right now, what comes next, and what is still open.",
    "Task Specification": "What the user asked for, and the decisions about its design.",
    "Files and Functions": "Which ones matter, what is in them, and why.",
    "Workflow": "Commands that are run, in their order, and how to read what they print.",
    "Errors & Corrections": "Errors and how they were fixed, what the user corrected, and what did not work.",
    "Codebase and System Docs": "The parts of the system, and how they fit together.",
    "Learnings": "What worked well, and what to avoid.",
    "Key Results": "Answers, tables and texts that the user asked for, in full.",
    "Worklog": "One short line for each step.",
}


class NotesSettings(Value, frozen=True):
    """When notes are updated and how long they may be, in tokens; own template and prompt texts replace the built-in ones."""

    first_at: int = 10_000
    growth: int = 5_000
    calls: int = 3
    section_tokens: int = 2_000
    file_tokens: int = 12_000
    template: str = ""
    prompt: str = ""


DEFAULT_NOTES: Final = NotesSettings()


class NotesProgress(Value, frozen=True):
    """How far a session is since its notes were updated last: sizes in tokens, and tool calls."""

    used: int
    used_at_update: int = 0
    calls_since: int = 0
    is_pause: bool = False


def is_update_due(progress: NotesProgress, settings: NotesSettings = DEFAULT_NOTES) -> bool:
    """Return whether the notes are to be updated: enough has come since, and either enough calls or a reply without any."""
    return has_grown(progress, settings) and (progress.calls_since >= settings.calls or progress.is_pause)


def has_grown(progress: NotesProgress, settings: NotesSettings = DEFAULT_NOTES) -> bool:
    """Return whether a session is long enough for notes, and has grown enough since their last update."""
    return progress.used >= settings.first_at and progress.used - progress.used_at_update >= settings.growth


def empty_notes(settings: NotesSettings = DEFAULT_NOTES) -> str:
    """Return the template: the one of the user, or the ten sections."""
    return settings.template or "\n".join(f"# {title}\n_{what}_\n" for title, what in SECTIONS.items())


def update_prompt(notes: str, path: str, settings: NotesSettings = DEFAULT_NOTES) -> str:
    """Return the prompt of an update, with a reminder for each bound that the notes exceed."""
    template = settings.prompt or _built_in_prompt()
    values = {"currentNotes": notes, "notesPath": path, "sectionTokens": f"{settings.section_tokens:,}"}
    for name, value in values.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return "\n\n".join((template.strip(), *_reminders(notes, settings)))


def notes_update(
    items: tuple[Item, ...], notes: str, path: str, covers: int, settings: NotesSettings = DEFAULT_NOTES, *, used: int = 0
) -> Generator[Want, Answer, NotesTaken | None]:
    """Ask once for edits of the notes and return them edited; `None` if the reply has no edit that can be applied.

    The request shares head, tools and items with the session, so that it reads the session's cached prefix. Calls of other tools, edits
    of other files and edits of the structure are not carried out. `used` are the tokens of the session at this update, which are recorded
    so that the next one can tell its growth. Raises the `PalimpsestError` of a failed call.
    """
    reply = yield from ask(Ask(items, update_prompt(notes, path, settings), PURPOSE))
    edited = notes
    for part in reply.parts:
        if isinstance(part, ToolCall) and (replacement := _replacement(part, path)) is not None:
            edited = edit_notes(edited, *replacement) or edited
    return None if edited == notes else NotesTaken(redact(edited), covers, used)


def edit_notes(notes: str, old: str, new: str) -> str | None:
    """Return the notes with a text that occurs once replaced; `None` if it does not, or if headings or lines in italics would change."""
    if not old or notes.count(old) != 1:
        return None
    edited = notes.replace(old, new)
    return edited if _structure(edited) == _structure(notes) else None


def section_sizes(notes: str) -> Mapping[str, int]:
    """Return the tokens of each section by its title."""
    sizes: dict[str, int] = {}
    title = ""
    for line in notes.splitlines():
        if line.startswith("# "):
            title = line[2:].strip()
        if title:
            sizes[title] = sizes.get(title, 0) + estimate(f"{line}\n")
    return sizes


def _structure(notes: str) -> tuple[str, ...]:
    """Return the headings, each with the line in italics directly below it, which an edit must leave as they are."""
    lines = notes.splitlines()
    return tuple("\n".join(lines[place : place + 2]) for place, line in enumerate(lines) if line.startswith("# "))


def _reminders(notes: str, settings: NotesSettings) -> tuple[str, ...]:
    found: list[str] = []
    size = estimate(notes)
    if size > settings.file_tokens:
        found.append(
            f"The notes have about {size:,} tokens; the most is {settings.file_tokens:,}. They must be condensed now: shorten the largest "
            "sections, join what belongs together, sum up old entries. Current State and Errors & Corrections stay accurate."
        )
    large = {title: tokens for title, tokens in section_sizes(notes).items() if tokens > settings.section_tokens}
    if large:
        listed = "\n".join(f'- "{title}" is ~{tokens} tokens (limit: {settings.section_tokens})' for title, tokens in large.items())
        found.append(f"These sections must be condensed:\n{listed}")
    return tuple(found)


def _replacement(call: ToolCall, path: str) -> tuple[str, str] | None:
    """Return the old and the new text of a call that edits the notes; `None` for any other call."""
    if call.tool.lower() != "edit":
        return None
    try:
        arguments = msgspec.json.decode(call.args or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    values = [
        arguments.get(ours, arguments.get(theirs)) for ours, theirs in (("path", "file_path"), ("old", "old_string"), ("new", "new_string"))
    ]
    place, old, new = values
    return (old, new) if place == path and isinstance(old, str) and isinstance(new, str) else None


@cache
def _built_in_prompt() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/running_notes.md")
    if data is None:
        raise BadInput("the prompt of the running notes is not installed")
    return data.decode()


NAME: Final = "running_notes"
FILE: Final = "running-notes.md"
# The policy that folds into running notes; a profile without it has no use for them.
_USED_BY: Final = "swap_notes"
# Bytes of a template or prompt of the user; a longer one is not used.
_LARGEST: Final = 64 * 1024
# Events that are read at a time, newest first, to count the tool calls since the last update.
_CHUNK: Final = 200
_LIMITS: Final = JobLimits(calls=1, seconds=180.0)


def uses_notes(profile: Profile) -> bool:
    """Return whether the folds of a profile can take running notes."""
    return any(policy.name == _USED_BY for policy in profile.policies)


@dataclass(frozen=True, slots=True)
class TakeNotes:
    """Updates the running notes when the session has grown enough. `profile` returns the current profile of the session.

    `path` is the file of the notes, which is written for people to read; the notes themselves are events of the log. `folders` may hold a
    `template.md` and a `prompt.md` of the user; the first that does counts.
    """

    meter: MemoryMeter
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
        check_jobs(self.config)
        notes, items = situation.view.notes, settled_items(situation.view.items)
        if not items:
            return None
        covers = seq_of(items[-1].id) if len(items) < len(situation.view.items) else situation.view.seq
        text = empty_notes(settings) if notes is None else notes.text
        update = notes_update(items, text, str(self.path), covers, settings, used=situation.used)
        taken = yield from metered(update, self.meter, cached_is_free=True)
        if taken is None:
            # A failure, so that the next try waits: the same request after every reply would cost and bring nothing.
            raise CannotFold("the reply edits nothing in the running notes", kind="malformed")
        return JobEnd((taken,), commit=partial(self._write, taken))

    def _write(self, taken: NotesTaken) -> JobEnd:
        with store_errors(self.path.parent, "create"):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
