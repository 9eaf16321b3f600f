"""A provider with scripted replies, for tests, examples and offline work."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Self, TypeAlias

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from palimpsest.core.deltas import Delta, UsageDelta, deltas_of
from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text, Thinking, ToolCall, text_of
from palimpsest.core.ports import Sendable


class BrokenReply(Struct, frozen=True):
    """A reply whose stream raises `error` after `after` deltas."""

    reply: str | ModelReplied
    after: int
    error: Exception = field(default_factory=lambda: ConnectionLost("the connection was lost", where="scripted"))


class StalledReply(Struct, frozen=True):
    """A reply whose stream pauses after `after` deltas: it sets `reached` and continues when `released` is set."""

    reply: str | ModelReplied
    after: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


ScriptedAnswer: TypeAlias = str | ModelReplied | Exception | BrokenReply | StalledReply
ScriptedReply: TypeAlias = ScriptedAnswer | Callable[[Sendable], ScriptedAnswer]

_BYTES_PER_TOKEN = 4


class _ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    args: Raw = Raw(b"{}")


class _ScriptedLine(Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    when: str = ""
    model: str = ""
    calls: tuple[_ScriptedCall, ...] = ()
    thinking: str = ""


_lines = msgspec.json.Decoder(str | _ScriptedLine)


def _scripted_line(line: str, number: int, path: Path) -> tuple[str, str | ModelReplied]:
    """Return the reply of a line, after the text that a request must contain to get it; that is empty for any request."""
    try:
        given = _lines.decode(line)
    except msgspec.DecodeError as error:
        raise BadInput(f"line {number} is no scripted reply ({error})", where=str(path)) from error
    if isinstance(given, str):
        return "", given
    calls = (ToolCall(f"call_{number}_{index}", call.tool, bytes(call.args).decode()) for index, call in enumerate(given.calls, 1))
    text = (Text(given.text, "assistant"),) if given.text else ()
    return given.when, ModelReplied((*((Thinking(given.thinking),) if given.thinking else ()), *text, *calls), model=given.model)


class Scripted:
    """Returns its replies in order and records the requests; an exception among the replies is raised.

    Each stream starts with the usage of the prompt; texts, thinking and arguments follow in fragments of `piece` characters.
    A reply without usage gets an estimate: the prefix that a request shares with the previous one counts as read from the cache.
    """

    def __init__(self, *replies: ScriptedReply, model: str = "scripted", piece: int = 16) -> None:
        self._replies = replies
        self._model = model
        self._piece = piece
        self.requests: list[Sendable] = []

    @property
    def remaining(self) -> int:
        """Number of unused replies."""
        return max(0, len(self._replies) - len(self.requests))

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the deltas of the next reply, then the complete reply. Raises `ProviderError` if no reply is left."""
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._replies):
            raise ProviderError(
                f"the script has {len(self._replies)} replies and this is request {number + 1}; give it one more", where=self._model
            )
        reply = self._replies[number]
        answer = reply(request) if callable(reply) else reply
        if isinstance(answer, Exception):
            raise answer
        whole = self._finish(answer.reply if isinstance(answer, BrokenReply | StalledReply) else answer, number)
        prompt = replace(whole.usage, output=0, reasoning=0)
        deltas: list[Delta] = [*((UsageDelta(prompt),) if prompt.prompt else ()), *deltas_of(whole.parts, self._piece)]
        cut = min(answer.after, len(deltas)) if isinstance(answer, BrokenReply | StalledReply) else len(deltas)
        for delta in deltas[:cut]:
            yield delta
        if isinstance(answer, BrokenReply):
            raise answer.error
        if isinstance(answer, StalledReply):
            answer.reached.set()
            await answer.released.wait()
        for delta in deltas[cut:]:
            yield delta
        yield whole

    def _finish(self, answer: str | ModelReplied, number: int) -> ModelReplied:
        whole = ModelReplied(parts=(Text(answer, role="assistant"),)) if isinstance(answer, str) else answer
        calls = any(isinstance(part, ToolCall) for part in whole.parts)
        return replace(
            whole,
            usage=whole.usage if whole.usage != Usage() else self._estimated_usage(whole, number),
            stop=whole.stop or ("tool_use" if calls else "end_turn"),
            model=whole.model or self._model,
            message=whole.message or f"scripted-{number + 1}",
        )

    def _estimated_usage(self, whole: ModelReplied, number: int) -> Usage:
        body = self.requests[number].body
        shared = _shared_prefix(self.requests[number - 1].body, body) if number else 0
        written = sum(len(text_of(part).encode()) for part in whole.parts)
        read = shared // _BYTES_PER_TOKEN
        return Usage(input=_tokens(len(body)) - read, cache_read=read, output=_tokens(written))


class RoutedScripts:
    """Several scripts: a request is answered by the first one whose text it contains, else by `other`.

    For agents that work side by side, whose requests come in any order.
    """

    def __init__(self, scripts: Mapping[str, Scripted], other: Scripted) -> None:
        self._scripts = dict(scripts)
        self._other = other

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return a provider with the replies of a file, one JSON value a line.

        A reply is a text, or an object such as `{"text": "…", "calls": [{"tool": "read", "args": {"path": "a.py"}}]}`. With a field `when`
        it is for requests that contain this text only; with a `model`, it is priced as one of that model. Raises `BadInput` if the file
        cannot be read, or a line is neither.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the script cannot be read: {error}", where=str(path)) from error
        replies: dict[str, list[str | ModelReplied]] = {"": []}
        for number, line in enumerate(lines, 1):
            if line.strip():
                when, reply = _scripted_line(line, number, path)
                replies.setdefault(when, []).append(reply)
        other = Scripted(*replies.pop(""))
        return cls({text: Scripted(*found) for text, found in replies.items()}, other)

    def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Return the deltas of the next reply of the script of a request, then the complete reply."""
        script = next((script for text, script in self._scripts.items() if text.encode() in request.body), self._other)
        return script.stream(request)


def _tokens(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)


def _shared_prefix(one: bytes, two: bytes) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == two[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
