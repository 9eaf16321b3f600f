"""One item of a rollout as contents of ours: what it is to a model, and who said it."""

import re
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from palimpsest.audit.context_tags import is_real_user_message
from palimpsest.core.items import Content, Image, Opaque, Part, Piece, Role, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.parts import blob_part
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text

# `aside` means nothing to a model.
Place: TypeAlias = Literal["user", "context", "model", "result", "snapshot", "aside"]
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


class Around(NamedTuple):
    """What must be known to read an item: where pictures go, whose items these are, and which texts are summaries."""

    blobs: Blobs
    model: str
    summaries: frozenset[str]
    old: bool


class ItemRead(NamedTuple):
    """An item, read: where it belongs, and its pieces in order."""

    place: Place
    pieces: tuple[Piece, ...] = ()

    @property
    def contents(self) -> tuple[Content, ...]:
        """The pieces without what they are to us."""
        return tuple(piece.content for piece in self.pieces)


NOTHING = ItemRead("aside")


def read_item(item: Json, around: Around, ref: str = "") -> ItemRead:
    """An item of any type; `ref` holds the parts of a message together that has no id."""
    kind = text(item, "type")
    match kind:
        case "message":
            return _message(item, around, text(item, "id") or ref)
        case "agent_message":
            said = "\n".join(text(part, "text") for part in tables_at(item, "content") if text(part, "text"))
            return _context((said,), (f"agent:{text(item, 'author')}",), "user", text(item, "id")) if said else NOTHING
        case "reasoning":
            return _reasoning(item, around.model)
        case "ghost_snapshot":
            return ItemRead("snapshot")
        case "function_call_output" | "custom_tool_call_output" | "tool_search_output":
            return _result(item, kind, around)
        case _ if kind in _CALLS:
            return _call(item, kind, around)
        case _ if kind in _OPAQUE:
            return _opaque(item, kind, around.model)
        case _:
            return NOTHING


def _message(item: Json, around: Around, ref: str) -> ItemRead:
    content = item.get("content")
    parts: list[Json] = [{"type": "input_text", "text": content}] if isinstance(content, str) else tables_at(item, "content")
    role = text(item, "role")
    texts = tuple(text(part, "text") for part in parts if text(part, "text"))
    if role == "assistant":
        phase = text(item, "phase")
        ref = text(item, "id") or (ref if len(texts) > 1 else "")
        return ItemRead("model", tuple(Piece("assistant", Text(said, "assistant", phase, ref)) for said in texts))
    kinds = _kinds(item, len(texts))
    if role == "developer":
        return _context(texts, kinds, "developer", ref if len(texts) > 1 else text(item, "id"))
    if role != "user":
        return NOTHING
    if len(texts) == 1 and texts[0] in around.summaries:
        return ItemRead("context", (Piece("summary", Text(texts[0], ref=text(item, "id")), "summary"),))
    pictures = any(not text(part, "text") and is_picture(part) for part in parts)
    if not pictures and texts and _is_context(texts, kinds, old=around.old):
        return _context(texts, kinds, "user", ref if len(texts) > 1 else text(item, "id"))
    said_parts = tuple(part for each in parts if (part := _part(each, around, ref)) is not None)
    if len(said_parts) == 1:
        said_parts = tuple(part for each in parts if (part := _part(each, around, text(item, "id"))) is not None)
    return ItemRead("user", tuple(Piece("user", part) for part in said_parts)) if said_parts else NOTHING


def _is_context(texts: tuple[str, ...], kinds: tuple[str, ...], *, old: bool) -> bool:
    told = [kind for kind in kinds if kind not in {"", "unknown"}]
    if told:
        return not any(kind.startswith("user.") for kind in told)
    return not is_real_user_message(texts, session_tags_open=old)


