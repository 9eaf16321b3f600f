"""Turns events and stream deltas into blocks, with streamed Markdown, notices, open questions and the status line."""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text as StatusText

from pal.terminal.look import ScreenLook
from pal.terminal.painting import Block, FoldBlock, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock, UserBlock, painted
from pal.text import plain, saved_note_line, short
from palimpsest.agent.feed import Piece
from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta
from palimpsest.core.events import (
    TURN,
    ChildEnded,
    ChildOpened,
    EditUndone,
    Event,
    EventBody,
    Failed,
    FilesSnapshotted,
    HookRan,
    InputWithdrawn,
    Interrupted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    Noticed,
    PermissionAsked,
    Pinned,
    ProcessEnded,
    ProcessStarted,
    ProfileChanged,
    Recalled,
    Rewound,
    Titled,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Document, Image, Part, Text, Thinking, ToolCall, text_of
from palimpsest.core.text import cost_text, percent_of

_SLOW_SNAPSHOT_MS = 5_000
# Reasons for which a turn ends that the last reply does not say itself.
_STOPS = {
    "max_tokens": "the reply was cut off: it reached its limit of tokens",
    "refusal": "the model refused to answer",
    "blocked": "a hook blocked the prompt",
    "max_calls": "the limit of model calls was reached",
    "max_tools": "the limit of tool calls was reached",
    "max_seconds": "the limit of seconds was reached",
    "max_usd": "the limit of US dollars was reached",
    "loop": "the model repeated the same calls with the same results",
    "empty": "the model replied with nothing",
    "written_call": "the model wrote a tool call as text; nothing was run",
    "max_total_tokens": "the limit of tokens was reached",
    "price_unknown": "the limit of US dollars cannot be kept: what a call cost is not known; limit tokens, or write a card with its prices",
}


def notice_of(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event; `None` for events that the screen does not show."""
    match body:
        case HookRan(notice=notice, failure=failure, hook=hook) if notice:
            return NoticeBlock(notice if failure else f"hook {hook}: {notice}", "warning" if failure else "info")
        case Noticed(text=text):
            return NoticeBlock(text, "warning")
        case InputWithdrawn(by=by, why=why):
            return NoticeBlock(f"the {by} took the message back{': ' + why if why else ''}", "warning")
        case Failed(what=what, message=message, by=by):
            return NoticeBlock(f"{by or what} failed: {message}", "error")
        case TurnEnded(stop=stop) if stop in _STOPS:
            return NoticeBlock(_STOPS[stop], "warning")
        case FilesSnapshotted(took_ms=took_ms) if took_ms >= _SLOW_SNAPSHOT_MS:
            return NoticeBlock(f"keeping the state of the files took {took_ms / 1000:.1f} s (files.snapshots turns it off)")
        case _:
            return _change(body) or _work(body)


def _change(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event by which the session works differently from now on."""
    match body:
        case ModelSwitched(model=model, previous=previous):
            return NoticeBlock(f"model {model}" + (f", was {previous}" if previous else ""))
        case ProfileChanged(profile=profile, previous=previous):
            return NoticeBlock(f"profile {profile}" + (f", was {previous}" if previous else ""))
        case ModeChanged(mode=mode, previous=previous) if previous:
            return NoticeBlock(f"mode {mode}, was {previous}")
        case EditUndone(event=event):
            return NoticeBlock(f"edit {event} was undone")
        case Rewound(to=to, files=files):
            return NoticeBlock(f"went back to event {to}" + (", with the files" if files else ""))
        case Pinned(ids=ids, paths=paths, on=on):
            return NoticeBlock(f"{'pinned' if on else 'unpinned'} {', '.join((*ids, *paths))}")
        case Titled(title=title, by=""):
            return NoticeBlock(f"title: {title}")
        case _:
            return None


def _work(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event about work beside the conversation."""
    match body:
        case ChildOpened(nickname=nickname, role=role, resumed=resumed):
            return NoticeBlock(f"sub-agent {nickname} ({role}) {'goes on' if resumed else 'starts'}")
        case ChildEnded(session=session, status=status, cost_usd=usd):
            return NoticeBlock(f"sub-agent in {session} ended: {status}, {cost_text(usd)}", "info" if status == "completed" else "warning")
        case ProcessStarted(process=process, command=command):
            return NoticeBlock(f"process {process} runs in the background: {command}")
        case ProcessEnded(process=process, exit=code, why=why):
            return NoticeBlock(f"process {process} ended" + (f" with {code}" if code is not None else "") + (f": {why}" if why else ""))
        case Recalled(notes=notes) if notes:
            return NoticeBlock(f"recalled {', '.join(notes)}")
        case NoteSaved() as saved:
            return NoticeBlock(saved_note_line(saved))
        case NoteForgotten(name=name, how=how):
            return NoticeBlock(f"note {name} {how}")
        case _:
            return None


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
# Characters of one piece. A paragraph or a fence without an end is committed in pieces, so that the part that is painted again and again
# stays small.
MOST_OPEN: Final = 4_000


class StreamedText:
    """A text of which fragments arrive. `open` is the part that was not taken yet; it `continues` a paragraph or fence that was divided."""

    def __init__(self) -> None:
        self.open = ""
        self.continues = False
        # The fence that an earlier piece opened, and the line that opened it.
        self._fence = ""
        self._opener = ""
        # Whether a paragraph ends as soon as the next one begins.
        self._is_ending = False

    def add(self, fragment: str) -> str:
        """Add a fragment and return the text that became final: whole paragraphs, lists and fences; mostly empty.

        A fence that is too long is divided: each piece is a fence of its own.
        """
        self.open += fragment
        if "\n" not in fragment and not self._is_ending and len(self.open) <= MOST_OPEN:
            return ""
        end, fence, opener = self._final_end()
        if not end and len(self.open) > MOST_OPEN:
            return self._divided()
        if not end:
            return ""
        taken, self.open = self._wrapped(self.open[:end], fence), self.open[end:]
        self._fence, self._opener = fence, opener
        self.continues = False
        return taken

    def end(self) -> str:
        """Return the rest, as final."""
        taken, self.open = self._wrapped(self.open, ""), ""
        self._fence = self._opener = ""
        self.continues = False
        return taken

    def shown(self) -> str:
        """Return the open part as it is painted meanwhile: with the fence that an earlier piece opened."""
        return f"{self._opener}\n{self.open}" if self._fence else self.open

    def _final_end(self) -> tuple[int, str, str]:
        """Return where the final part of the open text ends, with the fence that is open there and its first line."""
        place = end = blank = 0
        fence = self._fence
        for line in self.open.splitlines(keepends=True):
            mark = _FENCE.match(line)
            # What is indented below a blank line may belong to the list above it.
            if blank and line.strip():
                end, blank = (end if line[0].isspace() else blank), 0
            if not line.endswith("\n"):
                break
            place += len(line)
            if fence:
                closes = mark is not None and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not line[mark.end() :].strip()
                if closes:
                    fence, end = "", place
            elif mark is not None:
                fence = mark[1]
            elif not line.strip():
                blank = place
        self._is_ending = bool(blank) and not fence
        # Inside a fence nothing is final but what stood before it.
        return (end, "", "") if end else (0, self._fence, self._opener)

    def _divided(self) -> str:
        """Take the whole lines of an open text that has no end, the whole words if it is one line, or all of it if it is one word."""
        cut = self.open.rfind("\n") + 1 or self.open.rfind(" ") + 1 or len(self.open)
        lines, fence, opener = self.open[:cut], self._fence, self._opener
        for line in lines.splitlines():
            mark = _FENCE.match(line)
            if mark is not None and not fence:
                fence, opener = mark[1], line
        taken, self.open = self._wrapped(lines, fence), self.open[cut:]
        self._fence, self._opener = fence, opener
        self.continues = True
        return taken

    def _wrapped(self, text: str, fence_after: str) -> str:
        """Return a piece with the fences that it needs to be Markdown by itself."""
        if not text.strip():
            return ""
        before = f"{self._opener}\n" if self._fence else ""
        after = "" if not fence_after else f"{'' if text.endswith(chr(10)) else chr(10)}{fence_after}\n"
        return f"{before}{text}{after}"


# Characters of an output that the screen keeps; the log has all of it.
LONGEST_OUTPUT: Final = 200_000
_LONGEST_ARGUMENTS: Final = 100_000


class Transcript:
    """Follows one session: takes its pieces in order, and knows which blocks are not final yet."""

    def __init__(self) -> None:
        self._text = StreamedText()
        self._thinking = ""
        self._has_streamed = False
        self._writing: ToolBlock | None = None
        self._tools: dict[str, ToolBlock] = {}

    def take(self, piece: Piece) -> tuple[Block, ...]:
        """Take an event or a delta and return the blocks that are final now, in order."""
        if isinstance(piece, Event):
            return tuple(self._taken(piece))
        match piece:
            case TextDelta(text=text):
                self._has_streamed = True
                thought = tuple(self._ended_thinking())
                continues = self._text.continues
                final = self._text.add(text)
                return (*thought, ReplyBlock(final, continues)) if final else thought
            case ThinkingDelta(text=text):
                self._has_streamed = True
                ended = tuple(self._ended_text())
                self._thinking += text
                return ended
            case CallDelta(call_id=call_id, tool=tool, args=args):
                self._has_streamed = True
                ended = (*self._ended_thinking(), *self._ended_text())
                self._write(call_id, tool, args)
                return ended
            case _:
                return ()

    def call(self, call_id: str) -> ToolBlock | None:
        """Return a call that has no outcome yet; `None` if there is none of that id."""
        return self._tools.get(call_id)

    def live(self) -> tuple[Block, ...]:
        """Return the blocks that still change, in the order of the screen."""
        thinking = (ThinkingBlock(self._thinking),) if self._thinking.strip() else ()
        shown = self._text.shown()
        text = (ReplyBlock(shown, self._text.continues),) if shown.strip() else ()
        writing = () if self._writing is None else (self._writing,)
        return (*thinking, *text, *writing, *self._tools.values())

    def _taken(self, event: Event) -> Iterator[Block]:
        body = event.body
        match body:
            case UserSaid():
                yield from self._said(body)
            case ModelReplied() if body.purpose == TURN:
                yield from self._replied(body.parts)
            case Interrupted() if body.purpose == TURN:
                yield from self._replied(body.parts)
                yield NoticeBlock("interrupted", "warning")
            case ToolStarted():
                started = self._tools.get(body.call_id, ToolBlock(body.call_id, body.tool))
                self._tools[body.call_id] = replace(started, state="running")
            case ToolRefused():
                called = self._tools.pop(body.call_id, ToolBlock(body.call_id, body.tool))
                yield replace(called, state="refused", output=body.why)
            case ToolReturned():
                yield from self._returned(body)
            case ViewEdited():
                yield FoldBlock(event.seq, body.by, body.tokens_before, body.tokens_after, body.price_usd, body.saved_usd_per_call)
            case _:
                notice = notice_of(body)
                if notice is not None:
                    yield notice

    def _said(self, body: UserSaid) -> Iterator[Block]:
        text = "\n".join(part.text for part in body.parts if isinstance(part, Text))
        yield UserBlock(text, body.steering, tuple(filter(None, map(_attachment, body.parts))))

    def _replied(self, parts: tuple[Content, ...]) -> Iterator[Block]:
        """End what was streamed. What did not arrive as deltas, because the provider does not stream, is taken from the reply."""
        yield from self._ended_thinking()
        yield from self._ended_text()
        self._writing = None
        for part in parts:
            match part:
                case Text(text=text) if not self._has_streamed and text.strip():
                    yield ReplyBlock(text)
                case Thinking(text=text) if not self._has_streamed and text.strip():
                    yield ThinkingBlock(text)
                case ToolCall(call_id=call_id, tool=tool, args=args):
                    self._tools[call_id] = ToolBlock(call_id, tool, args[:_LONGEST_ARGUMENTS], "writing")
                case _:
                    continue
        self._has_streamed = False

    def _returned(self, body: ToolReturned) -> Iterator[Block]:
        result = body.result
        called = self._tools.pop(result.call_id, None)
        if called is None:
            # The refusal of this call was shown.
            return
        state = "failed" if result.error else "done"
        output = text_of(result)[:LONGEST_OUTPUT]
        yield replace(called, tool=body.tool or called.tool, state=state, output=output, exit=body.exit, took_ms=body.took_ms)

    def _write(self, call_id: str, tool: str, args: str) -> None:
        """Follow the arguments of a call while the model writes them."""
        writing = self._writing
        if writing is None or not args or (call_id and writing.call_id != call_id):
            self._writing = ToolBlock(call_id, tool, args, "writing")
        elif len(writing.args) < _LONGEST_ARGUMENTS:
            self._writing = replace(writing, args=writing.args + args)

    def _ended_text(self) -> Iterator[Block]:
        continues = self._text.continues
        if final := self._text.end():
            yield ReplyBlock(final, continues)

    def _ended_thinking(self) -> Iterator[Block]:
        thought, self._thinking = self._thinking, ""
        if thought.strip():
            yield ThinkingBlock(thought)


def _attachment(part: Part) -> str:
    match part:
        case Image(media=media):
            return f"image {media}"
        case Document(media=media):
            return f"document {media}"
        case _:
            return ""


AnswerKey: TypeAlias = Literal["y", "a", "n", "esc"]


class PermissionQuestion(Struct, frozen=True):
    """One question: what the permissions ask, and the call it is about if the screen knows it."""

    asked: PermissionAsked
    call: ToolBlock | None = None

    @property
    def choices(self) -> tuple[tuple[AnswerKey, str], ...]:
        """The keys that answer, with what each does. `a` exists only where a lasting rule is safe."""
        always: tuple[tuple[AnswerKey, str], ...] = (("a", f"always: allow {plain(self.asked.rule)}"),) if self.asked.rule else ()
        return (("y", "yes, once"), *always, ("n", "no"), ("esc", "no, and stop"))


_BAR: Final = 6


class Status(Struct, frozen=True):
    """What the status line says. `used`, `window` and `fold_at` are in tokens; `cached` is the share of input tokens from the cache.

    `activity` says what the agent does now; empty if it waits for input. `own` is the line of the user's script, in place of the others.
    """

    model: str = ""
    profile: str = ""
    mode: str = ""
    used: int = 0
    window: int = 0
    fold_at: int | None = None
    cost_usd: float | None = 0.0
    cached: float | None = None
    processes: int = 0
    agents: int = 0
    queued: int = 0
    activity: str = ""
    hint: str = ""
    own: str = ""


def status_line(status: Status, look: ScreenLook) -> str:
    """Return the status in one line without a newline. What does not fit is left out, the least important first."""
    parts = [part for part in _parts(status, look) if part]
    separator = ", " if look.spoken else " · "
    while len(parts) > 1 and StatusText(separator.join(parts)).cell_len > look.width - 1:
        parts.pop()
    line = StatusText(plain(separator.join(parts)), look.style("warning" if _is_full(status) else "dim"))
    line.truncate(max(1, look.width - 1))
    return painted(line, look, look.width).rstrip("\n")


def _parts(status: Status, look: ScreenLook) -> list[str]:
    """The parts of the line, the most important first."""
    if status.own:
        return [status.activity or status.hint, status.own]
    return [
        status.activity or status.hint,
        status.model,
        _context(status, look),
        "" if status.cost_usd == 0 else cost_text(status.cost_usd),
        status.mode,
        f"{status.queued} queued" if status.queued else "",
        _counted(status.processes, "process", "processes"),
        _counted(status.agents, "sub-agent", "sub-agents"),
        _until_fold(status),
        "" if status.cached is None else f"cache {status.cached:.0%}",
        status.profile,
    ]


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}" if number else ""


def _context(status: Status, look: ScreenLook) -> str:
    if not status.window:
        return ""
    share = min(1.0, status.used / status.window)
    filled = round(share * _BAR)
    bar = "" if look.spoken else f"{look.symbols.full * filled}{look.symbols.empty * (_BAR - filled)} "
    return f"{bar}{percent_of(min(status.used, status.window), status.window)}% of {short(status.window)}"


def _until_fold(status: Status) -> str:
    if status.fold_at is None:
        return ""
    return "fold due" if _is_full(status) else f"fold in {short(status.fold_at - status.used)}"


def _is_full(status: Status) -> bool:
    return status.fold_at is not None and status.used >= status.fold_at
