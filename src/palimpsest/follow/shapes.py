"""Shapes of message lists (Messages, Responses, Chat Completions), messages read as contents and back, and snapshots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Content, Document, Form, Image, Item, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.core.view import speaker
from palimpsest.wire.anthropic import decode_block
from palimpsest.wire.encoding import framed_statement, is_statement
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text
from palimpsest.wire.media import blob_part, linked_part
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.reply import text_fallback
from palimpsest.wire.responses import decode_item
from palimpsest.wire.rules import ANTHROPIC_BLOCKS, RESPONSES_ITEMS, RESPONSES_PARTS

# A field of a message and the number of an entry in it; the number is -1 if the field is a text.
At: TypeAlias = tuple[str, int]
WHOLE: Final[At] = ("", -1)
"""The place of a content that is the message itself, such as a tool result of Chat Completions."""
Side: TypeAlias = Literal["model", "user", "system"]


class PartRead(NamedTuple):
    """A content of a message, where it stands in the message, and who says it."""

    at: At
    content: Content
    side: Side


class MessageShape(Protocol):
    """One shape of messages, for one model."""

    @property
    def wire(self) -> WireName:
        """The wire on which messages of this shape are sent."""
        ...

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message, in order; texts that are empty are left out."""
        ...

    def written(self, entry: object, content: Content) -> object:
        """Return an entry of a message, or a whole message, with the text of another content; all else in it stays."""
        ...

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other values of the fields that hold its contents."""
        ...

    def made(self, item: Item) -> Json:
        """Return a message for an item that no message of the owner holds."""
        ...

    def replies(self, response: Json) -> list[Json]:
        """Return the messages that a response of the provider adds to the list."""
        ...


class ShapeParts:
    """What reading needs in every shape: the model whose state opaque parts are, and the store of images and documents."""

    def __init__(self, card: ModelCard, blobs: Blobs) -> None:
        self.card = card
        self.blobs = blobs

    def opaque(self, entry: object, ref: str = "") -> Opaque:
        """Return an entry that only its provider understands."""
        data: Json = entry if is_json(entry) else {"type": "unknown", "value": entry}
        return Opaque(self.card.provider, self.card.name, dump(data), text_fallback(data), ref)


def side_of(role: str) -> Side:
    """Return who speaks in a role."""
    return "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"


def part_of(content: Content) -> Part:
    """Return a content as a part of a user message or a result; a call or a result inside of one becomes its text."""
    return content if isinstance(content, Text | Image | Document | Opaque) else Text(text_of(content))


def rebuilt(shape: MessageShape, raw: object, plain: Json, kept: Sequence[tuple[At, Content | None]]) -> object:
    """Return a message with some of its contents; a content of `None` stays as it is, and the same object if it is one of the owner's."""
    if any(at == WHOLE for at, _ in kept):
        replaced = next((content for _, content in kept if content is not None), None)
        return raw if replaced is None else shape.written(plain, replaced)
    source = raw if is_json(raw) else plain
    fields: dict[str, object] = {}
    for (field, index), content in kept:
        whole = plain[field]
        if index < 0 or not isinstance(whole, list):
            fields[field] = whole if content is None else shape.written(whole, content)
            continue
        given = source[field]
        entry = given[index] if isinstance(given, list) else whole[index]
        entries = fields.setdefault(field, [])
        if isinstance(entries, list):
            entries.append(entry if content is None else shape.written(whole[index], content))
    return shape.framed(source, fields)


def call_arguments(call: ToolCall) -> object:
    """Return the arguments of a call as a value; the text itself if it is no JSON."""
    try:
        value: object = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"text": call.args}
    return value


def result_text(result: ToolResult) -> str:
    """Return the text of a result; images in it become a word about them."""
    return text_of(result)


_THINKING: Final = ("reasoning_content", "reasoning", "reasoning_text")
_FIELDS: Final = frozenset({"content", "tool_calls", "refusal", *_THINKING})
_ROLES: Final[dict[str, Role]] = {"assistant": "assistant", "system": "system", "developer": "developer"}


