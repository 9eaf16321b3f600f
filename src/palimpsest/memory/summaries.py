"""The summary file of a session, the transcript that it is made from, the choice of summaries to read, and SUMMARY.md."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.audit.entities import is_context_text
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.tool_calls import action_of, exit_of
from palimpsest.core.events import Event, ModelReplied, SessionOpened, Titled, ToolRefused, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value
from palimpsest.core.plans import CommandRun
from palimpsest.core.redaction import redact
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import preview
from palimpsest.memory.changes import QuotableEvent, Speaker
from palimpsest.memory.evidence import escaped, iso_time, line_of_source
from palimpsest.memory.index_text import newer_among, newest_first, older_mark
from palimpsest.memory.note import Note, time_of

# Tokens of one text of the user, and of one reply, before it is shortened to its beginning and end.
_LONGEST_USER, _LONGEST_REPLY = 4_000, 1_500
_LONGEST_LINE: Final = 200
# Share of a window that is effective, and share of that for the session; in percent.
_EFFECTIVE, _SHARE = 95, 70
DEFAULT_LIMIT: Final = 150_000
# Tokens that the line about what was left out may take.
_GAP_TOKENS: Final = 20


class SessionReading(Value, frozen=True):
    """A finished session as far as phase one needs it. Times are milliseconds since 1970; texts are without secrets.

    `first` is the first message of the user and `closing` the last reply. `forgotten` events are in none of the texts.
    """

    session: str
    cwd: str = ""
    branch: str = ""
    origin: str = ""
    title: str = ""
    started: int = 0
    updated: int = 0
    first: str = ""
    closing: str = ""
    edited: tuple[str, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    sources: tuple[QuotableEvent, ...] = ()


def read_session(session: str, events: Iterable[Event], forgotten: frozenset[str] = frozenset()) -> SessionReading:
    """Read the events of the current path of a session. `forgotten` are ids (`session:seq`) of events that are left out."""
    evidence = EvidenceProjection(names_used=lambda _: ())
    opened, title, started, updated = SessionOpened(session), "", 0, 0
    sources: list[QuotableEvent] = []
    calls: dict[str, ToolCall] = {}
    for event in events:
        started, updated = started or event.at, max(updated, event.at)
        if f"{session}:{event.seq}" in forgotten:
            continue
        evidence.take(event)
        match event.body:
            case SessionOpened():
                opened = event.body
            case Titled(title=given):
                title = given
            case ModelReplied(purpose="turn", parts=parts):
                calls |= {part.call_id: part for part in parts if isinstance(part, ToolCall)}
            case _:
                pass
        sources += _sources(session, event, calls)
    known = evidence.value()
    texts = {who: [source.text for source in sources if source.speaker == who] for who in ("user", "assistant")}
    return SessionReading(
        session,
        opened.cwd,
        opened.meta.get("branch", ""),
        opened.origin,
        redact(" ".join(title.split()))[:_LONGEST_LINE],
        started,
        updated,
        texts["user"][0] if texts["user"] else "",
        texts["assistant"][-1] if texts["assistant"] else "",
        tuple(map(redact, known.edited)),
        tuple(CommandRun(redact(ran.command), ran.exit, ran.seq, "") for ran in known.commands),
        tuple(sources),
    )


def input_limit(window: int) -> int:
    """Return the most tokens of a session in one request to a model with this window; 0 is an unknown one."""
    return window * _EFFECTIVE // 100 * _SHARE // 100 if window else DEFAULT_LIMIT


def middle_cut(sources: tuple[QuotableEvent, ...], tokens: int) -> tuple[tuple[QuotableEvent, ...], tuple[QuotableEvent, ...]]:
    """Return the first and the last sources that have together at most so many tokens; the second is empty if all fit."""
    sizes = [estimate(line_of_source(source)) + 1 for source in sources]
    if sum(sizes) <= tokens:
        return sources, ()
    left, start, end = (tokens - _GAP_TOKENS) // 2, 0, len(sources)
    room = left
    while start < end and sizes[start] <= room:
        room -= sizes[start]
        start += 1
    room += tokens - _GAP_TOKENS - left
    while end > start and sizes[end - 1] <= room:
        room -= sizes[end - 1]
        end -= 1
    return sources[:start], sources[end:]


def transcript_lines(beginning: tuple[QuotableEvent, ...], end: tuple[QuotableEvent, ...], left_out: int) -> Iterator[str]:
    """Yield the lines of a transcript, with a line that says how many events are missing in its middle."""
    yield from map(line_of_source, beginning)
    if left_out:
        yield f"[… {left_out:,} events left out …]"
    yield from map(line_of_source, end)


def _sources(session: str, event: Event, calls: dict[str, ToolCall]) -> Iterator[QuotableEvent]:
    speaker: Speaker
    match event.body:
        case UserSaid(parts=parts):
            speaker, text = "user", preview(_said(parts), _LONGEST_USER, _LONGEST_USER // 2, _LONGEST_USER // 2).text
        case ModelReplied(parts=parts, purpose="turn"):
            speaker, text = "assistant", preview(_texts(parts), _LONGEST_REPLY, _LONGEST_REPLY // 2, _LONGEST_REPLY // 2).text
        case ToolReturned():
            speaker, text = "tool", _outcome(event.body, calls.pop(event.body.result.call_id, None))
        case ToolRefused(tool=tool):
            speaker, text = "tool", f"{_one_line(tool)}: not allowed"
        case _:
            return
    if text.strip():
        yield QuotableEvent(f"{session}:{event.seq}", speaker, redact(text), iso_time(event.at))


def _said(parts: tuple[Content, ...]) -> str:
    """The texts that the user wrote: instructions, skills and other context that programs send in their name are left out."""
    return "\n".join(part.text for part in parts if isinstance(part, Text) and part.role == "user" and not is_context_text(part.text))


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _outcome(body: ToolReturned, call: ToolCall | None) -> str:
    """The tool, what it was applied to, and how it ended; not its output, which may come from anywhere."""
    action = None if call is None else action_of(call)
    line = "" if action is None else action.command or ", ".join(dict.fromkeys(access.path for access in action.paths))
    code = exit_of(body)
    ended = "failed" if body.result.error else "ok" if code in (0, None) else "failed"
    return f"{_one_line(body.tool or (call.tool if call is not None else 'tool'))} {_one_line(line)}: {ended}" + (
        "" if code is None else f" (exit code {code})"
    )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


Outcome: TypeAlias = Literal["success", "partial", "uncertain", "failed"]
MadeBy: TypeAlias = Literal["model", "structure"]
# Tokens of the body of a summary.
LONGEST_SUMMARY: Final = 1_500
_MOST_FILES, _MOST_COMMANDS, _LONGEST_TEXT, _LONGEST_TITLE = 30, 20, 600, 120
_MOST_TASKS, _MOST_POINTS = 12, 12


class TaskSummary(Struct, frozen=True, forbid_unknown_fields=True):
    """One task of a session: what the user wanted, how it ended, and what a later session can learn from it."""

    name: str
    outcome: Outcome
    preferences: tuple[str, ...] = ()
    worked: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


class RolloutFile(Value, frozen=True):
    """A summary file. `updated` is the time of the last event of the session, in milliseconds since 1970."""

    session: str
    updated: int
    cwd: str
    branch: str
    made_by: MadeBy
    body: str

    @property
    def title(self) -> str:
        """The first heading of the body."""
        return next((line[2:].strip() for line in self.body.split("\n") if line.startswith("# ")), "")


def encode_rollout(rollout: RolloutFile) -> str:
    """Return the text of a summary file, without secrets."""
    head = (
        ("thread_id", rollout.session),
        ("updated_at", iso_time(rollout.updated)),
        ("updated_ms", str(rollout.updated)),
        ("cwd", rollout.cwd),
        ("git_branch", rollout.branch),
        ("made_by", rollout.made_by),
    )
    lines = (f"{key}: {' '.join(redact(value).split())}" for key, value in head if value.strip())
    return "\n".join((*lines, "", bounded_lines(redact(rollout.body).strip(), LONGEST_SUMMARY), ""))


def decode_rollout(text: str) -> RolloutFile | None:
    """Return the summary that a text states; `None` if it is none."""
    head, _, body = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
    session, updated = fields.get("thread_id", ""), fields.get("updated_ms", "")
    if not session or not updated.isascii() or not updated.isdigit() or len(updated) > 15:
        return None
    made_by: MadeBy = "model" if fields.get("made_by") == "model" else "structure"
    return RolloutFile(session, int(updated), fields.get("cwd", ""), fields.get("git_branch", ""), made_by, body.rstrip("\n"))


def structural_body(reading: SessionReading) -> str:
    """Return the summary of a session that no model has read: what it was about in the user's words, and what was done by the log.

    Empty if the user said nothing.
    """
    if not reading.first:
        return ""
    edited = _points(reading.edited, _MOST_FILES)
    commands = _points(
        (f"`{ran.command}`: {'running' if ran.exit is None else f'exit code {ran.exit}'}" for ran in reading.commands[::-1]), _MOST_COMMANDS
    )
    parts = (
        f"# {title_of(reading)}",
        "(made from the log, without a model)",
        _section("First message", (f"> {line}" for line in _excerpt(reading.first).split("\n"))),
        _section("Files changed", edited),
        _section("Commands and their last outcome, newest first", commands),
        _section(
            "Closing message of the agent", (f"> {line}" for line in _excerpt(reading.closing).split("\n")) if reading.closing else ()
        ),
    )
    return "\n\n".join(part for part in parts if part)


def model_body(title: str, context: str, tasks: Iterable[TaskSummary]) -> str:
    """Return the summary that a model has written, as Markdown; text cannot form tags or headings of its own."""
    parts = [f"# {_plain_line(title)[:_LONGEST_TITLE]}"]
    if context.strip():
        parts.append(_plain_line(context))
    for number, task in enumerate(list(tasks)[:_MOST_TASKS], 1):
        lists = (
            ("What the user prefers", task.preferences),
            ("What worked", task.worked),
            ("What failed, and what to do instead", task.failed),
            ("References", task.references),
        )
        shown = [f"{name}:\n" + "\n".join(_points(map(_plain_line, points), _MOST_POINTS)) for name, points in lists if points]
        parts.append("\n".join((f"## Task {number}: {_plain_line(task.name)[:_LONGEST_TITLE]}", f"Outcome: {task.outcome}", *shown)))
    return "\n\n".join(parts)


def title_of(reading: SessionReading) -> str:
    """Return the title of a session: the recorded one, or the first line of the first message."""
    first = next((line for line in reading.first.split("\n") if line.strip()), "")
    return _plain_line(reading.title or first)[:_LONGEST_TITLE] or "(untitled)"


def bounded_lines(text: str, tokens: int) -> str:
    """Return the first lines of a text that have at most so many tokens; a last line says how many were left out."""
    if estimate(text) <= tokens:
        return text
    lines, low = text.split("\n"), 0
    high = len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate(_cut_at(lines, middle)) <= tokens else (low, middle - 1)
    return _cut_at(lines, low)


def _cut_at(lines: list[str], kept: int) -> str:
    return "\n".join((*lines[:kept], f"({len(lines) - kept:,} lines left out)"))


def _section(name: str, lines: Iterable[str]) -> str:
    listed = "\n".join(lines)
    return f"## {name}\n{listed}" if listed else ""


def _points(texts: Iterable[str], most: int) -> tuple[str, ...]:
    listed = list(texts)
    more = (f"- … and {len(listed) - most:,} more",) if len(listed) > most else ()
    return (*(f"- {_plain_line(text)}" for text in listed[:most]), *more)


def _plain_line(text: str) -> str:
    line = " ".join(escaped(text).split()).lstrip("#> ")
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def _excerpt(text: str) -> str:
    return escaped(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…")


MOST_PRUNED: Final = 200


class RolloutUse(Value, frozen=True):
    """A summary and how it is used. Times are milliseconds since 1970; 0 is never.

    `source_at` is the last event of its session, `made_at` when it was made. `is_selected` is true if the last consolidation read it as
    it is now.
    """

    session: str
    stem: str
    source_at: int
    made_at: int
    uses: int = 0
    last_used: int = 0
    is_selected: bool = False

    @property
    def fresh_at(self) -> int:
        """When it was used or made last: an old session that was imported today is new here."""
        return max(self.last_used, self.made_at)


def selected(rollouts: Iterable[RolloutUse], now: int, unused_ms: int, most: int) -> tuple[RolloutUse, ...]:
    """Return the summaries that a consolidation reads, in the order of their sessions.

    Those that were neither used nor made within `unused_ms` milliseconds are left out. Of more than `most` those with the most uses are
    kept, then those that were used last, then those of the newest sessions.
    """
    fresh = [each for each in rollouts if now - each.fresh_at <= unused_ms]
    ranked = sorted(fresh, key=lambda each: (each.uses, each.last_used or each.source_at, each.source_at, each.session), reverse=True)
    return tuple(sorted(ranked[:most], key=lambda each: each.session))


def pruned(rollouts: Iterable[RolloutUse], now: int, unused_ms: int, most: int = MOST_PRUNED) -> tuple[RolloutUse, ...]:
    """Return the summaries to delete: unused for longer than `unused_ms` milliseconds and not selected, stalest first, at most 200."""
    stale = [each for each in rollouts if not each.is_selected and now - each.fresh_at > unused_ms]
    return tuple(sorted(stale, key=lambda each: (each.fresh_at, each.session))[:most])


VERSION_LINE: Final = "v1"
SECTIONS: Final = ("User profile", "Preferences", "General tips", "What is in memory")
# The first two say what the user is and wants, so that each line needs a statement of the user.
_STATED_SECTIONS: Final = frozenset(SECTIONS[:2])
MOST_TOKENS: Final = 2_500
MOST_BYTES: Final = 9_999
# Tokens of the first three sections; the last one gets what is left.
_SECTION_TOKENS: Final = (600, 600, 400)
_POINTER: Final = re.compile(r"\]\(([^()\s]{1,300})\)")
_MORE: Final = re.compile(r"- … and [\d,]{1,12} more")
_SUMMARY_LONGEST_LINE: Final = 400
CHANGED_MARK: Final = "(file changed since)"

Pointed: TypeAlias = Literal["stated", "other"]


class RolloutPointer(Value, frozen=True):
    """A summary of a session as SUMMARY.md lists it; `date` is `YYYY-MM-DD`."""

    stem: str
    title: str
    date: str


class SummaryInput(Value, frozen=True):
    """What SUMMARY.md is made of: active notes, summaries of sessions, names of skills, and names of notes whose files changed since."""

    notes: tuple[Note, ...] = ()
    rollouts: tuple[RolloutPointer, ...] = ()
    skills: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to summarise."""
        return not self.notes and not self.rollouts

    def targets(self) -> Mapping[str, Pointed]:
        """Return what a line may point to, as paths in the folder of the scope."""
        notes: dict[str, Pointed] = {f"notes/{note.name}.md": "stated" if note.trust == "stated" else "other" for note in self.notes}
        rollouts: dict[str, Pointed] = {f"rollouts/{each.stem}.md": "other" for each in self.rollouts}
        return notes | rollouts | {f"skills/{name}/SKILL.md": "other" for name in self.skills}


