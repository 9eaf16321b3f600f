"""What phase one reads of a finished session: texts of the user, replies, and names and outcomes of tools, never what tools returned."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from palimpsest.audit.context_tags import is_context_text
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.tools.calls import action_of, exit_of
from palimpsest.core.events import Event, ModelReplied, SessionOpened, Titled, ToolRefused, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value
from palimpsest.core.redaction import redact
from palimpsest.core.situation import CommandRun
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.truncate import preview
from palimpsest.memory.changes import QuotableEvent, Speaker
from palimpsest.memory.reading import line_of_source

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


def iso_time(milliseconds: int) -> str:
    """Return a time as RFC 3339 states it, in UTC and seconds."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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
