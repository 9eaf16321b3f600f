"""Converts contents of the Gemini API: parts of text, thoughts, calls and responses."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from palimpsest.core.events import Body, ContextStated, ForeignNoted, ModelReplied, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Content, Image, Part, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import digest_of, raw_of
from palimpsest.foreign.reading.parts import call_of
from palimpsest.foreign.reading.transcript import DeferredBody, DeferredResult, ReadEvent
from palimpsest.wire.encoding.media import blob_part
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text

# Starts of the setup message, in newer and older versions.
_SETUP = ("<session_context>", "This is the Gemini CLI")
_ROLES = {"user", "model", "function"}


def contents_in(document: object) -> list[object] | None:
    """The contents of a checkpoint; None if a document is something else."""
    if is_json(document):
        document = next((value for name in ("clientHistory", "history") if _is_content_list(value := document.get(name))), None)
    return list(document) if isinstance(document, list) and _is_content_list(document) else None


def _is_content_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(is_json(each) and text(each, "role") in _ROLES and isinstance(each.get("parts"), list) for each in value[:8])
    )


def parts_in(content: object) -> list[Json]:
    """The parts of a Gemini part list: a text, a part, or a list of either."""
    part_list = content if isinstance(content, list) else [content]
    return [each if is_json(each) else {"text": each} for each in part_list if is_json(each) or (isinstance(each, str) and each)]


def text_in(content: object) -> str:
    """The text of some parts, without thoughts."""
    return "".join(text(part, "text") for part in parts_in(content) if part.get("thought") is not True)


def media_in(content: object, blobs: Blobs) -> Iterator[Part]:
    """The images and files among some parts."""
    for part in parts_in(content):
        inline, link = table_at(part, "inlineData"), table_at(part, "fileData")
        if inline and (found := blob_part(text(inline, "mimeType"), text(inline, "data"), blobs)) is not None:
            yield found
        if text(link, "fileUri").startswith(("http://", "https://")) and text(link, "mimeType").startswith("image/"):
            yield Image(text(link, "mimeType"), url=text(link, "fileUri"))


def response_text(response: Json) -> str:
    """The output of a tool as text."""
    found = response.get("output", response.get("error", response.get("content")))
    return found if isinstance(found, str) else dump(response) if response else ""


def is_setup(message_text: str) -> bool:
    """Whether a message was written by the program to describe its environment, and not by a person."""
    return message_text.lstrip().startswith(_SETUP)


class _UnansweredCall(NamedTuple):
    """A call without a response: its id if it has one, its tool, and the key and part index of its reply."""

    call_id: str
    tool: str
    key: str
    number: int


class ContentReader:
    """One pass over the contents of a checkpoint."""

    def __init__(self, blobs: Blobs, at: int) -> None:
        self._blobs = blobs
        self._at = at
        # Calls of older versions have no ids: a response answers the first open call of its tool.
        self._unanswered: list[_UnansweredCall] = []

    def events_of(self, index: int, content: object) -> Iterator[ReadEvent]:
        """The events of one content."""
        key = f"{index}-{digest_of(msgspec.json.encode(content))}"
        if not is_json(content):
            yield ReadEvent(ForeignNoted("gemini", (key,)), self._at, key, line=raw_of(content))
        elif text(content, "role") == "model":
            yield ReadEvent(call_of("gemini"), self._at, f"{key}/call")
            parts = tuple(self._parts(content))
            self._unanswered += [
                _UnansweredCall(part.call_id, part.tool, key, number) for number, part in enumerate(parts) if isinstance(part, ToolCall)
            ]
            stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
            yield ReadEvent(ModelReplied(parts, stop=stop), self._at, key)
        else:
            yield from self._user_events(content, key)

    def _parts(self, content: Json) -> Iterator[Content]:
        for part in parts_in(content.get("parts")):
            call, part_text, signature = table_at(part, "functionCall"), text(part, "text"), text(part, "thoughtSignature")
            seal = Signature("google", "gemini", signature) if signature else None
            if part.get("thought") is True:
                yield Thinking(part_text, seal, "digest" if part_text else "sealed")
                continue
            if seal is not None:
                yield Thinking("", seal, "sealed")
            if part_text.strip():
                yield Text(part_text, "assistant")
            if call:
                yield ToolCall(text(call, "id"), text(call, "name"), dump(table_at(call, "args")))

    def _user_events(self, content: Json, key: str) -> Iterator[ReadEvent]:
        parts = content.get("parts")
        responses = (table_at(part, "functionResponse") for part in parts_in(parts))
        bodies: list[Body | DeferredBody] = [self._result(response) for response in responses if response]
        message_text, media = text_in(parts), tuple(media_in(parts, self._blobs))
        if is_setup(message_text):
            bodies.append(ContextStated((Statement("gemini.setup", message_text),)))
        elif message_text.strip() or media:
            bodies.append(UserSaid((*((Text(message_text),) if message_text.strip() else ()), *media)))
        bodies = bodies or [ForeignNoted("gemini", (key,))]
        for index, body in enumerate(bodies, 1 - len(bodies)):
            yield ReadEvent(body, self._at, f"{key}/{-index}" if index else key)

    def _result(self, response: Json) -> ToolReturned | DeferredResult:
        """A result, matched by call id, or else with the oldest open call of that tool."""
        name, output = text(response, "name"), table_at(response, "response")
        call_id = text(response, "id")
        found = next((call for call in self._unanswered if (call.call_id == call_id if call_id else call.tool == name)), None)
        if found is not None:
            self._unanswered.remove(found)
        part_text = response_text(output)
        error = "error" in output and "output" not in output
        body = ToolReturned(ToolResult(call_id or f"lost-{name}", (Text(part_text),) if part_text else (), error=error), name)
        return body if call_id or found is None else DeferredResult(found.key, found.number, body)
