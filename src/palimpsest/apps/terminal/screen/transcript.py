"""Turns the events and stream deltas of a session into blocks: those that are final, and those that still change."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from palimpsest.apps.terminal.screen.blocks import Block, FoldBlock, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock, UserBlock
from palimpsest.apps.terminal.screen.notices import notice_of
from palimpsest.apps.terminal.screen.streaming import StreamedText
from palimpsest.core.events import Event, Interrupted, ModelReplied, ToolRefused, ToolReturned, ToolStarted, UserSaid, ViewEdited
from palimpsest.core.events.calls import TURN
from palimpsest.core.events.deltas import CallDelta, TextDelta, ThinkingDelta
from palimpsest.core.items import Content, Document, Image, Part, Text, Thinking, ToolCall, text_of
from palimpsest.engine.loop.feed import Piece

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
