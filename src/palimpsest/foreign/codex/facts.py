"""Facts in the making: a reply waits for its tokens and results, and every fact for the lines that belong to it."""

import re
from collections.abc import Iterator

from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Document, Image, Opaque, Piece, Text, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.history import MadeEdit
from palimpsest.foreign.codex.lines import kept_lines
from palimpsest.foreign.reading.deferred import ImportContext
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, number

_EXIT = re.compile(r"(?:^Exit code: |^Process exited with code |^exit code: )(-?\d+)", re.MULTILINE)
_EXIT_JSON = re.compile(r'"exit_code":\s*(-?\d+)')
_TOOK = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
_PATCHED = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)(?=\\n|\n|$)")
_HEADER = 400


class Fact:
    """A fact that is not told yet, and the lines it comes from."""

    def __init__(self, key: str, at: int, body: Body | None = None, contents: tuple[Content, ...] = ()) -> None:
        self.key = key
        self.at = at
        self.body = body
        self.contents = contents
        self.lines: list[tuple[int, bytes]] = []
        self.after = ""

    def told(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The fact, whole."""
        if self.body is not None:
            yield ReadEvent(self.body, self.at, self.key, self.after, kept_lines(self.lines, self.contents, blobs))


class Reply(Fact):
    """What a model replied to one call. It is settled once a result or its tokens have come: what the model says then is a new reply."""

    def __init__(self, key: str, at: int, asked: int, model: str) -> None:
        super().__init__(key, at)
        self.asked = asked
        self.model = model
        self.parts: list[Content] = []
        self.usage: Usage | None = None
        self.message = ""
        # Whether the turn had a reply before this one.
        self.settled = self.late = False
        self.purpose = "turn"
        self.following: list[Fact] = []
        self.answered: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether its tokens and all its results have come. Words alone may still turn out to be a summary."""
        return (
            self.usage is not None
            and bool(self.answered)
            and self.answered >= {part.call_id for part in self.parts if isinstance(part, ToolCall)}
        )

    @property
    def said(self) -> str:
        """The words of the reply."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    def told(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The call, the reply, and what came back for it."""
        parts = tuple(self.parts)
        stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        replied = ModelReplied(parts, usage=self.usage or Usage(), stop=stop, model=self.model, message=self.message, purpose=self.purpose)
        yield ReadEvent(CallStarted(self.model, "responses", purpose=self.purpose), self.asked, f"{self.key}c")
        yield ReadEvent(replied, self.at, self.key, "", kept_lines(self.lines, parts, blobs))
        for fact in self.following:
            yield from fact.told(blobs)


class Folded(Fact):
    """A fold that waits for the number of tokens it left."""

    def __init__(self, key: str, at: int, edit: MadeEdit, contents: tuple[Content, ...], frame: ViewEdited) -> None:
        super().__init__(key, at, None, contents)
        self.edit = edit
        self.frame = frame
        self.tokens = 0

    def told(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The fold, made when its items have ids."""
        edit, frame, tokens = self.edit, self.frame, self.tokens

        def body(context: ImportContext) -> Body:
            return ViewEdited(
                (edit(context),), by=frame.by, why=frame.why, moment=frame.moment, tokens_before=frame.tokens_before, tokens_after=tokens
            )

        yield ReadEvent(body, self.at, self.key, "", kept_lines(self.lines, self.contents, blobs))


class Aside(Fact):
    """A call that left no item: its purpose shows only in what follows it."""

    def __init__(self, key: str, at: int, model: str, usage: Usage) -> None:
        super().__init__(key, at)
        self.model = model
        self.usage = usage
        self.purpose = "turn"

    def told(self, blobs: Blobs) -> Iterator[ReadEvent]:
        """The call, and what it cost."""
        # A reply without items is no part of the conversation, whatever it was asked for.
        purpose = "other" if self.purpose == TURN else self.purpose
        self.body = ModelReplied((), usage=self.usage, model=self.model, purpose=purpose)
        yield from super().told(blobs)


def said_by(pieces: tuple[Piece, ...], *, steering: bool) -> Body:
    """The user's message."""
    parts = tuple(piece.content for piece in pieces if isinstance(piece.content, Text | Image | Document | Opaque))
    return UserSaid(parts, steering=steering)


def stated_by(pieces: tuple[Piece, ...]) -> Body:
    """Context that a program put beside the user's messages."""
    texts = ((piece.source, piece.content) for piece in pieces if isinstance(piece.content, Text))
    return ContextStated(tuple(Statement(source, said.text, said.role, ref=said.ref) for source, said in texts))


def returned_by(result: ToolResult, tool: str, paths: tuple[str, ...]) -> Body:
    """A result, with the exit code and the time that its header tells."""
    first = result.parts[0] if result.parts else None
    if not isinstance(first, Text):
        return ToolReturned(result, tool, paths=paths)
    took = _TOOK.search(first.text[:_HEADER])
    return ToolReturned(result, tool, exit_of(first.text), paths, int(float(took[1]) * 1000) if took is not None else 0)


def exit_of(said: str) -> int | None:
    """The exit code that the header of a result tells, if it has one."""
    pattern, head = (_EXIT_JSON, said[-_HEADER:]) if said.startswith("{") else (_EXIT, said[:_HEADER])
    found = pattern.search(head)
    return int(found[1]) if found is not None else None


def patched(args: str) -> tuple[str, ...]:
    """The files that a patch names."""
    if "*** " not in args:
        return ()
    return tuple(dict.fromkeys(path.strip() for path in _PATCHED.findall(args)))


def usage_of(table: Json) -> Usage:
    """Tokens as Codex counts them: what was cached is part of the input, and what was thought part of the output."""
    cached, written = number(table, "cached_input_tokens"), number(table, "cache_write_input_tokens")
    fresh = max(0, number(table, "input_tokens") - cached - written)
    return Usage(fresh, cached, written, output=number(table, "output_tokens"), reasoning=number(table, "reasoning_output_tokens"))