class ChatShape(ShapeParts):
    """Messages with a role, a content and tool calls; a tool result is a message."""

    wire: WireName = "chat"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message: reasoning, texts and media, then calls."""
        name = text(message, "role")
        if name == "tool":
            parts = tuple(part_of(found) for _, found in self._shapes_contents(message, "user"))
            return [PartRead(WHOLE, ToolResult(text(message, "tool_call_id"), parts), "user")]
        if name == "function":
            return [PartRead(WHOLE, self.opaque(message), "user")]
        side = side_of(name)
        found: list[PartRead] = []
        if side == "model":
            found += [PartRead((field, -1), Thinking(text(message, field)), side) for field in _THINKING if text(message, field)]
        found += [
            PartRead(("content", index), content, side) for index, content in self._shapes_contents(message, _ROLES.get(name, "user"))
        ]
        if side == "model":
            if text(message, "refusal"):
                found.append(PartRead(("refusal", -1), Text(text(message, "refusal"), "assistant"), side))
            calls = message.get("tool_calls")
            entries = calls if isinstance(calls, list) else []
            found += [PartRead(("tool_calls", index), self._shapes_call(entry), side) for index, entry in enumerate(entries)]
        return found

    def _shapes_call(self, entry: object) -> Content:
        if not is_json(entry):
            return self.opaque(entry)
        free = is_json(entry.get("custom"))
        function = table_at(entry, "custom" if free else "function")
        given = function.get("input" if free else "arguments")
        args = given if isinstance(given, str) else dump(given or {})
        return ToolCall(text(entry, "id"), text(function, "name"), args or "{}", form="free" if free else "json")

    def _shapes_contents(self, message: Json, role: Role) -> list[tuple[int, Part]]:
        content = message.get("content")
        if isinstance(content, str):
            return [(-1, Text(content, role))] if content else []
        entries = content if isinstance(content, list) else []
        return [(index, found) for index, entry in enumerate(entries) if (found := self._shapes_part(entry, role)) is not None]

    def _shapes_part(self, entry: object, role: Role) -> Part | None:
        if not is_json(entry):
            return Text(entry, role) if isinstance(entry, str) and entry else None
        match text(entry, "type"):
            case "text" | "refusal":
                words = text(entry, "text") or text(entry, "refusal")
                return Text(words, role) if words else None
            case "image_url":
                link = entry.get("image_url")
                return linked_part(text(link, "url") if is_json(link) else text(entry, "image_url"), self.blobs) or self.opaque(entry)
            case "file":
                file = table_at(entry, "file")
                return _shapes_named(linked_part(text(file, "file_data"), self.blobs), text(file, "filename")) or self.opaque(entry)
            case _:
                return self.opaque(entry)

    def written(self, entry: object, content: Content) -> object:
        """Return a message, a part or a call with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult():
                return {**entry, "content": result_text(content)}
            case ToolCall():
                field, key = ("custom", "input") if content.form == "free" else ("function", "arguments")
                return {**entry, field: {**table_at(entry, field), key: content.args}}
            case _:
                return {"type": "text", "text": text_of(content)}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other contents; a reply of calls only has the content null."""
        rest = {key: value for key, value in message.items() if key not in _FIELDS}
        return {**rest, "content": None, **fields} if "tool_calls" in fields else {**rest, **fields}

    def made(self, item: Item) -> Json:
        """Return a message of one content."""
        content = item.content
        match content:
            case ToolCall():
                call = {"id": content.call_id, "type": "function", "function": {"name": content.tool, "arguments": content.args}}
                return {"role": "assistant", "content": None, "tool_calls": [call]}
            case ToolResult():
                return {"role": "tool", "tool_call_id": content.call_id, "content": result_text(content)}
            case Text():
                return {"role": content.role, "content": content.text}
            case _:
                return {"role": speaker(item.kind), "content": text_of(content)}

    def replies(self, response: Json) -> list[Json]:
        """Return the message of the first choice."""
        return [table_at(choice, "message") for choice in tables_at(response, "choices")[:1]]


def _shapes_named(part: Part | None, name: str) -> Part | None:
    """A document under its name; what is sent as a file is a document even if it is a picture."""
    return Document(part.media, part.blob, part.url, name) if isinstance(part, Image | Document) else part


_CACHE: Final = "cache_control"


class MessagesShape(ShapeParts):
    """Messages with a role and blocks; tool results are blocks of the user."""

    wire: WireName = "anthropic"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message, one for each block."""
        content, side = message.get("content"), side_of(text(message, "role"))
        if isinstance(content, str):
            return [PartRead(("content", -1), Text(content, _role(side)), side)] if content else []
        if not isinstance(content, list):
            return []
        return [PartRead(("content", index), found, side) for index, block in enumerate(content) for found in self._block(block, side)]

    def _block(self, block: object, side: Side) -> list[Content]:
        if not is_json(block):
            return [Text(block, _role(side))] if isinstance(block, str) and block else []
        if side == "model":
            return list(decode_block(block, self.card))
        if text(block, "type") == "tool_result" and text(block, "tool_use_id"):
            parts = tuple(part_of(each) for each in self._shapes_parts(block.get("content")))
            return [ToolResult(text(block, "tool_use_id"), parts, error=block.get("is_error") is True)]
        found = self._shapes_part(block, _role(side))
        return [] if found is None else [found]

    def _shapes_parts(self, content: object) -> list[Part]:
        entries = content if isinstance(content, list) else [{"type": "text", "text": content}] if isinstance(content, str) else []
        return [
            found for entry in entries if (found := self._shapes_part(entry if is_json(entry) else {"type": "text", "text": entry}, "user"))
        ]

    def _shapes_part(self, block: Json, role: Role) -> Part | None:
        match text(block, "type"):
            case "text":
                return Text(text(block, "text"), role) if text(block, "text") else None
            case "image" | "document":
                return self._media(block) or self.opaque(block)
            case _:
                return self.opaque(block)

    def _media(self, block: Json) -> Part | None:
        source = table_at(block, "source")
        url, name = text(source, "url"), text(block, "title")
        if text(source, "type") == "url" and url:
            return Image("image/*", url=url) if block["type"] == "image" else Document("application/pdf", url=url, name=name)
        return blob_part(text(source, "media_type"), text(source, "data"), self.blobs, name) if text(source, "type") == "base64" else None

    def written(self, entry: object, content: Content) -> object:
        """Return a block with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult():
                return {**entry, "content": result_text(content)}
            case ToolCall():
                return {**entry, "input": call_arguments(content)}
            case _:
                cached = {_CACHE: entry[_CACHE]} if _CACHE in entry else {}
                return {"type": "text", "text": text_of(content), **cached}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other blocks."""
        return {**message, "content": _paired_server_tools(fields.get("content", []))}

    def made(self, item: Item) -> Json:
        """Return a message of one block."""
        content = item.content
        match content:
            case ToolCall():
                block: Json = {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": call_arguments(content)}
                return {"role": "assistant", "content": [block]}
            case ToolResult():
                block = {"type": "tool_result", "tool_use_id": content.call_id, "content": result_text(content)}
                return {"role": "user", "content": [block]}
            case Text() if is_statement(content):
                words, role = framed_statement(content.text), "user"
            case Text():
                words, role = content.text, content.role
            case _:
                words, role = text_of(content), speaker(item.kind)
        return {"role": role, "content": [{"type": "text", "text": words}]}

    def replies(self, response: Json) -> list[Json]:
        """Return the reply as the one message that it adds."""
        return [{"role": "assistant", "content": response.get("content")}]


def _role(side: Side) -> Role:
    return "assistant" if side == "model" else "system" if side == "system" else "user"


def _paired_server_tools(blocks: object) -> object:
    """The blocks without those tool calls of the server that have lost their result, and results that have lost their call."""
    if not isinstance(blocks, list):
        return blocks
    calls = {text(block, "id") for block in blocks if is_json(block) and text(block, "type") in ("server_tool_use", "mcp_tool_use")}
    answered = {text(block, "tool_use_id") for block in blocks if is_json(block) and text(block, "type").endswith("_tool_result")}
    return [
        block
        for block in blocks
        if not is_json(block)
        or not (
            (text(block, "type") in ("server_tool_use", "mcp_tool_use") and text(block, "id") not in answered)
            or (text(block, "type").endswith("_tool_result") and text(block, "tool_use_id") not in calls)
        )
    ]


_RESPONSES_ROLES: Final[dict[str, Role]] = {"assistant": "assistant", "system": "system", "developer": "developer"}
# Calls of tools that the client runs, with the field of their arguments; `decode_item` knows the others.
_CLIENT_CALLS: Final = {"computer_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
_OUTPUTS: Final[dict[str, Form]] = {
    "function_call_output": "json",
    "computer_call_output": "json",
    "shell_call_output": "json",
    "apply_patch_call_output": "json",
    "custom_tool_call_output": "free",
    "local_shell_call_output": "shell",
    "tool_search_output": "search",
}
# What a client states to the model from here on: tools that join, and another effort or format.
_STATEMENTS: Final = frozenset({"additional_tools", "configuration_update"})
_ARGUMENTS: Final = {"json": "arguments", "free": "input", "shell": "action", "search": "arguments"}


class ResponsesShape(ShapeParts):
    """Items: messages with parts, reasoning, calls and outputs."""

    wire: WireName = "responses"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of an item; reasoning has one for each part of its summary."""
        kind = text(message, "type") or ("message" if "role" in message else "")
        call_id = text(message, "call_id")
        if kind == "message":
            name = text(message, "role")
            role = _RESPONSES_ROLES.get(name, "user")
            return [PartRead(("content", index), found, side_of(name)) for index, found in self._shapes_contents(message, role)]
        if kind in _OUTPUTS and call_id:
            output = message.get("output")
            told = output if isinstance(output, str | list) else dump(message.get("tools") if output is None else output)
            parts = tuple(part_of(found) for _, found in self._shapes_contents({"content": told}, "user"))
            return [PartRead(WHOLE, ToolResult(call_id, parts, form=_OUTPUTS[kind], ref=text(message, "id")), "user")]
        if kind in _CLIENT_CALLS and call_id:
            call = ToolCall(call_id, kind, dump(message.get(_CLIENT_CALLS[kind]) or {}), ref=text(message, "id"))
            return [PartRead(WHOLE, call, "model")]
        side: Side = "user" if kind in _OUTPUTS else "system" if kind in _STATEMENTS else "model"
        return [PartRead(WHOLE, found, side) for found in decode_item(message, self.card)]

    def _shapes_contents(self, message: Json, role: Role) -> list[tuple[int, Part]]:
        content = message.get("content")
        phase = text(message, "phase")
        if isinstance(content, str):
            return [(-1, Text(content, role, phase))] if content else []
        entries = content if isinstance(content, list) else []
        return [(index, found) for index, entry in enumerate(entries) if (found := self._shapes_part(entry, role, phase)) is not None]

    def _shapes_part(self, entry: object, role: Role, phase: str) -> Part | None:
        if not is_json(entry):
            return Text(entry, role, phase) if isinstance(entry, str) and entry else None
        match text(entry, "type"):
            case "input_text" | "output_text" | "text" | "refusal":
                words = text(entry, "text") or text(entry, "refusal")
                return Text(words, role, phase) if words else None
            case "input_image":
                found = linked_part(text(entry, "image_url"), self.blobs)
                return found if isinstance(found, Image) else self.opaque(entry)
            case _:
                return self.opaque(entry)

    def written(self, entry: object, content: Content) -> object:
        """Return an item or a part with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult() if text(entry, "type") in _OUTPUTS:
                return {**entry, "output": result_text(content)}
            case ToolCall():
                return {**entry, _ARGUMENTS[content.form]: content.args}
            case _ if "role" in entry or text(entry, "type") not in ("input_text", "output_text", "refusal", "text"):
                return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text_of(content)}]}
            case _:
                return {**entry, "text": text_of(content)}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other parts, without its id: what the provider stored under it is another message."""
        return {**{key: value for key, value in message.items() if key != "id"}, **fields}

    def made(self, item: Item) -> Json:
        """Return an item of one content."""
        content = item.content
        match content:
            case ToolCall():
                return {"type": "function_call", "call_id": content.call_id, "name": content.tool, "arguments": content.args}
            case ToolResult():
                return {"type": "function_call_output", "call_id": content.call_id, "output": result_text(content)}
            case Text():
                role, words = content.role, content.text
            case _:
                role, words = speaker(item.kind), text_of(content)
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": words}
        return {"type": "message", "role": role, "content": [part]}

    def replies(self, response: Json) -> list[Json]:
        """Return the output items."""
        return tables_at(response, "output")


BREAKPOINT: Final = "cache_control"
"""The field of a cache breakpoint."""
DEEPEST: Final = 64
"""Nested levels of a message; deeper ones are not read."""
# Where models of pydantic keep the fields that their class does not name.
_EXTRA: Final = "__pydantic_extra__"
_SCALARS: Final = (str, int, float, bool, type(None))
_encode = msgspec.json.Encoder(order="sorted").encode
# A cache breakpoint is moved with every request, and the provider adds the other fields to a reply, which its owner need not send back.
_IGNORED: Final = frozenset({BREAKPOINT, "id", "status"})
_TEXT_TYPES: Final = frozenset({"input_text", "output_text"})
# Fields that say something also as an empty list.
_LISTS: Final = frozenset({"content", "output", "summary", "input", "arguments"})


class _ObjectCopy:
    """The fields of an object of an SDK as they were. It equals an object of the same type with the same fields."""

    def __init__(self, kind: type, fields: object, extra: object) -> None:
        self._kind = kind
        self._fields = fields
        self._extra = extra

    def __eq__(self, other: object) -> bool:
        # An object that compares itself with this copy answers `NotImplemented`, and then this one is asked.
        return type(other) is self._kind and other.__dict__ == self._fields and getattr(other, _EXTRA, None) == self._extra

    def __hash__(self) -> int:
        return hash(self._kind)


class MessageSnapshot(NamedTuple):
    """A message as it was: `seen` is a copy that equals it until it is changed, `plain` is it in dictionaries.

    The two are the same if there are no objects in it. `marked` says whether a block of it has a cache breakpoint.
    """

    seen: object
    plain: Json
    marked: bool


def snapshot(message: object) -> MessageSnapshot:
    """Copy a message. Raises `BadInput` if it is none: not an object, or nested too deep."""
    objects: list[object] = []
    seen = _copied(message, objects, 0)
    plain = _plain(message, 0) if objects else seen
    if not is_json(plain):
        raise BadInput(f"a message is {type(message).__name__} and not an object", where="messages")
    return MessageSnapshot(seen, plain, any(BREAKPOINT in block for block in tables_at(plain, "content")))


def copied(value: object) -> object:
    """Return a copy of a value, which equals it until it is changed. Raises `BadInput` if it is nested too deep."""
    return _copied(value, [], 0)


def equals(message: object, seen: object) -> bool:
    """Whether a message is as it was. Texts that are the same objects are not compared, so this costs next to nothing."""
    try:
        return bool(message == seen)
    except Exception:  # noqa: BLE001 - the comparison is code of another program, and a message that cannot be compared is read again
        return False


def _copied(value: object, objects: list[object], depth: int) -> object:
    if depth > DEEPEST:
        raise BadInput(f"a message is nested deeper than {DEEPEST} levels", where="messages")
    if isinstance(value, dict):
        return {key: entry if isinstance(entry, str) else _copied(entry, objects, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry, objects, depth + 1) for entry in value]
    if isinstance(value, _SCALARS):
        return value
    objects.append(value)
    if isinstance(value, tuple):
        return tuple(_copied(entry, objects, depth + 1) for entry in value)
    fields = getattr(value, "__dict__", None)
    if not isinstance(fields, dict):
        return value
    extra = getattr(value, _EXTRA, None)
    return _ObjectCopy(type(value), _copied(fields, objects, depth + 1), _copied(extra, objects, depth + 1))


def plain_value(value: object) -> object:
    """Return a value with the objects of SDKs in it as dictionaries. Raises `BadInput` if it is nested too deep or cannot be read."""
    return _plain(value, 0)


def _plain(value: object, depth: int) -> object:
    if depth > DEEPEST:
        raise BadInput(f"a message is nested deeper than {DEEPEST} levels", where="messages")
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, depth + 1) for entry in value]
    return _plain(_fields(value), depth + 1)


def _fields(value: object) -> object:
    """The fields of an object of an SDK: as the object writes itself, or its attributes."""
    dump = getattr(value, "model_dump", None)
    try:
        # Fields that the provider did not send are left out, as in what its SDK would send back, without a warning about odd ones.
        return dump(mode="json", exclude_unset=True, warnings=False) if callable(dump) else dict(vars(value))
    except Exception as error:
        raise BadInput(f"a {type(value).__name__} in a message cannot be read ({error})", where="messages") from error


def digest_of_message(message: Json) -> str:
    """Return a digest of what a message says: equal for a text and a list of one text, and whatever its breakpoints and the order of keys.

    Raises `BadInput` if the message has values that JSON cannot express.
    """
    # A reference to a stored item says nothing but its id.
    ignored = _IGNORED if message.get("type") != "item_reference" else ()
    try:
        return blake2b(_encode(_normal({key: value for key, value in message.items() if key not in ignored})), digest_size=12).hexdigest()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadInput(f"a message cannot be written as JSON ({error})", where="messages") from error


def _normal(value: object) -> object:
    if isinstance(value, list):
        return [_normal(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    normal: dict[str, object] = {}
    for key, entry in value.items():
        if entry is None or key == BREAKPOINT or (entry == [] and key not in _LISTS) or (key == "type" and entry == "message"):
            continue
        if key == "content" and isinstance(entry, str):
            normal[key] = [{"type": "text", "text": entry}]
        elif key == "type" and isinstance(entry, str) and entry in _TEXT_TYPES:
            normal[key] = "text"
        else:
            normal[key] = _normal(entry)
    return normal


# Parts that more than one shape has.
_SHARED_PARTS: Final = frozenset({"text", "refusal"})
_CHAT_PARTS: Final = frozenset({"image_url", "input_audio", "file"})


_SHAPES: Final[Mapping[WireName, Callable[[ModelCard, Blobs], MessageShape]]] = {
    "anthropic": MessagesShape,
    "responses": ResponsesShape,
    "chat": ChatShape,
}


def shape_of(wire: WireName, card: ModelCard, blobs: Blobs) -> MessageShape:
    """Return the shape of messages on a wire."""
    return _SHAPES[wire](card, blobs)


def is_whole_list(request: Mapping[str, object], messages: Iterable[object]) -> bool:
    """Whether the messages of a request are its whole conversation: nothing of it is a list, or an item of one, that the provider holds.

    A `thread` that is not understood is taken for one that the provider holds.
    """
    thread = request.get("thread")
    if thread is not None and not (is_json(thread) and text(thread, "type") == "create"):
        return False
    if request.get("previous_response_id") or request.get("conversation"):
        return False
    return not any(text(plain, "type") == "item_reference" for each in messages if is_json(plain := _shallow(each)))


def _shallow(message: object) -> object:
    return message if is_json(message) else getattr(message, "__dict__", None)


def detected_wire(messages: Iterable[object]) -> WireName | None:
    """Return the wire of the first message that only one shape has, or `None` if all of them are texts with a role."""
    for message in messages:
        plain = plain_value(message)
        if is_json(plain) and (wire := _wire_of(plain)) is not None:
            return wire
    return None


def _wire_of(message: Json) -> WireName | None:
    kind = text(message, "type")
    if kind in RESPONSES_ITEMS:
        return "responses"
    if text(message, "role") in ("tool", "function") or "tool_calls" in message or "refusal" in message:
        return "chat"
    for block in tables_at(message, "content"):
        found = text(block, "type")
        if found in _CHAT_PARTS and found not in RESPONSES_PARTS | ANTHROPIC_BLOCKS:
            return "chat"
        if found in RESPONSES_PARTS - _SHARED_PARTS:
            return "responses"
        if found in ANTHROPIC_BLOCKS - _SHARED_PARTS:
            return "anthropic"
    return None