def structural_summary(given: SummaryInput) -> str:
    """Return SUMMARY.md as the notes alone give it: a pure function of its input, within all bounds."""
    newer = _newer(given.notes)
    notes = newest_first(sorted(given.notes, key=_standing, reverse=True), lambda note: note.name, newer)
    profile = [note for note in notes if note.kind == "user" and note.trust == "stated"]
    preferences = [note for note in notes if note.kind == "feedback" and note.trust == "stated"]
    tipped = {note.name for note in notes if note.level != "fact" or note.pinned or note.uses}
    # What is newer about the same stands in the section of the older one, so that this is not told alone.
    tipped |= {name for tip in tipped for name in newer.get(tip, ())}
    tips = [note for note in notes if note.kind in ("project", "reference") and note.name in tipped]
    rest = [note for note in notes if note not in profile and note not in preferences and note not in tips]
    dated = [(note.when[:10], _note_line(note, given.changed, newer, dated=True)) for note in rest]
    dated += [
        (each.date, f"- {each.date}: {_summary_one_line(each.title)} [{each.stem}](rollouts/{each.stem}.md)") for each in given.rollouts
    ]
    skills = [f"- skill [{name}](skills/{name}/SKILL.md)" for name in given.skills]
    first_three = [[_note_line(note, given.changed, newer) for note in listed] for listed in (profile, preferences, tips)]
    last = [*skills, *(line for _, line in sorted(dated, reverse=True))]
    parts = [VERSION_LINE]
    for name, lines, tokens in zip(SECTIONS, (*first_three, last), (*_SECTION_TOKENS, MOST_TOKENS), strict=True):
        before = "\n\n".join(parts)
        head = f"## {name}"
        room = min(tokens, MOST_TOKENS - estimate(before) - _reserved(name))
        space = MOST_BYTES - len(before.encode()) - 100 - 40 * (len(SECTIONS) - SECTIONS.index(name))
        parts.append("\n".join((head, *_fitting(lines, room, space))))
    return "\n\n".join(parts) + "\n"


