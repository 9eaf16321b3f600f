"""From the contents that the Gemini API takes to facts of ours: parts of text, thoughts, calls and responses."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.core.events import Body, ContextStated, ForeignNoted, ModelReplied, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Content, Image, Part, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import digest_of
from palimpsest.foreign.reading.parts import blob_part, call_of
from palimpsest.foreign.reading.transcript import Answer, Made, Told
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text

# The first words that the program says to its model, in its newer and its older versions.
_SETUP = ("<session_context>", "This is the Gemini CLI")
_ROLES = {"user", "model", "function"}


def contents_in(document: object) -> list[object] | None:
    """The contents of a checkpoint; nothing if a document holds something else."""
    if is_json(document):
        document = next((value for name in ("clientHistory", "history") if _fits(value := document.get(name))), None)
    return list(document) if isinstance(document, list) and _fits(document) else None


def _fits(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(is_json(each) and text(each, "role") in _ROLES and isinstance(each.get("parts"), list) for each in value[:8])
    )


def parts_in(content: object) -> list[Json]:
    """The parts of what Gemini calls a list of parts: a text, a part, or a list of either."""
    listed = content if isinstance(content, list) else [content]
    return [each if is_json(each) else {"text": each} for each in listed if is_json(each) or (isinstance(each, str) and each)]


def words_in(content: object) -> str:
    """The text of some parts, without thoughts."""
    return "".join(text(part, "text") for part in parts_in(content) if part.get("thought") is not True)


def media_in(content: object, blobs: Blobs) -> Iterator[Part]:
    """Pictures and files among some parts."""
    for part in parts_in(content):
        inline, link = table_at(part, "inlineData"), table_at(part, "fileData")
        if inline and (found := blob_part(text(inline, "mimeType"), text(inline, "data"), blobs)) is not None:
            yield found
        if text(link, "fileUri").startswith(("http://", "https://")) and text(link, "mimeType").startswith("image/"):
            yield Image(text(link, "mimeType"), url=text(link, "fileUri"))


def response_text(response: Json) -> str:
    """What a tool gave back, as words."""
    found = response.get("output", response.get("error", response.get("content")))
    return found if isinstance(found, str) else dump(response) if response else ""


def is_setup(words: str) -> bool:
    """Whether the program speaks, not a person: it tells its model where it is."""
    return words.lstrip().startswith(_SETUP)


class _Open(NamedTuple):
    """A call without a response: its id if it has one, its tool, and the reply and the part of it that it is."""

    call_id: str
    tool: str
    key: str
    number: int


class Contents:
    """One pass over the contents of a checkpoint."""

    def __init__(self, blobs: Blobs, at: int) -> None:
        self._blobs = blobs
        self._at = at
        # Calls of older versions have no ids: a response answers the first open call of its tool.
        self._open: list[_Open] = []

    def take(self, index: int, content: object) -> Iterator[Told]:
        """The facts of one content."""
        key = f"{index}-{digest_of(msgspec.json.encode(content))}"
        if not is_json(content):
            yield Told(ForeignNoted("gemini", (key,)), self._at, key, line=Raw(msgspec.json.encode(content)))
        elif text(content, "role") == "model":
            yield Told(call_of("gemini"), self._at, f"{key}/call")
            parts = tuple(self._parts(content))
            self._open += [_Open(part.call_id, part.tool, key, number) for number, part in enumerate(parts) if isinstance(part, ToolCall)]
            stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
            yield Told(ModelReplied(parts, stop=stop), self._at, key)
        else:
            yield from self._given(content, key)

    def _parts(self, content: Json) -> Iterator[Content]:
        for part in parts_in(content.get("parts")):
            call, said, sealed = table_at(part, "functionCall"), text(part, "text"), text(part, "thoughtSignature")
            seal = Signature("google", "gemini", sealed) if sealed else None
            if part.get("thought") is True:
                yield Thinking(said, seal, "digest" if said else "sealed")
                continue
            if seal is not None:
                yield Thinking("", seal, "sealed")
            if said.strip():
                yield Text(said, "assistant")
            if call:
                yield ToolCall(text(call, "id"), text(call, "name"), dump(table_at(call, "args")))

    def _given(self, content: Json, key: str) -> Iterator[Told]:
        parts = content.get("parts")
        bodies: list[Body | Made] = []
        for part in parts_in(parts):
            response = table_at(part, "functionResponse")
            if response:
                bodies.append(self._returned(response))
        words, pictures = words_in(parts), tuple(media_in(parts, self._blobs))
        if is_setup(words):
            bodies.append(ContextStated((Statement("gemini.setup", words),)))
        elif words.strip() or pictures:
            bodies.append(UserSaid((*((Text(words),) if words.strip() else ()), *pictures)))
        bodies = bodies or [ForeignNoted("gemini", (key,))]
        for place, body in enumerate(bodies, 1 - len(bodies)):
            yield Told(body, self._at, f"{key}/{-place}" if place else key)

    def _returned(self, response: Json) -> ToolReturned | Answer:
        """A result by the id of its call; where that has none, of the oldest open call of that tool."""
        name, answer = text(response, "name"), table_at(response, "response")
        given = text(response, "id")
        found = next((call for call in self._open if (call.call_id == given if given else call.tool == name)), None)
        if found is not None:
            self._open.remove(found)
        said = response_text(answer)
        error = "error" in answer and "output" not in answer
        body = ToolReturned(ToolResult(given or f"lost-{name}", (Text(said),) if said else (), error=error), name)
        return body if given or found is None else Answer(found.key, found.number, body)
