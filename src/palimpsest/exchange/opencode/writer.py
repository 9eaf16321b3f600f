"""Writes the view of a session as a file that `opencode import` takes: what the model sees now, and the prompts that still wait."""

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import groupby
from typing import Literal

import msgspec
from msgspec import structs

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Interrupted, ModeChanged, ModelReplied, Titled, ToolReturned, Usage, UserTyped
from palimpsest.core.items import (
    MODEL_KINDS,
    Content,
    Document,
    Image,
    Item,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    pairs_of,
    seq_of,
    text_of,
)
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.view import shown
from palimpsest.exchange.opencode.rows import INTERRUPTED, SHOWN_AS_TEXT
from palimpsest.exchange.transcript import FileIds, provider_of
from palimpsest.wire.encoding import arguments_object, framed_statement, is_statement
from palimpsest.wire.json_reading import Json
from palimpsest.wire.media import inlined
from palimpsest.wire.repair import valid_call_id

VERSION = "1.18.33"
_AGENT, _PLANNER = "build", "plan"
# OpenCode adds the reminders of its modes to each request by itself.
_ITS_OWN = "mode_reminder "
# As in a request that would begin with the assistant.
_BEGIN_TEXT = "Go on."
_NO_MODEL = "unknown"
# An id begins with its time, 4,096 ids per millisecond, which wraps around.
_ID_BITS, _ID_WRAP = 12, 1 << 48


def opencode_session(log: Log) -> str:
    """The id of an export in OpenCode. Each state of a session has its own, because the program replaces no message that it has."""
    return f"ses_{_opencode_digest(f'{log.session}@{log.tip}', 13)}"


def write_opencode(log: Log, blobs: Blobs, *, cwd: str = "") -> Iterator[bytes]:
    """One chunk: a file in the form of `opencode export`. `cwd` replaces the working directory of the session."""
    writer = _ViewWriter(log, blobs, opencode_session(log), cwd or log.opened.cwd or "/")
    messages = list(writer.messages())
    began = log.reader.opened.at
    titles = [event.body.title for event in log.events() if isinstance(event.body, Titled) and event.body.title]
    info: Json = {
        "id": writer.session,
        "slug": writer.session.removeprefix("ses_")[:12],
        "projectID": "global",
        "directory": writer.cwd,
        "title": titles[-1] if titles else log.session,
        "version": VERSION,
        "time": {"created": began, "updated": max(began, writer.at)},
    }
    yield msgspec.json.format(msgspec.json.encode({"info": info, "messages": messages}), indent=1) + b"\n"


