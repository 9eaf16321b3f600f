"""Rows of OpenCode's sessions, messages and parts, their contents and results, and the edits that OpenCode made."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from palimpsest.core.events import Body, ForeignNoted, ModelReplied, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import (
    Content,
    Document,
    Fold,
    Image,
    Into,
    Keep,
    Mask,
    Opaque,
    Put,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Value,
    kind_of,
)
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import raw_of, read_regular, without
from palimpsest.exchange.transcript import DeferredBody, ImportContext, ReadEvent, ReadProblem
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

# Twelve hexadecimal digits of an id are its time, 4,096 per millisecond; they wrap around every 2^36 milliseconds.
_TIME = re.compile(r"[a-z]+_([0-9a-f]{12})")
_TIME_WRAP = 1 << 48
_ENDED = frozenset({"completed", "error"})
# Fields that the database keeps in columns, and files inside each row.
_COLUMNS = frozenset({"id", "sessionID", "messageID"})
_LONE_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


class PartRow(Value, frozen=True):
    """A part of a message. `type` is text, reasoning, tool, file, compaction and so on; `status` is the state of a tool call."""

    id: str
    type: str
    data: Json
    state: Json
    status: str


def part_of(row_id: str, data: Json) -> PartRow:
    """A part from its row."""
    state = table_at(data, "state")
    return PartRow(row_id, text(data, "type"), data, state, text(state, "status"))


class MessageRow(Value, frozen=True):
    """A message of the user or the model, with its parts in order.

    It is open while a model may still be writing it, or if the program died meanwhile. `content_digest` is a digest of what a model
    could see of it: a row with other changes is not read again. That of an open message starts with `~`.
    """

    id: str
    role: str
    created: int
    completed: int
    error: str
    is_open: bool
    content_digest: str
    data: Json
    parts: tuple[PartRow, ...] = ()


def message_of(row_id: str, data: Json, parts: Iterable[PartRow]) -> MessageRow:
    """A message from its row and its parts."""
    time, role = table_at(data, "time"), text(data, "role")
    ordered = parts_in_order(row_id, parts)
    error = text(table_at(data, "error"), "name") or ("Error" if data.get("error") else "")
    completed = number(time, "completed")
    if role == "assistant":
        ended = completed or error or text(data, "finish")
        is_open = not ended or any(part.type == "tool" and part.status not in _ENDED for part in ordered)
    else:
        is_open = not ordered
    visible = [(part.id, part.type, part.status, text(part.data, "text")) for part in ordered]
    content_digest = ("~" if is_open else "") + digest((role, error, visible))
    return MessageRow(row_id, role, number(time, "created"), completed, error, is_open, content_digest, data, ordered)


class OpencodeSession(Value, frozen=True):
    """A session: its row, messages in order of time, todo list, and the program's data folder."""

    id: str
    info: Json
    messages: tuple[MessageRow, ...] = ()
    todo: tuple[Json, ...] = ()
    diff: object = None
    folder: str = ""


def digest(value: object) -> str:
    """The first 12 hexadecimal digits of a digest of a value."""
    return blake2b(msgspec.json.encode(value), digest_size=6).hexdigest()


def without_columns(row: Json) -> Json:
    """A row from a file as the database keeps it, without ids."""
    return without(row, *_COLUMNS)


def parse(data: bytes) -> Json:
    """The JSON object in some bytes; lone surrogates are replaced. Raises `ValueError` if there is none."""
    data.decode()
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = msgspec.json.decode(_LONE_SURROGATE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data))
    if not is_json(value):
        raise ValueError("it is not a JSON object")
    return value


def try_parse(data: object, where: str) -> Json | ReadProblem:
    """The JSON object in some bytes, or a problem."""
    try:
        return parse(data if isinstance(data, bytes) else str(data).encode())
    except (ValueError, RecursionError) as error:
        return ReadProblem(where, f"this row cannot be read: {error}")


def row_or_none(row: Json | ReadProblem, problems: list[ReadProblem]) -> Json | None:
    """The row; None if it could not be read, and then its problem is added."""
    if isinstance(row, ReadProblem):
        problems.append(row)
        return None
    return row


def in_order(messages: Iterable[MessageRow]) -> tuple[MessageRow, ...]:
    """Messages sorted by time, then by id; not by id alone, because the time in an id wraps around."""
    return tuple(sorted(messages, key=lambda message: (message.created, message.id)))


