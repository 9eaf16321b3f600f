"""Lines of a Codex rollout: envelope and opening, exact storage, decoded items, and the file names of summaries."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Raw, Struct, structs

from palimpsest.audit.entities import is_real_user_message
from palimpsest.core.events import NULL, Body, ContextStated, ModelReplied, SessionOpened, Statement, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import (
    Content,
    Document,
    Image,
    Keep,
    Opaque,
    Part,
    Piece,
    Role,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    into_of,
)
from palimpsest.core.ports import Blobs
from palimpsest.core.text import utc_text
from palimpsest.exchange.files import without
from palimpsest.exchange.importing import parent_place
from palimpsest.exchange.transcript import ReadEvent, arguments_of
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text
from palimpsest.wire.media import linked_part

# `aside` is not shown to the model.
ItemOrigin: TypeAlias = Literal["user", "context", "model", "result", "snapshot", "aside"]
PROVIDER = "openai"
_TAG = re.compile(r"\s*<([A-Za-z_][A-Za-z0-9_]*)")
_SOURCES = {"environment_context": "environment", "user_instructions": "agents_md"}
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
_OPAQUE = {"web_search_call", "image_generation_call", "compaction", "compaction_summary", "context_compaction"}
ITEM_TYPES = frozenset(
    {"message", "reasoning", "function_call_output", "custom_tool_call_output", "tool_search_output", "ghost_snapshot", "agent_message"}
    | _CALLS
    | _OPAQUE
)


class ItemContext(NamedTuple):
    """What is needed to read an item: the blob store, the model, and the texts that are summaries.

    `has_no_ordinals` is true for files without ordinals.
    """

    blobs: Blobs
    model: str
    summaries: frozenset[str]
    has_no_ordinals: bool


class ItemRead(NamedTuple):
    """A decoded item: what it comes from, and its pieces in order."""

    origin: ItemOrigin
    pieces: tuple[Piece, ...] = ()

    @property
    def contents(self) -> tuple[Content, ...]:
        """The contents of the pieces."""
        return tuple(piece.content for piece in self.pieces)


NOT_SHOWN = ItemRead("aside")


def read_item(item: Json, context: ItemContext, ref: str = "") -> ItemRead:
    """Decode an item of any type; `ref` groups the parts of a message that has no id."""
    kind = text(item, "type")
    match kind:
        case "message":
            return _codex_message(item, context, text(item, "id") or ref)
        case "agent_message":
            context_text = "\n".join(text(part, "text") for part in tables_at(item, "content") if text(part, "text"))
            return _context((context_text,), (f"agent:{text(item, 'author')}",), "user", text(item, "id")) if context_text else NOT_SHOWN
        case "reasoning":
            return _reasoning(item, context.model)
        case "ghost_snapshot":
            return ItemRead("snapshot")
        case "function_call_output" | "custom_tool_call_output" | "tool_search_output":
            return _codex_result(item, kind, context)
        case _ if kind in _CALLS:
            return _codex_call(item, kind, context)
        case _ if kind in _OPAQUE:
            return _opaque(item, kind, context.model)
        case _:
            return NOT_SHOWN


def _codex_message(item: Json, context: ItemContext, ref: str) -> ItemRead:
    content = item.get("content")
    parts: list[Json] = [{"type": "input_text", "text": content}] if isinstance(content, str) else tables_at(item, "content")
    role = text(item, "role")
    texts = tuple(text(part, "text") for part in parts if text(part, "text"))
    if role == "assistant":
        phase = text(item, "phase")
        ref = text(item, "id") or (ref if len(texts) > 1 else "")
        return ItemRead("model", tuple(Piece("assistant", Text(context_text, "assistant", phase, ref)) for context_text in texts))
    kinds = _kinds(item, len(texts))
    if role == "developer":
        return _context(texts, kinds, "developer", ref if len(texts) > 1 else text(item, "id"))
    if role != "user":
        return NOT_SHOWN
    if len(texts) == 1 and texts[0] in context.summaries:
        return ItemRead("context", (Piece("summary", Text(texts[0], ref=text(item, "id")), "summary"),))
    pictures = any(not text(part, "text") and has_media(part) for part in parts)
    if not pictures and texts and _is_context(texts, kinds, has_no_ordinals=context.has_no_ordinals):
        return _context(texts, kinds, "user", ref if len(texts) > 1 else text(item, "id"))
    user_parts = tuple(part for each in parts if (part := _codex_part(each, context, ref)) is not None)
    if len(user_parts) == 1:
        user_parts = tuple(part for each in parts if (part := _codex_part(each, context, text(item, "id"))) is not None)
    return ItemRead("user", tuple(Piece("user", part) for part in user_parts)) if user_parts else NOT_SHOWN


def _is_context(texts: tuple[str, ...], kinds: tuple[str, ...], *, has_no_ordinals: bool) -> bool:
    known_kinds = [kind for kind in kinds if kind not in {"", "unknown"}]
    if known_kinds:
        return not any(kind.startswith("user.") for kind in known_kinds)
    return not is_real_user_message(texts, session_tags_open=has_no_ordinals)


def _kinds(item: Json, count: int) -> tuple[str, ...]:
    kinds = table_at(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
    if isinstance(kinds, list) and len(kinds) == count:
        return tuple(kind if isinstance(kind, str) else "" for kind in kinds)
    return ("",) * count


def _context(texts: tuple[str, ...], kinds: tuple[str, ...], role: Role, ref: str) -> ItemRead:
    pieces = tuple(
        Piece("context", Text(context_text, role, ref=ref), source_of(context_text, kind, role, number))
        for number, (context_text, kind) in enumerate(zip(texts, kinds, strict=True))
    )
    return ItemRead("context", pieces) if pieces else NOT_SHOWN


def source_of(context_text: str, kind: str, role: str, number: int = 0) -> str:
    """The key of a context text: the kind its writer gave it, else the tag it starts with, else its role and index."""
    if kind not in {"", "unknown"}:
        return kind
    if context_text.lstrip().startswith("# AGENTS.md"):
        return "agents_md"
    tag = _TAG.match(context_text)
    if tag is not None:
        return _SOURCES.get(tag[1], tag[1])
    return f"{role}.{number}" if number else role


def has_media(part: Json) -> bool:
    """Whether a part of a message is an image, audio or encrypted."""
    return bool(text(part, "image_url")) or text(part, "type") in {"input_audio", "encrypted_content"}


def _codex_part(part: Json, context: ItemContext, ref: str) -> Part | None:
    if text(part, "text"):
        return Text(text(part, "text"), ref=ref)
    url = text(part, "image_url")
    if url:
        return _image(url, text(part, "detail"), context.blobs, ref)
    if has_media(part):
        return Opaque(PROVIDER, context.model, dump(part), f"[{text(part, 'type').removeprefix('input_')}]", ref)
    return None


def _image(url: str, detail: str, blobs: Blobs, ref: str) -> Part | None:
    if not url.startswith("data:"):
        is_link = url.startswith(("http://", "https://"))
        return Image("image/*", url=url, detail=detail, ref=ref) if is_link else Text(f"[image {url}]", ref=ref)
    part = linked_part(url, blobs)
    if isinstance(part, Image):
        return structs.replace(part, detail=detail, ref=ref)
    return part if part is not None else Text("[image that cannot be read]", ref=ref)


def _reasoning(item: Json, model: str) -> ItemRead:
    digest, full_text = (
        "\n\n".join(text(part, "text") for part in tables_at(item, name) if text(part, "text")) for name in ("summary", "content")
    )
    data = text(item, "encrypted_content")
    seal = Signature(PROVIDER, model, data) if data else None
    if not (digest or full_text or seal):
        return ItemRead("model")
    form: Literal["digest", "whole", "sealed"] = "digest" if digest else "whole" if full_text else "sealed"
    return ItemRead("model", (Piece("thinking", Thinking(digest or full_text, seal, form, text(item, "id"))),))


def _codex_call(item: Json, kind: str, context: ItemContext) -> ItemRead:
    call_id, ref = text(item, "call_id"), text(item, "id")
    match kind:
        case "function_call":
            call = ToolCall(call_id, text(item, "name"), arguments_of(item.get("arguments")), "json", ref)
        case "custom_tool_call":
            free = item.get("input")
            call = ToolCall(call_id, text(item, "name"), free if isinstance(free, str) else dump(free), "free", ref)
        case "local_shell_call":
            call = ToolCall(call_id or ref, "local_shell", dump(table_at(item, "action")), "shell", ref)
        case _:
            if not call_id:
                return _opaque(item, kind, context.model) if is_json(item.get("arguments")) else NOT_SHOWN
            call = ToolCall(call_id, "tool_search", dump(item.get("arguments") or {}), "search", ref)
    return ItemRead("model", (Piece("call", call),))


def _codex_result(item: Json, kind: str, context: ItemContext) -> ItemRead:
    call_id, ref = text(item, "call_id"), text(item, "id")
    if kind == "tool_search_output":
        if not call_id:
            return _opaque(item, kind, context.model)
        found = ToolResult(call_id, (Text(dump(item.get("tools") or [])),), form="search", ref=ref)
        return ItemRead("result", (Piece("result", found),))
    output = item.get("output")
    parts = _output(output, context)
    failed = is_json(output) and output.get("success") is False
    form: Literal["json", "free"] = "free" if kind == "custom_tool_call_output" else "json"
    return ItemRead("result", (Piece("result", ToolResult(call_id, parts, failed, form, ref=ref)),))


def _output(output: object, context: ItemContext) -> tuple[Part, ...]:
    if isinstance(output, str):
        return (Text(output),)
    if isinstance(output, list):
        return tuple(part for each in output if is_json(each) and (part := _codex_part(each, context, "")) is not None)
    if is_json(output):
        # The oldest files have an object with the text and a success flag; a part may also be alone.
        content = output.get("content")
        return _output(content, context) if content is not None else _output([output], context)
    return ()


def _opaque(item: Json, kind: str, model: str) -> ItemRead:
    sent = without(item, "internal_chat_message_metadata_passthrough")
    fallback = {
        "web_search_call": f"[web search: {_query(item)}]",
        "image_generation_call": f"[image: {text(item, 'revised_prompt')}]",
        "tool_search_call": "[tool search]",
        "tool_search_output": "[tool search result]",
    }.get(kind, "")
    is_summary = "compaction" in kind
    piece = Piece("summary" if is_summary else "assistant", Opaque(PROVIDER, model, dump(sent), fallback, text(item, "id")))
    return ItemRead("model", (piece,))


def _query(item: Json) -> str:
    action = table_at(item, "action")
    return text(action, "query") or text(action, "url") or text(action, "type")


def json_object(context_text: str) -> Json:
    """The JSON object in a text; empty if there is none."""
    try:
        value = msgspec.json.decode(context_text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if is_json(value) else {}


# Bytes; a placeholder would not save anything for shorter content.
_MIN_BYTES = 24
_PLACEHOLDER_START = b'{"~":'
_PLACEHOLDER = re.compile(rb'\{"~":(\d+)\}')
_encode = msgspec.json.Encoder().encode


class StoredLine(Struct, array_like=True):
    """A stored line without the content of its body, or `plain` if it is unchanged; `number` is its index in the file."""

    number: int
    line: Raw
    plain: bool = False


_decode = msgspec.json.Decoder(list[StoredLine]).decode


def store_lines(lines: Iterable[tuple[int, bytes]], contents: Sequence[Content], blobs: Blobs) -> Raw:
    """Numbered lines as JSON, with placeholders for what is in the contents."""
    fragments = [(number, fragment) for number, fragment in enumerate(fragments_of(contents, blobs)) if len(fragment) >= _MIN_BYTES]
    stored = [_with_placeholders(number, line, fragments) for number, line in lines]
    return Raw(b"[" + b",".join(stored) + b"]") if stored else NULL


def _with_placeholders(number: int, line: bytes, fragments: Sequence[tuple[int, bytes]]) -> bytes:
    if _PLACEHOLDER_START in line:
        return b"[%d,%s,true]" % (number, line)
    for index, fragment in fragments:
        start = line.find(fragment)
        if start >= 0:
            line = b'%s{"~":%d}%s' % (line[:start], index, line[start + len(fragment) :])
    return b"[%d,%s]" % (number, line)


def restore_lines(stored: Raw, contents: Callable[[], Sequence[Content]], blobs: Blobs) -> Iterator[tuple[int, bytes]]:
    """The numbered lines as they were; nothing if the stored value has no rollout lines."""
    try:
        lines = _decode(stored)
    except msgspec.DecodeError:
        return
    fragments: list[bytes] | None = None
    for each in lines:
        line = bytes(each.line)
        if not each.plain and _PLACEHOLDER_START in line:
            if fragments is None:
                fragments = list(fragments_of(contents(), blobs))
            line = _with_fragments(line, fragments)
        yield each.number, line


def _with_fragments(line: bytes, fragments: Sequence[bytes]) -> bytes:
    pieces = _PLACEHOLDER.split(line)
    pieces[1::2] = [fragments[int(index)] for index in pieces[1::2]]
    return b"".join(pieces)


def fragments_of(contents: Iterable[Content], blobs: Blobs) -> Iterator[bytes]:
    """The JSON of each value in the contents as lines have it, always in the same order."""
    for content in contents:
        match content:
            case Text():
                yield _encode(content.text)
            case Thinking():
                yield _encode(content.text)
                yield _encode(content.signature.data if content.signature is not None else "")
            case ToolCall(form="json" | "free"):
                yield _encode(content.args)
            case ToolCall():
                yield content.args.encode()
            case ToolResult(form="search"):
                yield "".join(part.text for part in content.parts if isinstance(part, Text)).encode()
            case ToolResult():
                yield from fragments_of(content.parts, blobs)
            case Image() | Document():
                yield _encode(media_url(content, blobs))
            case Opaque():
                yield content.data.encode()
                yield _encrypted_data(content)


def _encrypted_data(content: Opaque) -> bytes:
    """The encrypted or binary data of an item, which is most of it."""
    try:
        table = msgspec.json.decode(content.data)
    except (msgspec.DecodeError, UnicodeError):
        return b""
    encrypted = table.get("encrypted_content") or table.get("result") if isinstance(table, dict) else ""
    return _encode(encrypted) if isinstance(encrypted, str) else b""


def media_url(content: Image | Document, blobs: Blobs) -> str:
    """An image or document as a data URL, or its own URL if it has no blob."""
    if not content.blob:
        return content.url
    return f"data:{content.media};base64,{base64.b64encode(blobs.get(content.blob)).decode()}"


def contents_of(body: Body, item: Callable[[str], Content | None]) -> tuple[Content, ...]:
    """The contents whose fragments are placeholders in the lines of a body; `item` finds what an edit keeps."""
    match body:
        case UserSaid() | ModelReplied():
            return tuple(body.parts)
        case ToolReturned():
            return (body.result,)
        case ContextStated():
            return tuple(Text(statement.text, statement.role) for statement in (*(body.head or ()), *body.items))
        case ViewEdited():
            found = (item(piece.id) if isinstance(piece, Keep) else piece.content for edit in body.edits for piece in into_of(edit))
            return tuple(Text("") if content is None else content for content in found)
        case _:
            return ()


NAME = "codex"


# Keys of the first line in the oldest files, which has no type.
_OLD_KEYS = frozenset({"id", "timestamp", "instructions", "git"})
_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def envelope(table: Json) -> tuple[str, Json]:
    """The type and the payload of a line. The oldest files have bare items, and a first line without a type."""
    payload = table.get("payload")
    kind = text(table, "type")
    if is_json(payload):
        return kind, payload
    if kind in ITEM_TYPES:
        return "response_item", table
    if not kind and "timestamp" in table and _OLD_KEYS.issuperset(table) and _THREAD.fullmatch(text(table, "id")):
        return "session_meta", table
    return "", table


class PendingOpening:
    """The opening of a session, held until the first model is known."""

    def __init__(self, at: int, meta: Json, lines: list[tuple[int, bytes]]) -> None:
        self._at = at
        self._opened = opened_by(meta)
        self._instructions = text(table_at(meta, "base_instructions"), "text") or text(meta, "instructions")
        self._lines = lines

    @property
    def model(self) -> str:
        """The model that the first line names; empty if it names none."""
        return self._opened.model

    @property
    def last_key(self) -> str:
        """Key of the last event of the opening."""
        return "head" if self._instructions else "open"

    def events(self, model: str, blobs: Blobs) -> Iterator[ReadEvent]:
        """`SessionOpened`, and the base instructions as the head."""
        opened = structs.replace(self._opened, model=self._opened.model or model)
        if not self._instructions:
            yield ReadEvent(opened, self._at, "open", "", store_lines(self._lines, (), blobs))
            return
        yield ReadEvent(opened, self._at, "open")
        head = (Statement("base_instructions", self._instructions, "system"),)
        yield ReadEvent(ContextStated(head=head), self._at, "head", "", store_lines(self._lines, (Text(self._instructions),), blobs))


def opened_by(meta: Json) -> SessionOpened:
    """`SessionOpened` from the payload of the first line."""
    git, source = table_at(meta, "git"), meta.get("source")
    spawned = table_at(table_at(source, "subagent"), "thread_spawn") if is_json(source) else {}
    fields = {
        "id": text(meta, "id"),
        "version": text(meta, "cli_version"),
        "originator": text(meta, "originator"),
        "source": source if isinstance(source, str) else dump(source) if source else "",
        "provider": text(meta, "model_provider"),
        "branch": text(git, "branch"),
        "commit": text(git, "commit_hash"),
        "forked_from": text(meta, "forked_from_id"),
        "nickname": text(meta, "agent_nickname") or text(spawned, "agent_nickname"),
        "role": text(meta, "agent_role") or text(meta, "agent_type") or text(spawned, "agent_role"),
    }
    model = text(table_at(table_at(meta, "base_instructions"), "provenance"), "model")
    known_fields = {name: value for name, value in fields.items() if value}
    return SessionOpened("", text(meta, "cwd"), NAME, model=model, opener=parent_place(NAME, parent_of(meta)), meta=known_fields)


def parent_of(meta: Json) -> str:
    """The thread that opened this one; empty if none did."""
    source = meta.get("source")
    spawned = table_at(table_at(source, "subagent"), "thread_spawn") if is_json(source) else {}
    return text(spawned, "parent_thread_id") or text(meta, "parent_thread_id")


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEED_LENGTH = 4
_SLUG_LENGTH = 60
_TIME_ORDERED = 7


def stem_of(thread: str, slug: str = "", at: int = 0) -> str:
    """The file stem of a summary: start time, four base-62 digits, and a slug; `at` (milliseconds) counts if the id has no time."""
    milliseconds, seed = _time_and_seed(thread, at)
    time = utc_text(milliseconds, "%Y-%m-%dT%H-%M-%S")
    suffix = slug_of(slug)
    return f"{time}-{_digits(seed)}-{suffix}" if suffix else f"{time}-{_digits(seed)}"


def slug_of(title: str) -> str:
    """A text as lower-case ASCII letters, digits and underscores, at most 60 characters."""
    slug = "".join(letter.lower() if letter.isascii() and letter.isalnum() else "_" for letter in title)
    return slug[:_SLUG_LENGTH].rstrip("_")


def _time_and_seed(thread: str, at: int) -> tuple[int, int]:
    try:
        number = UUID(thread)
    except ValueError:
        seed = 0
        for byte in thread.encode():
            seed = (seed * 31 + byte) % 2**32
        return at, seed
    return (number.int >> 80 if number.version == _TIME_ORDERED else at), number.int & 0xFFFFFFFF


def _digits(seed: int) -> str:
    rest, digits = seed % len(_DIGITS) ** _SEED_LENGTH, ""
    for _ in range(_SEED_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
