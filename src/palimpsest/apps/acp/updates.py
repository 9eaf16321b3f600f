"""Events and stream deltas of a session as updates of the protocol, live or replayed from the log."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, assert_never

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from palimpsest.apps.acp.calls import CODE_KINDS, ShownCall, shown_call
from palimpsest.apps.acp.plans import SessionPlan
from palimpsest.apps.acp.texts import image_block, result_content, text_block, valid
from palimpsest.apps.shown_text import saved_note_line
from palimpsest.core.edits import Fold
from palimpsest.core.events import (
    CallStarted,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    NoteSaved,
    Noticed,
    TaskChanged,
    Titled,
    ToolReturned,
    ToolStarted,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Content, Image, Part, Text, Thinking, ToolCall, text_of
from palimpsest.engine.loop.context import MISSING_PAGE

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
_TURN = "turn"


class SessionUpdates:
    """Turns what happens in one session into updates, in order. `blob` returns the bytes of images of results.

    `old_text` returns the text of a file before it is written; in a replay it is not known.
    """

    def __init__(self, root: Path, blob: Callable[[str], bytes], old_text: Callable[[str], str | None] = lambda _: None) -> None:
        self._root = root
        self._blob = blob
        self._old_text = old_text
        self._is_live = True
        self._streamed: set[type[Content]] = set()
        self._plan = SessionPlan()
        self.open: dict[str, ShownCall] = {}
        """The calls without a result, by id."""

    def live(self, piece: Event | Delta) -> Iterator[Update]:
        """Yield the updates of a piece of the feed. Text that came as deltas is not sent again with its reply."""
        match piece:
            case Event():
                yield from self._event(piece)
            case TextDelta(text=text):
                self._streamed.add(Text)
                if text:
                    yield agent_text(text)
            case ThinkingDelta(text=text):
                self._streamed.add(Thinking)
                if text:
                    yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))
            case CallDelta() | UsageDelta():
                return
            case _:
                assert_never(piece)

    def replayed(self, event: Event) -> Iterator[Update]:
        """Yield the updates of an event of the past, with what the user said."""
        self._streamed.clear()
        self._is_live = False
        try:
            yield from self._said(event.body.parts) if isinstance(event.body, UserSaid) else self._event(event)
        finally:
            self._is_live = True

    def called(self, call: ToolCall) -> ToolCallStart:
        """Return the update that shows a call for the first time, and remember the call until it has a result."""
        shown = shown_call(call, self._root, self._old_text) if self._is_live else shown_call(call, self._root)
        self.open[call.call_id] = shown
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=call.call_id,
            title=shown.title,
            kind=shown.kind,
            status="pending",
            locations=shown.locations or None,
            content=list(shown.diffs) or None,
            raw_input=shown.raw,
        )

    def _event(self, event: Event) -> Iterator[Update]:
        match event.body:
            case CallStarted(purpose="turn"):
                self._streamed.clear()
            case ModelReplied() | Interrupted() as body if body.purpose == _TURN:
                yield from self._reply(body)
            case ToolStarted(call_id=call_id) if self._is_live and call_id in self.open:
                yield ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status="in_progress")
            case ToolReturned() as body:
                yield self._returned(body)
            case TaskChanged() as body:
                if self._plan.take(body):
                    yield self._plan.update()
            case NoteSaved() as body if self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{saved_note_line(body)}]"))
            case Failed(what=what, message=message) if what == MISSING_PAGE and self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{what}: {message}]"))
            case Noticed(text=text) if self._is_live:
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(f"[{text}]"))
            case Titled(title=title):
                yield SessionInfoUpdate(session_update="session_info_update", title=valid(title))
            case ViewEdited() as body if any(isinstance(edit, Fold) for edit in body.edits):
                is_known = body.tokens_before and body.tokens_after
                saving = f": {body.tokens_before:,} → {body.tokens_after:,} tokens" if is_known else ""
                line = f"[The context was folded{saving}; `pal audit last` shows it, `pal undo last` takes it back.]"
                yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(line))
            case _:
                return

    def _said(self, parts: tuple[Part, ...]) -> Iterator[Update]:
        for part in parts:
            image = image_block(part, self._blob) if isinstance(part, Image) else None
            yield UserMessageChunk(session_update="user_message_chunk", content=image or text_block(text_of(part)))

    def _reply(self, body: ModelReplied | Interrupted) -> Iterator[Update]:
        for part in body.parts:
            match part:
                case Text(text=text) if text and Text not in self._streamed:
                    yield agent_text(text)
                case Thinking(text=text) if text and Thinking not in self._streamed:
                    yield AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))
                # The calls of a reply that was cut off were never run.
                case ToolCall() if isinstance(body, ModelReplied):
                    yield self.called(part)
                case _:
                    continue
        self._streamed.clear()

    def _returned(self, body: ToolReturned) -> ToolCallProgress:
        shown, error = self.open.pop(body.result.call_id, None), body.result.error
        code = shown is None or shown.kind in CODE_KINDS
        # The diff of a change that worked says more than the line that confirms it; a question may have replaced it meanwhile.
        diffs = [] if shown is None or error else shown.diffs
        return ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=body.result.call_id,
            status="failed" if error else "completed",
            content=[*(diffs or result_content(body.result.parts, self._blob, code=code))],
        )


def agent_text(text: str) -> AgentMessageChunk:
    """Return a text of the agent."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))