def check_summary(text: str, targets: Mapping[str, Pointed]) -> str:
    """Return why a text may not become SUMMARY.md; empty if it may.

    Its first line is `v1`; it has the four sections in order and nothing but points in them; each point refers to what exists, and what is
    said about the user to a statement of the user; it is within its bounds and contains no tag.
    """
    lines = text.rstrip("\n").split("\n")
    if lines[0] != VERSION_LINE:
        return f"the first line is not {VERSION_LINE}"
    if len(text.encode()) > MOST_BYTES or estimate(text) > MOST_TOKENS:
        return f"it has more than {MOST_TOKENS:,} tokens or {MOST_BYTES:,} bytes"
    if "<" in text or ">" in text:
        return "it contains a tag"
    sections = [line[3:].strip() for line in lines if line.startswith("## ")]
    if tuple(sections) != SECTIONS:
        return f"its sections are not {', '.join(SECTIONS)}"
    section = ""
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("## "):
            section = line[3:].strip()
        elif line.strip() and (wrong := _wrong_point(line, section, targets)):
            # The reason is kept in logs, which never repeat what a note says.
            return f"{wrong} (line {number}, below {section or 'no heading'!r})"
    return ""


def summary_material(given: SummaryInput) -> str:
    """Return what a model gets to write SUMMARY.md from: one line a note or session, with the pointer that the line must carry."""
    newer = _newer(given.notes)
    notes = newest_first(sorted(given.notes, key=_standing, reverse=True), lambda note: note.name, newer)
    lines = [f"[{note.kind}, {note.trust}] {_note_line(note, given.changed, newer, dated=True)}" for note in notes]
    lines += [
        f"[session] - {each.date}: {_summary_one_line(each.title)} [{each.stem}](rollouts/{each.stem}.md)"
        for each in sorted(given.rollouts, key=lambda each: (each.date, each.stem), reverse=True)
    ]
    return "\n".join((*lines, *(f"[skill] - [{name}](skills/{name}/SKILL.md)" for name in given.skills)))