def _kinds(item: Json, count: int) -> tuple[str, ...]:
    kinds = table_at(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
    if isinstance(kinds, list) and len(kinds) == count:
        return tuple(kind if isinstance(kind, str) else "" for kind in kinds)
    return ("",) * count


def _context(texts: tuple[str, ...], kinds: tuple[str, ...], role: Role, ref: str) -> ItemRead:
    pieces = tuple(
        Piece("context", Text(said, role, ref=ref), source_of(said, kind, role, number))
        for number, (said, kind) in enumerate(zip(texts, kinds, strict=True))
    )
    return ItemRead("context", pieces) if pieces else NOTHING


def source_of(said: str, kind: str, role: str, number: int = 0) -> str:
    """The stable key of a context text: what its writer calls it, else the tag it begins with, else its role and place."""
    if kind not in {"", "unknown"}:
        return kind
    if said.lstrip().startswith("# AGENTS.md"):
        return "agents_md"
    tag = _TAG.match(said)
    if tag is not None:
        return _SOURCES.get(tag[1], tag[1])
    return f"{role}.{number}" if number else role


def is_picture(part: Json) -> bool:
    """Whether a part of a message shows something that is no text."""
    return bool(text(part, "image_url")) or text(part, "type") in {"input_audio", "encrypted_content"}


def _part(part: Json, around: Around, ref: str) -> Part | None:
    if text(part, "text"):
        return Text(text(part, "text"), ref=ref)
    url = text(part, "image_url")
    if url:
        return _picture(url, text(part, "detail"), around.blobs, ref)
    if is_picture(part):
        return Opaque(PROVIDER, around.model, dump(part), f"[{text(part, 'type').removeprefix('input_')}]", ref)
    return None


def _picture(url: str, detail: str, blobs: Blobs, ref: str) -> Part | None:
    if not url.startswith("data:"):
        return (
            Image("image/*", url=url, detail=detail, ref=ref)
            if url.startswith(("http://", "https://"))
            else Text(f"[image {url}]", ref=ref)
        )
    media, _, data = url.removeprefix("data:").partition(";base64,")
    made = blob_part(media, data, blobs)
    if isinstance(made, Image):
        return Image(made.media, made.blob, detail=detail, ref=ref)
    return made if made is not None else Text("[image that cannot be read]", ref=ref)


def _reasoning(item: Json, model: str) -> ItemRead:
    digest = "\n\n".join(text(part, "text") for part in tables_at(item, "summary") if text(part, "text"))
    whole = "\n\n".join(text(part, "text") for part in tables_at(item, "content") if text(part, "text"))
    data = text(item, "encrypted_content")
    seal = Signature(PROVIDER, model, data) if data else None
    if not (digest or whole or seal):
        return ItemRead("model")
    ref = text(item, "id")
    if digest or not whole:
        return ItemRead("model", (Piece("thinking", Thinking(digest, seal, "digest" if digest else "sealed", ref)),))
    return ItemRead("model", (Piece("thinking", Thinking(whole, seal, "whole", ref)),))


def _call(item: Json, kind: str, around: Around) -> ItemRead:
    call_id, ref = text(item, "call_id"), text(item, "id")
    match kind:
        case "function_call":
            args = item.get("arguments")
            call = ToolCall(call_id, text(item, "name"), args if isinstance(args, str) else dump(args or {}), "json", ref)
        case "custom_tool_call":
            free = item.get("input")
            call = ToolCall(call_id, text(item, "name"), free if isinstance(free, str) else dump(free), "free", ref)
        case "local_shell_call":
            call = ToolCall(call_id or ref, "local_shell", dump(table_at(item, "action")), "shell", ref)
        case _:
            if not call_id:
                return _opaque(item, kind, around.model) if is_json(item.get("arguments")) else NOTHING
            call = ToolCall(call_id, "tool_search", dump(item.get("arguments") or {}), "search", ref)
    return ItemRead("model", (Piece("call", call),))


def _result(item: Json, kind: str, around: Around) -> ItemRead:
    call_id, ref = text(item, "call_id"), text(item, "id")
    if kind == "tool_search_output":
        if not call_id:
            return _opaque(item, kind, around.model)
        found = ToolResult(call_id, (Text(dump(item.get("tools") or [])),), form="search", ref=ref)
        return ItemRead("result", (Piece("result", found),))
    output = item.get("output")
    parts = _output(output, around)
    failed = is_json(output) and output.get("success") is False
    form: Literal["json", "free"] = "free" if kind == "custom_tool_call_output" else "json"
    return ItemRead("result", (Piece("result", ToolResult(call_id, parts, failed, form, ref=ref)),))


def _output(output: object, around: Around) -> tuple[Part, ...]:
    if isinstance(output, str):
        return (Text(output),)
    if isinstance(output, list):
        return tuple(part for each in output if is_json(each) and (part := _part(each, around, "")) is not None)
    if is_json(output):
        # The oldest files keep the text and whether it went well; a part may also stand alone.
        content = output.get("content")
        return _output(content, around) if content is not None else _output([output], around)
    return ()


def _opaque(item: Json, kind: str, model: str) -> ItemRead:
    sent = {name: value for name, value in item.items() if name != "internal_chat_message_metadata_passthrough"}
    twin = {
        "web_search_call": f"[web search: {_query(item)}]",
        "image_generation_call": f"[image: {text(item, 'revised_prompt')}]",
        "tool_search_call": "[tool search]",
        "tool_search_output": "[tool search result]",
    }.get(kind, "")
    is_summary = "compaction" in kind
    piece = Piece("summary" if is_summary else "assistant", Opaque(PROVIDER, model, dump(sent), twin, text(item, "id")))
    return ItemRead("model", (piece,))


def _query(item: Json) -> str:
    action = table_at(item, "action")
    return text(action, "query") or text(action, "url") or text(action, "type")


def found_json(said: str) -> Json:
    """A JSON object that a text is; an empty one if it is none."""
    try:
        value = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if is_json(value) else {}
