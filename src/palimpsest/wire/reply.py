"""Replies as all wires build them, and text fallbacks of provider-specific items, for people and for other models."""

from collections.abc import Sequence

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.events.stops import decoded_stop
from palimpsest.core.items import Content
from palimpsest.core.projections.ledger import priced_apart
from palimpsest.wire.json_reading import Json, is_json, shorten, table_at, tables_at, text
from palimpsest.wire.models.cards import ModelCard

_LONGEST_TIER = 100
_UNREADABLE = {
    "redacted_thinking": "[thinking that only its model can read]",
    "compaction": "[a summary of earlier turns that only its model can read]",
    "compaction_summary": "[a summary of earlier turns that only its model can read]",
    "image_generation_call": "[an image was made]",
}


def reply_of(parts: Sequence[Content], reason: str, usage: Usage, card: ModelCard, message: str, *, refused: bool = False) -> ModelReplied:
    """The reply of a model; `reason` is the provider's word for why it stopped, `message` the provider's id of the reply."""
    stop, word = decoded_stop(reason, parts, refused=refused)
    return ModelReplied(tuple(parts), usage=usage, stop=stop, model=card.name, message=message, provider_stop=word)


def tier_of(reported: Json) -> str:
    """The tier, speed or place that a reply reports, if that has another price than the listed one."""
    return " ".join(f"{name}={value}" for name, value in priced_apart(reported).items())[:_LONGEST_TIER]


def text_fallback(item: Json) -> str:
    """One or a few lines that describe a provider-specific item."""
    kind = text(item, "type")
    readable = _readable(item)
    if kind in ("compaction", "compaction_summary", "message") and readable:
        return readable
    if kind in _UNREADABLE:
        prompt = text(item, "revised_prompt")
        return f"{_UNREADABLE[kind]} {prompt}".rstrip()
    query = _query_of(item)
    return f"[{kind or 'item'}{': ' if query else ''}{query}]" + (f"\n{readable}" if readable else "")


def _query_of(item: Json) -> str:
    action = table_at(item, "action") or table_at(item, "input")
    for table in (action, item):
        for key in ("query", "url", "pattern", "code", "command", "name"):
            if found := text(table, key):
                return shorten(found)
    queries = item.get("queries")
    return shorten(", ".join(str(query) for query in queries)) if isinstance(queries, list) else ""


def _readable(item: Json) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    entries = [content] if is_json(content) else tables_at(item, "content") + tables_at(item, "results")
    lines = []
    for entry in entries:
        line = " ".join(filter(None, (text(entry, "title"), text(entry, "url")))) or text(entry, "text") or text(entry, "stdout")
        lines.append(line)
    return "\n".join(filter(None, lines))
