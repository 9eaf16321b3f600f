"""Decodes one item of a rollout: its contents, and who or what it comes from."""

import re
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from palimpsest.audit.context_tags import is_real_user_message
from palimpsest.core.items import Content, Image, Opaque, Part, Piece, Role, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import without
from palimpsest.foreign.reading.parts import arguments_of
from palimpsest.wire.encoding.media import linked_part
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text

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
            return _message(item, context, text(item, "id") or ref)
        case "agent_message":
            context_text = "\n".join(text(part, "text") for part in tables_at(item, "content") if text(part, "text"))
            return _context((context_text,), (f"agent:{text(item, 'author')}",), "user", text(item, "id")) if context_text else NOT_SHOWN
        case "reasoning":
            return _reasoning(item, context.model)
        case "ghost_snapshot":
            return ItemRead("snapshot")
        case "function_call_output" | "custom_tool_call_output" | "tool_search_output":
            return _result(item, kind, context)
        case _ if kind in _CALLS:
            return _call(item, kind, context)
        case _ if kind in _OPAQUE:
            return _opaque(item, kind, context.model)
        case _:
            return NOT_SHOWN


def _message(item: Json, context: ItemContext, ref: str) -> ItemRead:
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
    user_parts = tuple(part for each in parts if (part := _part(each, context, ref)) is not None)
    if len(user_parts) == 1:
        user_parts = tuple(part for each in parts if (part := _part(each, context, text(item, "id"))) is not None)
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


def _part(part: Json, context: ItemContext, ref: str) -> Part | None:
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


def _call(item: Json, kind: str, context: ItemContext) -> ItemRead:
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


def _result(item: Json, kind: str, context: ItemContext) -> ItemRead:
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
        return tuple(part for each in output if is_json(each) and (part := _part(each, context, "")) is not None)
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