def parts_in_order(message_id: str, parts: Iterable[PartRow]) -> tuple[PartRow, ...]:
    """The parts of a message sorted by the time in their ids, relative to the message's own, then by id."""
    start = _time_of(message_id)
    sortable: list[tuple[int, str, int, PartRow]] = []
    for index, part in enumerate(parts):
        time = _time_of(part.id)
        offset = 0 if start is None or time is None else (time - start + _TIME_WRAP // 2) % _TIME_WRAP
        sortable.append((offset, part.id, index, part))
    return tuple(part for *_, part in sorted(sortable, key=lambda each: each[:3]))


def _time_of(row_id: str) -> int | None:
    found = _TIME.match(row_id)
    return int(found[1], 16) if found else None


def messages_of(rows: Iterable[tuple[str, Json]], parts: dict[str, list[PartRow]]) -> tuple[MessageRow, ...]:
    """Messages with their parts, in order."""
    return in_order(message_of(key, data, parts.get(key, ())) for key, data in rows)


CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MediaPart: TypeAlias = Image | Document

# Media types that are not attached: their content follows as a text part.
SHOWN_AS_TEXT = frozenset({"text/plain", "application/x-directory"})
_OUTPUT_NAME = re.compile(r"tool_[0-9A-Za-z]+")
_PATHS = ("filePath", "path", "file_path")


def line_of(part: PartRow, *fields: str) -> Json:
    """The row of a part without the fields that are in its body."""
    return {"id": part.id, **without(part.data, *fields)}


def visible_line(part: PartRow) -> Json:
    """The row of a part of a reply without the text that is in its body."""
    return line_of(part, "text") if part.type in {"text", "reasoning"} and text(part.data, "text") else line_of(part)


def is_visible_text(part: PartRow) -> bool:
    """Whether a part is a text that the model sees."""
    return part.type == "text" and bool(text(part.data, "text")) and part.data.get("ignored") is not True


def is_synthetic(part: PartRow) -> bool:
    """Whether the program wrote the part, and not the user."""
    return part.data.get("synthetic") is True


def shown_file(part: Json, blobs: Blobs) -> MediaPart | None:
    """The image or document that the model sees; None if the file is shown as text, or its data is missing."""
    media, url = text(part, "mime"), text(part, "url")
    if media in SHOWN_AS_TEXT or not media:
        return None
    if url.startswith(("http://", "https://")):
        return Image(media, url=url) if media.startswith("image/") else Document(media, url=url, name=text(part, "filename"))
    content = _opencode_content(url)
    if not content:
        return None
    address = blobs.put(content)
    return Image(media, address) if media.startswith("image/") else Document(media, address, name=text(part, "filename"))


def _opencode_content(url: str) -> bytes:
    head, found, data = url.partition(",")
    if not found or not head.startswith("data:"):
        return b""
    if not head.endswith(";base64"):
        return unquote_to_bytes(data)
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return b""


def model_content(part: PartRow, model: str) -> Content | None:
    """The content of a part of a reply; None if it has none."""
    shown_text = text(part.data, "text")
    match part.type:
        case "text":
            return Text(shown_text, "assistant") if is_visible_text(part) else None
        case "reasoning":
            return _thinking(shown_text, table_at(part.data, "metadata"), model)
        case "tool":
            tool_input = part.state.get("input")
            args = dump(tool_input) if tool_input is not None and tool_input != {} else text(part.state, "raw") or "{}"
            return ToolCall(text(part.data, "callID"), text(part.data, "tool") or "unknown", args)
        case _:
            return None


def _thinking(shown_text: str, metadata: Json, model: str) -> Content | None:
    """Reasoning with its signature or encrypted content, which only its provider can use."""
    anthropic, openai = table_at(metadata, "anthropic"), table_at(metadata, "openai")
    if redacted := text(anthropic, "redactedData"):
        return Opaque("anthropic", model, dump({"type": "redacted_thinking", "data": redacted}))
    if signature := text(anthropic, "signature"):
        return Thinking(shown_text, Signature("anthropic", model, signature), "whole" if shown_text else "sealed")
    if encrypted := text(openai, "reasoningEncryptedContent"):
        return Thinking(shown_text, Signature("openai", model, encrypted), "digest" if shown_text else "sealed", text(openai, "itemId"))
    return Thinking(shown_text) if shown_text else None


def result_of(part: PartRow, blobs: Blobs, folder: str = "") -> ToolReturned:
    """The result of a call; a call without an end was interrupted. A truncated output is whole in a file of the program's folder."""
    state, name, call_id = part.state, text(part.data, "tool"), text(part.data, "callID")
    time, metadata = table_at(state, "time"), table_at(state, "metadata")
    match part.status:
        case "completed":
            files = (shown_file(each, blobs) for each in tables_at(state, "attachments"))
            parts = (Text(text(state, "output")), *(file for file in files if file is not None))
            result = ToolResult(call_id, parts, blob=_whole_output(text(metadata, "outputPath"), folder, blobs))
        case "error":
            # The output before an interruption is shown instead of the error.
            printed = text(metadata, "output") if metadata.get("interrupted") is True else ""
            result = ToolResult(call_id, (Text(printed or text(state, "error") or "error"),), error=True)
        case _:
            result = ToolResult(call_id, (Text(INTERRUPTED),), error=True)
    duration_ms = max(0, number(time, "end") - number(time, "start")) if number(time, "end") else 0
    exit_code = metadata.get("exit")
    tool_input = table_at(state, "input")
    paths = tuple(dict.fromkeys(path for key in _PATHS if (path := text(tool_input, key))))
    return ToolReturned(result, name, exit_code if type(exit_code) is int else None, paths, duration_ms)


def _whole_output(path: str, folder: str, blobs: Blobs) -> str:
    """The blob of a whole output, if its file exists. Only the file name is used: a row could name any file."""
    name = path.replace("\\", "/").rpartition("/")[2]
    if not folder or not _OUTPUT_NAME.fullmatch(name):
        return ""
    file = Path(folder) / "tool-output" / name
    try:
        return blobs.put(read_regular(file, follow=False))
    except OSError:
        return ""


def result_line(part: PartRow) -> Json:
    """The row of a tool part without what is in its call and its result."""
    state = without(part.state, "input", *(("output",) if part.status == "completed" else ()))
    time, metadata = state.get("time"), state.get("metadata")
    if part.status == "completed" and is_json(time):
        # The time of clearing came later, and is in the edit.
        state["time"] = without(time, "compacted") if number(time, "compacted") else time
    if part.status == "completed" and is_json(metadata) and metadata.get("output") == part.state.get("output"):
        # The row of a shell command has its output twice.
        state |= {"metadata": without(metadata, "output"), "same": ["output"]}
    return {**line_of(part, "state"), "state": state}


def usage_of(message: MessageRow, parts: Iterable[PartRow]) -> Usage:
    """The usage of a reply: of its last step, or else of its message."""
    ends = [part for part in parts if part.type == "step-finish" and is_json(part.data.get("tokens"))]
    table = table_at(ends[-1].data, "tokens") if ends else table_at(message.data, "tokens")
    cache = table_at(table, "cache")
    uncached, output, reasoning = number(table, "input"), number(table, "output"), number(table, "reasoning")
    read, written = number(cache, "read"), number(cache, "write")
    # Rows with a total count reasoning separately from output; in older ones it is part of the output.
    is_separate = uncached + read + written + output + reasoning <= number(table, "total")
    return Usage(uncached, read, written, output=output + reasoning if is_separate else max(output, reasoning), reasoning=reasoning)


def model_of(message: MessageRow) -> str:
    """The model that a message names."""
    model_field = table_at(message.data, "model")
    return text(message.data, "modelID") or text(model_field, "modelID") or text(model_field, "id")


def system_of(message: MessageRow) -> tuple[str, ...]:
    """The system prompts of a message: one text in a user message, several in a model message of older versions."""
    prompts = message.data.get("system")
    texts = prompts if isinstance(prompts, list) else [prompts]
    return tuple(each for each in texts if isinstance(each, str) and each)


def wire_of(message: MessageRow) -> str:
    """The wire of the provider of a message."""
    provider = text(message.data, "providerID") or text(table_at(message.data, "model"), "providerID")
    return {"anthropic": "anthropic", "openai": "responses"}.get(provider, "chat")


FORMAT = "opencode"
# The model sees this question instead of the request for a summary, and the summary as its answer.
SUMMARY_QUESTION = "What did we do so far?"


def is_summary(message: MessageRow) -> bool:
    """Whether a message is a summary that is complete and did not fail."""
    if message.data.get("summary") is not True or message.error or not text(message.data, "finish"):
        return False
    return not any(part.type == "tool" for part in message.parts)


def fold_events(messages: Sequence[MessageRow], suffixes: Mapping[str, str], summary: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    """The call that wrote a summary, and the fold."""
    model, at = model_of(summary), summary.completed or summary.created
    usage = usage_of(summary, summary.parts)
    yield ReadEvent(ModelReplied((), usage=usage, model=model, purpose="compaction"), summary.created, f"{summary.id}#call{suffix}")
    request = next((each for each in messages if each.id == text(summary.data, "parentID")), None)
    line = raw_of({"info": summary.data, "parts": [visible_line(part) for part in summary.parts], "tail_start_id": _tail_start(request)})
    into = tuple(
        Put("thinking" if kind_of(content) == "thinking" else "summary", content)
        for part in summary.parts
        if (content := model_content(part, model)) is not None
    )
    request_keys = keys_of(request, suffixes) if request is not None else ()
    tail_keys = tuple(key for each in _tail(messages, request) for key in keys_of(each, suffixes))
    yield ReadEvent(_fold(into, request_keys, tail_keys, request), at, summary.id + suffix, line=line)


def keys_of(message: MessageRow, suffixes: Mapping[str, str]) -> tuple[str, ...]:
    """All keys under which a message may have added items."""
    suffix = suffixes.get(message.id, "")
    steps = (f"{message.id}#{index}" for index in range(1, len(message.parts)))
    parts = (name for part in message.parts for name in (part.id, f"{part.id}#result"))
    return tuple(f"{key}{suffix}" for key in (f"{message.id}#before", message.id, f"{message.id}#context", *steps, *parts))


def _compaction(message: MessageRow) -> PartRow | None:
    return next((part for part in message.parts if part.type == "compaction"), None)


def _tail_start(request: MessageRow | None) -> str:
    part = _compaction(request) if request is not None else None
    return text(part.data, "tail_start_id") if part is not None else ""


def _tail(messages: Sequence[MessageRow], request: MessageRow | None) -> Sequence[MessageRow]:
    """The messages that a fold keeps, without earlier summaries and their requests."""
    start = _tail_start(request)
    ids = [each.id for each in messages]
    if request is None or start not in ids:
        return ()
    return [each for each in messages[ids.index(start) : ids.index(request.id)] if _compaction(each) is None and not is_summary(each)]


def _fold(into: Into, request_keys: Sequence[str], tail_keys: Sequence[str], request: MessageRow | None) -> DeferredBody:
    part = _compaction(request) if request is not None else None
    overflow, auto = (part.data.get("overflow"), part.data.get("auto")) if part is not None else (False, True)
    why = "the request was too long" if overflow else "the room ran out" if auto else "the user asked for it"
    moment = "overflow" if overflow else "before_call" if auto else "asked"

    def build(context: ImportContext) -> Body:
        items = context.view.items
        request_items = {item for key in request_keys for item in context.item_ids(key)}
        # The items up to the request for the summary.
        ends = [index for index, item in enumerate(items) if item.id in request_items]
        folded = items[: ends[-1] + 1] if ends else items
        if not folded:
            return ForeignNoted(FORMAT, (request.id,) if request is not None else ())
        tail_items = {item for key in tail_keys for item in context.item_ids(key)}
        kept = tuple(Keep(item.id) for item in folded if item.id in tail_items)
        question = tuple(Keep(item.id) for item in folded if item.id in request_items)
        fold = Fold(folded[0].id, folded[-1].id, (*question, *into, *kept))
        return ViewEdited((fold,), FORMAT, why, moment)

    return build


def hide_reverted_parts(message: MessageRow, hidden: Sequence[PartRow], suffix: str) -> DeferredBody:
    """The edit for a revert into the middle of a message: it hides the parts after the target."""
    visible_parts = [part.id for part in message.parts if model_content(part, "") is not None]
    hidden_ids = {part.id for part in hidden}
    replies = [message.id, *(f"{message.id}#{index}" for index in range(1, len(message.parts)))]

    def build(context: ImportContext) -> ViewEdited:
        ids = [item for key in replies for item in context.item_ids(key + suffix)]
        masked = tuple(item for part, item in zip(visible_parts, ids, strict=False) if part in hidden_ids)
        return ViewEdited((Mask(masked),), FORMAT, "the user went back", "asked")

    return build