class _ViewWriter:
    """Makes the messages of a view. Each is later than the one before it, because OpenCode orders messages by time."""

    def __init__(self, log: Log, blobs: Blobs, session: str, cwd: str) -> None:
        self.session, self.cwd, self.at = session, cwd, 0
        self._log, self._blobs = log, blobs
        self._model = log.opened.model or log.view.model or _NO_MODEL
        self._items = [item for item in log.view.items if shown(item) is not None and not item.source.startswith(_ITS_OWN)]
        self._modes = [(event.seq, event.body.mode) for event in log.events() if isinstance(event.body, ModeChanged)]
        pairs = list(pairs_of(self._items))
        self._results = {call.id: result for call, result in pairs}
        self._ids = FileIds((item for pair in pairs for item in pair), partial(valid_call_id, rule="any"))
        self._parent = ""
        # Thinking does not begin a conversation: it waits for the rest of the reply, and is left out if the user speaks first.
        self._held: list[Json] = []
        # The last reply in the view, and the size of the view if an edit has changed it since.
        self._last_reply = max((seq_of(item.id) for item in self._items if _speaker(item) == "assistant"), default=-1)
        reported = log.view.reported
        self._size = reported.tokens if reported is not None and reported.seq > self._last_reply else None

    def messages(self) -> Iterator[Json]:
        """All messages, in order."""
        for (seq, kind), items in groupby(self._items, key=lambda item: (seq_of(item.id), _speaker(item))):
            if kind == "tool":
                # Results are in the parts of their calls; a result without a call is sent to no provider.
                continue
            self.at = max(self.at + 1, self._log.event(seq).at)
            if kind == "assistant":
                yield from self._opencode_reply(seq, list(items))
            else:
                yield from self._user([part for item in items for part in self._user_parts(item)], seq)
        for seq in self._log.inbox:
            typed = self._log.event(seq)
            self.at = max(self.at + 1, typed.at)
            contents = typed.body.parts if isinstance(typed.body, UserTyped) else ()
            yield from self._user([part for content in contents for part in self._opencode_part(content)], seq)

    def _agent(self, seq: int) -> str:
        """The agent of OpenCode that works as the session did at an event."""
        mode = next((mode for changed, mode in reversed(self._modes) if changed < seq), "")
        return _PLANNER if mode == _PLANNER else _AGENT

    def _row_id(self, prefix: str, number: int = 0, of: str = "") -> str:
        """The id of the current message, of a part of it, or of a file in the result `of` a call."""
        time = (self.at << _ID_BITS) + number
        return f"{prefix}_{time % _ID_WRAP:012x}{_opencode_digest(f'{self.session} {time} {of}', 7)}"

    def _opencode_message(self, info: Json, parts: Sequence[Json]) -> Json:
        message = self._row_id("msg")
        names: Json = {"sessionID": self.session, "messageID": message}
        rows = [{"id": self._row_id("prt", number), **names, **part} for number, part in enumerate(parts, 1)]
        return {"info": {"id": message, "sessionID": self.session, **info}, "parts": rows}

    def _user(self, parts: Sequence[Json], seq: int) -> Iterator[Json]:
        if parts:
            self._held = []
            self._parent = self._row_id("msg")
            provider, model = _provider_and_model(self._model)
            model_field = {"providerID": provider, "modelID": model}
            yield self._opencode_message(
                {"role": "user", "time": {"created": self.at}, "agent": self._agent(seq), "model": model_field}, parts
            )

    def _user_parts(self, item: Item) -> Iterator[Json]:
        content = shown(item)
        for part in self._opencode_part(content) if content is not None else ():
            # Whatever the user did not type is not a prompt.
            yield part if item.kind in {"user", "steering"} or part["type"] == "file" else {**part, "synthetic": True}

    def _opencode_part(self, content: Content) -> Iterator[Json]:
        """The part for a content of the user's side."""
        file = self._file(content)
        if file is not None:
            yield file
            return
        said = text_of(content)
        if isinstance(content, Text) and is_statement(content):
            # A conversation of OpenCode has no other role for what the operator states.
            said = framed_statement(said) if said.strip() else ""
        if said.strip():
            yield {"type": "text", "text": said}

    def _file(self, content: Content) -> Json | None:
        """An image or document; None if it is a text, if OpenCode would not attach it, or if its blob is lost."""
        if not isinstance(content, Image | Document) or content.media in SHOWN_AS_TEXT:
            return None
        try:
            url = inlined(content, self._blobs.get).url
        except PalimpsestError:
            return None
        name = {"filename": content.name} if isinstance(content, Document) and content.name else {}
        return {"type": "file", "mime": content.media, "url": url, **name} if url else None

    def _opencode_reply(self, seq: int, items: Sequence[Item]) -> Iterator[Json]:
        body = self._log.event(seq).body
        contents = [(item, content) for item in items if (content := shown(item)) is not None]
        sealed = next((content.signature.model for _, content in contents if isinstance(content, Thinking) and content.signature), "")
        if isinstance(body, ModelReplied | Interrupted) and body.model:
            self._model = body.model
        parts = [*self._held, *(part for item, content in contents for part in self._reply_part(item, content))]
        self._held = parts if not self._parent and all(part["type"] == "reasoning" for part in parts) else []
        if self._held or not parts:
            return
        if not self._parent:
            # A conversation that begins with the assistant is refused by the provider.
            yield from self._user([{"type": "text", "text": _BEGIN_TEXT, "synthetic": True}], seq)
            self.at += 1
        provider, model = _provider_and_model(sealed or self._model)
        usage = body.usage if isinstance(body, ModelReplied) else Usage()
        fields: Json = {
            "role": "assistant",
            "time": {"created": self.at, "completed": self.at},
            "parentID": self._parent,
            "modelID": model,
            "providerID": provider,
            "mode": self._agent(seq),
            "agent": self._agent(seq),
            "path": {"cwd": self.cwd, "root": self.cwd},
            "cost": 0,
            "tokens": _tokens(Usage(self._size) if self._size is not None and seq == self._last_reply else usage),
            "finish": "tool-calls" if any(part["type"] == "tool" for part in parts) else "stop",
        }
        yield self._opencode_message(fields, parts)

    def _reply_part(self, item: Item, content: Content) -> Iterator[Json]:
        match content:
            case ToolCall():
                yield self._tool(item, content)
            case Thinking() | Opaque(provider="anthropic"):
                yield from _reasoning(content, self.at)
            case _:
                said = text_of(content)
                if said.strip():
                    yield {"type": "text", "text": said, "time": {"start": self.at, "end": self.at}}

    def _tool(self, item: Item, call: ToolCall) -> Json:
        """A call with its result as the view shows it; a call without one was interrupted."""
        state: Json = {"input": msgspec.json.decode(arguments_object(call)), "time": {"start": self.at, "end": self.at}}
        answer = self._results.get(item.id)
        result = shown(answer) if answer is not None else None
        if not isinstance(result, ToolResult):
            state |= {"status": "error", "error": INTERRUPTED}
        elif result.error:
            state |= {"status": "error", "error": text_of(result) or "error"}
        else:
            state |= {"status": "completed", "title": "", "metadata": self._metadata(answer), **self._output(result)}
        return {"type": "tool", "callID": self._ids.of(item.id, call.call_id), "tool": call.tool or "unknown", "state": state}

    def _metadata(self, answer: Item | None) -> Json:
        body = self._log.event(seq_of(answer.id)).body if answer is not None else None
        return {"exit": body.exit} if isinstance(body, ToolReturned) and body.exit is not None else {}

    def _output(self, result: ToolResult) -> Json:
        files = [(part, self._file(part)) for part in result.parts]
        texts = structs.replace(result, parts=tuple(part for part, file in files if file is None))
        rows = [
            {"id": self._row_id("prt", number, result.call_id), "sessionID": self.session, "messageID": self._row_id("msg"), **file}
            for number, (_, file) in enumerate(files)
            if file is not None
        ]
        return {"output": text_of(texts), **({"attachments": rows} if rows else {})}