def _wrong_point(line: str, section: str, targets: Mapping[str, Pointed]) -> str:
    if not section or not line.startswith("- "):
        return "there is something else than points"
    found = _POINTER.findall(line)
    if not found:
        return "" if _MORE.fullmatch(line) else "a point refers to nothing"
    if any(target not in targets for target in found):
        return "a point refers to what does not exist"
    if section in _STATED_SECTIONS and all(targets[target] != "stated" for target in found):
        return "what is said about the user needs a statement of the user"
    return ""


def _newer(notes: Sequence[Note]) -> Mapping[str, Sequence[str]]:
    """Return the names of newer notes about the same, by the name of the older one."""
    known = newer_among(notes)
    return {note.name: found for note in notes if (found := known.of(note.name))}


def _standing(note: Note) -> tuple[bool, int, datetime, str]:
    return note.pinned, note.uses, time_of(note.when), note.name


def _note_line(note: Note, changed: frozenset[str], newer: Mapping[str, Sequence[str]], *, dated: bool = False) -> str:
    older = older_mark(newer.get(note.name, ()), note.trust)
    about = f"{note.whom}: {note.about}" if note.whom else note.about
    mark = f"{f' {CHANGED_MARK}' if note.name in changed else ''}{f' · {older}' if older else ''}"
    return f"- {note.when[:10] + ': ' if dated else ''}{_summary_one_line(about)} [{note.name}](notes/{note.name}.md){mark}"


def _summary_one_line(text: str) -> str:
    # Brackets of a text could form a pointer of their own.
    return " ".join(escaped(text).translate({ord("["): "⟦", ord("]"): "⟧"}).split())[:_SUMMARY_LONGEST_LINE]


def _reserved(name: str) -> int:
    """Tokens of the headings that follow a section, and of its line about what was left out."""
    return 20 * (len(SECTIONS) - SECTIONS.index(name))


def _fitting(lines: Sequence[str], tokens: int, size: int) -> Iterable[str]:
    """Return the first lines that fit, and one that says how many did not."""
    kept: list[str] = []
    for line in lines:
        tokens -= estimate(line) + 1
        size -= len(line.encode()) + 1
        if tokens < 0 or size < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    return (*kept, f"- … and {left:,} more") if left else tuple(kept)
