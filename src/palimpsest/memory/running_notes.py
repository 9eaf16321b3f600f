"""Running notes of a session: ten sections that a model keeps up to date beside the turns, so that a fold can take them at once."""

import pkgutil
from collections.abc import Generator, Mapping
from functools import cache
from typing import Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NotesTaken
from palimpsest.core.items import Item, ToolCall, Value
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate

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
