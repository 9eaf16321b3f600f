"""Lines of a Claude Code session: the path to the newest one, content blocks, and the author of each user line."""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Body, ContextStated, Recalled, Statement, Usage, UserSaid
from palimpsest.core.items import Content, Document, Image, Opaque, Part, Role, Signature, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.core.text import whole_number
from palimpsest.exchange.files import raw_of
from palimpsest.exchange.transcript import FIELD
from palimpsest.wire.encoding import arguments_object, framed_statement, is_statement, tool_name
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text
from palimpsest.wire.media import blob_part
from palimpsest.wire.repair import valid_call_id
from palimpsest.wire.reply import text_fallback
from palimpsest.wire.rules import ANTHROPIC_BLOCKS

GroupKind: TypeAlias = Literal["reply", "result", "text", "attachment", "fold", "steering", "note"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A parsed line: its number, the byte offset where it stops, its id, its time in milliseconds, and its JSON."""

    number: int
    stop: int
    uuid: str
    at: int
    json: Json

    @property
    def key(self) -> str:
        """The id of the line, or `L` and its number if it has none."""
        return self.uuid or f"L{self.number}"


@dataclass(slots=True, eq=False)
class LineGroup:
    """A group of lines that form one event. They are dropped once the event is yielded."""

    kind: GroupKind
    lines: list[SourceLine] = field(default_factory=list)
    follows: "LineGroup | None" = None
    # The later group that this one was moved before; a rewind to this one must go to that one.
    moved_before: "LineGroup | None" = None
    # Lines of a reply with the number of contents of each.
    part_counts: list[tuple[str, int]] = field(default_factory=list)
    key: str = ""
    # Whether this is the first group with this message id.
    is_first: bool = True
    # What a compaction keeps: lines between boundary and summary with their groups, and groups after the summary.
    kept_before: list[tuple[str, "LineGroup"]] = field(default_factory=list)
    kept_after: list["LineGroup"] = field(default_factory=list)
    boundary: Json = field(default_factory=dict)
    # Whether the boundary folded already, so that the summary is only inserted.
    only_adds: bool = False
    # Text typed during a turn, if the file has only the queue operations of it.
    typed_text: str = ""

    @property
    def rewind_key(self) -> str:
        """Key of the event to rewind to if the conversation continues from here."""
        group = self
        while group.moved_before is not None:
            group = group.moved_before
        return group.key


@dataclass(slots=True, eq=False)
class _TreePlace:
    """A group in the tree of all branches: the place before it, its depth, and the depth of the newest message up to it (-1: none).

    `shortcut` is a place further up; with it, the place at any depth is found in a number of steps that grows with the logarithm.
    """

    group: LineGroup
    depth: int
    message_depth: int
    parent: "_TreePlace | None"
    shortcut: "_TreePlace | None"


def _next_place(group: LineGroup, parent: _TreePlace, *, is_message: bool) -> _TreePlace:
    """The place of a group that follows a place. Shortcuts have the lengths of a skew-binary number, as in a skip list."""
    depth, near = parent.depth + 1, parent.shortcut
    far = near.shortcut if near is not None else None
    shortcut = parent
    if near is not None and far is not None and parent.depth - near.depth == near.depth - far.depth:
        shortcut = far
    return _TreePlace(group, depth, depth if is_message else parent.message_depth, parent, shortcut)


def _ancestor(place: _TreePlace, depth: int) -> _TreePlace:
    """The place at a depth on the way from the root to a place."""
    while place.depth > depth:
        up = place.shortcut if place.shortcut is not None and place.shortcut.depth >= depth else place.parent
        if up is None:
            break
        place = up
    return place


class ConversationPath:
    """The groups from the root to the newest one, and the group of each line. Going back takes no longer in a longer session."""

    def __init__(self, root: LineGroup) -> None:
        self._root = root
        self._groups: dict[str, LineGroup] = {}
        self._tip = _TreePlace(root, 0, -1, None, None)
        self._places = {root: self._tip}
        self._moved: dict[LineGroup, LineGroup] = {}
        self._copies: dict[str, str] = {}

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._groups

    def group_of(self, uuid: str) -> LineGroup | None:
        """The group that a line belongs to or follows."""
        return self._groups.get(uuid)

    def origin(self, uuid: str) -> tuple[str, LineGroup] | None:
        """The line that first showed the content of a line, and its group."""
        uuid = self._copies.get(uuid, uuid)
        group = self._groups.get(uuid)
        return None if group is None else (uuid, group)

    def add_copy(self, uuid: str, original: str) -> None:
        """Record that a line repeats the content of another one."""
        self._copies[uuid] = self._copies.get(original, original)

    def attach(self, uuid: str, parent: str) -> None:
        """Record a line without content: lines that follow it follow the group before it."""
        if uuid:
            self._groups[uuid] = self._groups.get(parent, self._tip.group)

    def assign(self, uuid: str, group: LineGroup) -> None:
        """Add a line to a group."""
        if uuid:
            self._groups[uuid] = group

    def append(self, uuid: str, group: LineGroup, *, is_message: bool) -> None:
        """Append a group. `is_message` is true for replies and text of the user."""
        self.assign(uuid, group)
        self._tip = self._places[group] = _next_place(group, self._tip, is_message=is_message)

    def rewind_target(self, line: Json, *, is_message: bool) -> LineGroup | None:
        """The group that a line rewinds to; None if it continues.

        Results of parallel calls are siblings, so only a line that leaves replies or text of the user behind begins a branch. A line
        whose parent is not in the file continues.
        """
        parent, newest_message = text(line, "parentUuid"), self._tip.message_depth
        if not parent:
            return self._root if is_message and newest_message >= 0 and "parentUuid" in line else None
        group = self._groups.get(parent)
        if group is None:
            return None
        group = self._moved.get(group, group)
        place = self._on_path(group)
        if place is None:
            return group
        return group if is_message and place.depth < newest_message else None

    def _on_path(self, group: LineGroup) -> _TreePlace | None:
        """The place of a group; None if it is not on the current path."""
        place = self._places.get(group)
        return place if place is not None and _ancestor(self._tip, place.depth) is place else None

    def move_after(self, groups: Iterable[LineGroup], fold: LineGroup) -> None:
        """Record that a compaction preserved these groups: lines that follow them follow the compaction."""
        self._moved.update(dict.fromkeys(groups, fold))

    def rewind(self, group: LineGroup) -> None:
        """Make an earlier group the end of the path."""
        self._tip = self._places[group]

    def between(self, first: str, last: str) -> list[LineGroup]:
        """The groups from one line to another along the path, both included; empty if one is not on the path."""
        start, place = (self._on_path(group) if (group := self._groups.get(uuid)) else None for uuid in (first, last))
        found: list[LineGroup] = []
        while start is not None and place is not None and place.depth >= start.depth:
            found.append(place.group)
            place = place.parent
        return found[::-1]


# Marks a value that is stored in the body instead of the line; no program writes this object.
PLACEHOLDER: Json = {"$": 0}

PROVIDER = "anthropic"
# Provider-specific blocks that may be sent back; of all others only a text fallback is shown.
_PROVIDER_BLOCKS = ANTHROPIC_BLOCKS - {"text", "image", "document", "thinking", "tool_use", "tool_result"}


def dumped(value: object) -> str:
    """A value as compact JSON text."""
    return bytes(raw_of(value)).decode()


def take_blocks(message: Json, role: Role, model: str, blobs: Blobs) -> list[Content]:
    """Decode the contents of a message, one for each block, and replace them in the message by placeholders."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = PLACEHOLDER
        return [Text(content, role)]
    if not isinstance(content, list):
        return []
    return [
        _take_result(block, model, blobs)
        if is_json(block) and role == "user" and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
        else _take_block(content, index, role, model, blobs)
        for index, block in enumerate(content)
    ]


def _take_block(blocks: list[object], index: int, role: Role, model: str, blobs: Blobs) -> Content:
    block = blocks[index]
    found = _take_known_block(block, role, model, blobs) if is_json(block) else None
    if found is not None:
        return found
    blocks[index] = PLACEHOLDER
    if isinstance(block, str):
        return Text(block, role)
    data = block if is_json(block) else {"type": "unknown", "value": block}
    return Opaque(PROVIDER if model and text(data, "type") in _PROVIDER_BLOCKS else "claude-code", model, dumped(data), text_fallback(data))


def _take_known_block(block: Json, role: Role, model: str, blobs: Blobs) -> Content | None:
    match block.get("type"):
        case "text" if isinstance(text_value := block.get("text"), str):
            block["text"] = PLACEHOLDER
            return Text(text_value, role)
        case "thinking" if role == "assistant" and isinstance(thinking := block.get("thinking"), str):
            block["thinking"] = PLACEHOLDER
            if signature := text(block, "signature"):
                block["signature"] = PLACEHOLDER
            seal = Signature(PROVIDER, model, signature) if signature else None
            return Thinking(thinking, seal, form="whole" if thinking else "sealed")
        case "tool_use" if role == "assistant" and "input" in block and isinstance(block.get("id"), str):
            args = dumped(block["input"])
            block["input"] = PLACEHOLDER
            return ToolCall(text(block, "id"), text(block, "name"), args)
        case "image" | "document":
            return _media(block, blobs)
        case _:
            return None


def _take_result(block: Json, model: str, blobs: Blobs) -> ToolResult:
    content = block.get("content")
    parts: tuple[Part, ...] = ()
    if isinstance(content, str):
        block["content"] = PLACEHOLDER
        parts = (Text(content),) if content else ()
    elif isinstance(content, list):
        decoded_parts = (_take_block(content, index, "user", model, blobs) for index in range(len(content)))
        parts = tuple(part if isinstance(part, Text | Image | Document | Opaque) else Text(text_of(part)) for part in decoded_parts)
    return ToolResult(text(block, "tool_use_id"), parts, error=block.get("is_error") is True)


def _media(block: Json, blobs: Blobs) -> Part | None:
    source = table_at(block, "source")
    data, url = text(source, "data"), text(source, "url")
    if text(source, "type") == "url" and url:
        return Image("image/*", url=url) if block["type"] == "image" else Document("application/pdf", url=url, name=text(block, "title"))
    if text(source, "type") != "base64" or not data:
        return None
    part = blob_part(text(source, "media_type"), data, blobs, text(block, "title"))
    # Only canonical base64 can be restored from the blob.
    if isinstance(part, Image | Document) and _base64(part, blobs) == data:
        source["data"] = PLACEHOLDER
    return part


def _base64(part: Image | Document, blobs: Blobs) -> str:
    return base64.b64encode(blobs.get(part.blob)).decode()


def fill_blocks(message: Json, contents: Iterator[Content], blobs: Blobs) -> None:
    """Replace the placeholders of a message by contents, one for each block; the inverse of `take_blocks`."""
    content = message.get("content")
    if content == PLACEHOLDER:
        message["content"] = _text_or_empty(next(contents, None))
    elif isinstance(content, list):
        for index in range(len(content)):
            _fill(content, index, next(contents, None), blobs)


def _fill(blocks: list[object], index: int, content: Content | None, blobs: Blobs) -> None:
    block = blocks[index]
    if block == PLACEHOLDER:
        blocks[index] = _whole_block(content)
    if not is_json(block):
        return
    match content:
        case Text() | Thinking():
            _put(block, "text", content.text)
            _put(block, "thinking", content.text)
            seal = content.signature if isinstance(content, Thinking) else None
            _put(block, "signature", seal.data if seal is not None else "")
        case ToolCall():
            _put(block, "input", _decoded_arguments(content.args))
        case ToolResult():
            _fill_result(block, content, blobs)
        case Image() | Document():
            source = table_at(block, "source")
            if source.get("data") == PLACEHOLDER:
                source["data"] = _base64(content, blobs)
        case Opaque() | None:
            pass


def _fill_result(block: Json, result: ToolResult, blobs: Blobs) -> None:
    content = block.get("content")
    if isinstance(content, list):
        fill_blocks(block, iter(result.parts), blobs)
    else:
        _put(block, "content", "".join(text_of(part) for part in result.parts))


def _put(block: Json, key: str, value: object) -> None:
    if block.get(key) == PLACEHOLDER:
        block[key] = value


def _text_or_empty(content: Content | None) -> str:
    return content.text if isinstance(content, Text) else ""


def _whole_block(content: Content | None) -> object:
    if isinstance(content, Opaque):
        data = _decoded_arguments(content.data)
        return data["value"] if is_json(data) and data.get("type") == "unknown" and "value" in data else data
    return _text_or_empty(content)


def _decoded_arguments(data: str) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data


_MAX_ID_LENGTH = 128
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def plain_id(call_id: str) -> str:
    """A call id in the characters and the length that the provider accepts, as in a request."""
    plain = valid_call_id(call_id, "claude")
    return plain if len(plain) <= _MAX_ID_LENGTH else f"toolu_{sha256(call_id.encode()).hexdigest()[:24]}"


def usage_of(usage: Usage) -> Json:
    """Token counts with the provider's field names."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write + usage.cache_write_long,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": usage.cache_write_long},
    }


def assistant_blocks(parts: Iterable[Content]) -> list[tuple[int, Json]]:
    """The blocks of a reply, each with the index of its part.

    Thinking without a signature of this provider is left out, because the provider would refuse it.
    """
    return [(number, block) for number, part in enumerate(parts) if (block := _assistant_block(part)) is not None]


def _assistant_block(part: Content) -> Json | None:
    match part:
        case Thinking():
            if part.signature is None or part.signature.provider != PROVIDER:
                return None
            return {"type": "thinking", "thinking": part.text, "signature": part.signature.data}
        case ToolCall():
            arguments = msgspec.json.decode(arguments_object(part))
            return {"type": "tool_use", "id": plain_id(part.call_id), "name": tool_name(part.tool), "input": arguments}
        case Opaque(provider="anthropic"):
            block_fields: Json = msgspec.json.decode(part.data)
            return block_fields
        case _:
            shown_text = text_of(part)
            return {"type": "text", "text": shown_text} if shown_text.strip() else None


def user_content(contents: Sequence[Content], blobs: Blobs) -> str | list[Json]:
    """The content of a user line: a text, or blocks if there is more than one text; empty if all texts are empty."""
    if len(contents) == 1 and isinstance(contents[0], Text):
        return _user_text(contents[0])
    return [block for content in contents if (block := _user_block(content, blobs)) is not None]


def result_block(result: ToolResult, blobs: Blobs) -> Json:
    """A tool result; its content is a plain text if it has no other parts."""
    texts = all(isinstance(part, Text) for part in result.parts)
    content = text_of(result) if texts else [block for part in result.parts if (block := _user_block(part, blobs)) is not None]
    block_fields: Json = {"tool_use_id": plain_id(result.call_id), "type": "tool_result", "content": content}
    return {**block_fields, "is_error": True} if result.error else block_fields


def _user_block(content: Content | Part, blobs: Blobs) -> Json | None:
    match content:
        case Image(url=url) if url.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image(blob=blob) | Document(blob=blob) if blob and (isinstance(content, Document) or content.media in _IMAGE_TYPES):
            return _media_block(content, blobs)
        case _:
            shown_text = _user_text(content) if isinstance(content, Text) else text_of(content)
            return {"type": "text", "text": shown_text} if shown_text.strip() else None


def _user_text(content: Text) -> str:
    """A text on the user's side. Statements of the operator are framed as in a request, because these lines have no other role."""
    if not content.text.strip():
        return ""
    return framed_statement(content.text) if is_statement(content) else content.text


def _media_block(content: Image | Document, blobs: Blobs) -> Json:
    try:
        data = _base64(content, blobs)
    except PalimpsestError:
        return {"type": "text", "text": text_of(content)}
    kind = "image" if isinstance(content, Image) else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": content.media, "data": data}}


# Older versions mark inserted text only by a tag at its start.
_TAGS = {
    "command-name": "command",
    "command-message": "command",
    "command-args": "command",
    "local-command-stdout": "command-output",
    "local-command-stderr": "command-output",
    "local-command-caveat": "command-caveat",
    "bash-input": "command",
    "bash-stdout": "command-output",
    "bash-stderr": "command-output",
    "user-memory-input": "command",
    "system-reminder": "reminder",
    "task-notification": "task-notification",
    "teammate-message": "teammate-message",
    "agent-notification": "task-notification",
    "ide_opened_file": "ide",
    "ide_selection": "ide",
    "ide_diagnostics": "ide",
    "user-prompt-submit-hook": "hook",
    "session-start-hook": "hook",
}
_TAG = re.compile(r"\s*<([a-z][a-z_-]*)>")
# Since this version every prompt of a user has a field that says so.
_SOURCE_FIELD_SINCE = (2, 1, 217)
_CAVEAT = "Caveat: The messages below were generated by the user while running local commands."
_INTERRUPTED = re.compile(r"\[Request interrupted by user(?: for tool use)?\]\s*\Z")


def speaker(line: Json) -> str:
    """Who wrote a whole line, by its fields, which newer versions have: empty for the user, else the name of a source."""
    if line.get("isMeta") is True:
        return "meta"
    kind = text(table_at(line, "origin"), "kind")
    if kind and kind != "human":
        return kind
    if text(line, "promptSource") == "system":
        return text(line, "turnOrigin") or "system"
    return "command" if _lacks_source_field(line) else ""


def copied_from(line: Json) -> str:
    """Id of the line in the same session that a line is a copy of; empty if it is none."""
    origin = table_at(line, "forkedFrom")
    return text(origin, "messageUuid") if text(origin, "sessionId") == text(line, "sessionId") else ""


def _lacks_source_field(line: Json) -> bool:
    """Whether the version marks prompts of the user, and this line has no such mark."""
    numbers = tuple(whole_number(each) or 0 for each in text(line, "version").split("."))
    has_source_field = any(key in line for key in ("promptSource", "origin", "permissionMode", "turnOrigin", "isCompactSummary"))
    return numbers >= _SOURCE_FIELD_SINCE and not has_source_field and line.get("isSidechain") is not True


def source_of(content: Content) -> str:
    """Who wrote a text, by how it starts: empty for the user, else the name of a source."""
    if not isinstance(content, Text):
        return ""
    tag = _TAG.match(content.text)
    if tag is not None:
        return _TAGS.get(tag[1], "")
    if _INTERRUPTED.match(content.text):
        return "interrupted"
    return "command-caveat" if content.text.startswith(_CAVEAT) else ""


def runs_by_speaker(line: Json, contents: Sequence[Content]) -> Iterator[tuple[str, list[Content]]]:
    """Runs of contents by one speaker; each tool result is a run of its own."""
    line_speaker = speaker(line)
    run: list[Content] = []
    run_speaker = ""
    for content in contents:
        if isinstance(content, ToolResult):
            if run:
                yield run_speaker, run
            run = []
            yield "", [content]
            continue
        speaker_name = line_speaker or source_of(content)
        if run and speaker_name != run_speaker:
            yield run_speaker, run
            run = []
        run_speaker = speaker_name
        run.append(content)
    if run:
        yield run_speaker, run


def result_keys(line: Json, key: str) -> Iterator[tuple[str, str]]:
    """The call ids that a line has results of, each with the key of the event of its result. `key` is that of the line."""
    blocks = table_at(line, "message").get("content")
    contents = [_outline(block) for block in blocks] if isinstance(blocks, list) else []
    for index, (_, run) in enumerate(runs_by_speaker(line, contents)):
        if isinstance(run[0], ToolResult):
            yield run[0].call_id, key_of_run(key, index)


def _outline(block: object) -> Content:
    """As much of a block as is needed to know who wrote it."""
    if not is_json(block):
        return Text(block if isinstance(block, str) else "")
    return ToolResult(text(block, "tool_use_id")) if block.get("type") == "tool_result" else Text(text(block, "text"))


def key_of_run(key: str, index: int) -> str:
    """Key of the event of a run; the first run has the key of the line."""
    return f"{key}#{index}" if index else key


def body_of_run(speaker_name: str, contents: Sequence[Content], *, steering: bool = False) -> Body:
    """The body of a run, by the user or by a source. A statement has only texts, so images of a source are recorded as recalled."""
    parts = tuple(part for part in contents if isinstance(part, Text | Image | Document | Opaque))
    if not speaker_name:
        return UserSaid(parts, steering=steering)
    if all(isinstance(part, Text) for part in parts):
        return ContextStated(tuple(Statement(speaker_name, part.text) for part in parts if isinstance(part, Text)))
    return Recalled(speaker_name, (), parts=parts)


def attachment_texts(attachment: Json) -> tuple[str, ...]:
    """The texts of an attachment whose version did not store the rendered text; empty if it has none."""
    if text(attachment, "type") in {"hook_system_message", "command_permissions", "prompt_snapshot", "hook_cancelled"}:
        return ()
    for key in ("content", "text", "snippet", "addedBlocks", "addedLines", "addedNames", "planContent", "memories", "message", "filename"):
        found = "\n".join(_texts_in(attachment.get(key)))
        if found.strip():
            return (found,)
    return ()


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)
    elif is_json(value):
        for key in ("file", "content", "text", "subject", "base64"):
            if key != "base64" and value.get(key):
                yield from _texts_in(value[key])
                return