def _speaker(item: Item) -> Literal["user", "assistant", "tool"]:
    content = item.content
    if isinstance(content, ToolResult):
        return "tool"
    is_of_model = content.role == "assistant" if isinstance(content, Text) else item.kind in MODEL_KINDS
    return "assistant" if is_of_model else "user"


def _reasoning(content: Thinking | Opaque, at: int) -> Iterator[Json]:
    """Thinking with what its provider sealed of it, where OpenCode keeps it."""
    metadata: Json = {}
    if isinstance(content, Opaque):
        data = msgspec.json.decode(content.data)
        redacted = data.get("data") if isinstance(data, dict) and data.get("type") == "redacted_thinking" else None
        metadata = {"anthropic": {"redactedData": redacted}} if redacted else {}
    elif content.signature is not None and content.signature.provider == "anthropic":
        metadata = {"anthropic": {"signature": content.signature.data}}
    elif content.signature is not None and content.signature.provider == "openai":
        metadata = {"openai": {"itemId": content.ref, "reasoningEncryptedContent": content.signature.data}}
    thought = content.text if isinstance(content, Thinking) else ""
    if metadata or thought.strip():
        yield {"type": "reasoning", "text": thought, "time": {"start": at, "end": at}, **({"metadata": metadata} if metadata else {})}


def _tokens(usage: Usage) -> Json:
    cache = {"read": usage.cache_read, "write": usage.cache_write + usage.cache_write_long}
    output = max(0, usage.output - usage.reasoning)
    return {"total": usage.total, "input": usage.input, "output": output, "reasoning": usage.reasoning, "cache": cache}


def _provider_and_model(name: str) -> tuple[str, str]:
    """The provider and the name of a model as OpenCode calls them; one that is not known is of OpenCode itself."""
    provider, slash, model = name.partition("/")
    if slash:
        return provider, model
    return {"anthropic": "anthropic", "openai": "openai"}.get(provider_of(name), "opencode"), name


def _opencode_digest(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