def queued_prompt(attachment: Json) -> object:
    """What a user typed while a turn was running, a text or blocks; None if the program queued it."""
    if text(attachment, "type") != "queued_command" or attachment.get("isMeta") is True:
        return None
    mode, kind = text(attachment, "commandMode"), text(table_at(attachment, "origin"), "kind")
    if mode not in {"", "prompt"} or kind not in {"", "human"}:
        return None
    prompt = attachment.get("prompt")
    if isinstance(prompt, str) and source_of(Text(prompt)):
        return None
    return prompt if isinstance(prompt, str) or tables_at(attachment, "prompt") else None


def part_of(content: Content) -> Part | None:
    """The content if a user message can have it, else None."""
    return content if isinstance(content, Text | Image | Document | Opaque) else None


_COMMAND = re.compile(r"/[a-z][\w:-]*(\s|\Z)")
_TASK_NOTICE = re.compile(r"\{\s*\"task_id\"")


class PromptQueue:
    """Prompts typed during a turn, from queue operations.

    A prompt leaves the queue as a user line, as an attachment, or silently: then it was inserted into the turn.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._inserted: list[str] = []

    def apply(self, line: Json) -> str:
        """Apply one operation of the queue. Returns the text that it inserted into the turn; empty if it inserted none."""
        content = text(line, "content")
        match text(line, "operation"):
            case "enqueue" if _is_typed(content):
                self._waiting.append(content)
            case "popAll":
                # The user took all prompts back to edit them.
                self._waiting.clear()
            case "remove" if "content" in line:
                # Versions that name what they removed also write a line of its delivery.
                self._remove(content)
            case "remove" if self._waiting:
                self._inserted.append(self._waiting.pop(0))
                return self._inserted[-1]
            case _:
                pass
        return ""

    def delivered_by_line(self, line: Json) -> str:
        """Remove the prompts that a user line delivers. Returns the one that was inserted already, if an export added the line for it."""
        message = table_at(line, "message")
        line_text = text(message, "content") or "\n".join(text(block, "text") for block in tables_at(message, "content"))
        if FIELD in line and line_text in self._inserted:
            self._inserted.remove(line_text)
            return line_text
        if self._waiting and line_text:
            self._remove(next((prompt for prompt in self._waiting if prompt.strip() in line_text), ""))
        return ""

    def delivered_by_attachment(self, attachment: Json) -> bool:
        """Whether an attachment delivers a prompt that was inserted already."""
        prompt = queued_prompt(attachment)
        if not isinstance(prompt, str):
            return False
        self._remove(prompt)
        if prompt not in self._inserted:
            return False
        self._inserted.remove(prompt)
        return True

    def _remove(self, prompt: str) -> None:
        if prompt in self._waiting:
            self._waiting.remove(prompt)


def _is_typed(content: str) -> bool:
    """Whether a user typed this: it is no task notification and no command of the program."""
    return bool(content.strip()) and not (source_of(Text(content)) or _COMMAND.match(content) or _TASK_NOTICE.match(content))
