"""Replies as all wires build them, failures of providers by kind, and JSON schemas for replies."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from palimpsest.core.errors import PromptTooLong, ProviderError, ThinkingRefused, WireError
from palimpsest.core.events import ModelReplied, Usage, decoded_stop
from palimpsest.core.items import EMPTY_MAPPING, Content
from palimpsest.core.ledger import priced_apart
from palimpsest.wire.json_reading import Json, is_json, number, parse, shorten, table_at, tables_at, text
from palimpsest.wire.models import ModelCard

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


# Tools of providers that are not billed beside the tokens, and items that are calls of tools of the client.
_UNBILLED_TOOLS: Final = frozenset({"web_fetch", "advisor", "tool_search", "tool_search_tool_regex", "tool_search_tool_bm25"})
_UNBILLED_CALLS: Final = frozenset(
    {
        *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"),
        *("mcp_call", "tool_search_call"),
    }
)
# Counts in a usage that are billed beside the tokens.
_BILLED_COUNTS: Final = ("num_sources_used", "num_server_side_tools_used")


def tier_of(reported: Json, usage: Json = EMPTY_MAPPING, items: Iterable[Json] = ()) -> str:
    """What a reply reports that has a price beside the listed ones: a tier, speed or place, or tools that its provider ran and bills.

    `usage` is the usage of the reply, and `items` are its content blocks or output items.
    """
    found = [f"{name}={value}" for name, value in priced_apart(reported).items()]
    tools = dict.fromkeys(_billed_tool(item) for item in items)
    for name, count in {**table_at(usage, "server_tool_use"), **{name: usage.get(name) for name in _BILLED_COUNTS}}.items():
        tool = name.removesuffix("_requests")
        if isinstance(count, int) and count > 0 and tool not in _UNBILLED_TOOLS:
            tools[tool] = None
    return " ".join([*found, *(f"tool={tool}" for tool in tools if tool)])[:_LONGEST_TIER]


def _billed_tool(item: Json) -> str:
    """The tool of the provider that a block or an item is a call of, if that is billed beside the tokens; else empty."""
    kind, name = text(item, "type"), text(item, "name")
    if kind == "server_tool_use":
        return "" if name in _UNBILLED_TOOLS else name or kind
    is_hosted = text(table_at(item, "environment"), "type").startswith("container")
    return kind.removesuffix("_call") if kind.endswith("_call") and (is_hosted or kind not in _UNBILLED_CALLS) else ""


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


_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "request_too_large", "string_above_max_length"}
)

# HTTP status of an error event within a stream, by its code or type.
_STATUS: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

# Codes of a request whose compaction block the provider does not accept, which it would refuse every time.
_REFUSED_COMPACTIONS = frozenset({"compaction_block_misplaced", "compaction_signature_invalid", "compaction_content_mismatch"})

# Rate and quota limits also mention tokens, but are never about the size of this prompt.
_THROTTLED = re.compile(
    r"rate.?limit|throttl|too many requests|quota|tokens per (?:min|day|hour)|requests per|\b[tr]p[md]\b|overloaded|at capacity|credit",
    re.IGNORECASE,
)

# One pattern per wording; its groups are the size and the limit in tokens.
_TOO_LONG: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"prompt is too long: (?P<size>\d+) tokens > (?P<limit>\d+)",
        r"prompt is too long",
        r"input length and `?max_tokens`? exceed context limit: (?P<size>\d+) \+ (?P<more>\d+) > (?P<limit>\d+)",
        r"maximum context length is (?P<limit>\d+) tokens.{0,80}?(?:resulted in|requested|request has|contains) (?:about )?(?P<size>\d+)",
        r"maximum context length",
        r"exceeds? the (?:model'?s? )?(?:maximum )?context (?:window|length|size|limit)",
        r"request \((?P<size>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
        r"(?:exceeds?|exceeding|larger than|longer than|greater than) the available context size",
        r"input is too long for (?:the )?requested model",
        r"input token count \(?(?P<size>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<limit>\d+)",
        r"input token count.{0,40}exceeds the maximum",
        r"maximum prompt length is (?P<limit>\d+) but the request contains (?P<size>\d+)",
        r"reduce the length of (?:the|your) (?:messages|prompt|input)",
        r"(?:prompt|input|request|messages?) (?:is|are|has|have) too (?:long|large|many tokens)",
        r"too (?:large|long|many tokens) for model with (?P<limit>\d+) maximum context length",
        r"(?:prompt|input) tokens? \(?(?P<size>\d+)\)? (?:exceeds?|is over|> ?)\D{0,40}(?P<limit>\d+)",
        r"`?inputs?`? tokens \+ `?max_new_tokens`? must be <= (?P<limit>\d+)\D{1,20}(?P<size>\d+)",
        r"context (?:window|length|size) (?:was |is |has been )?(?:exceeded|overflow)",
        r"exceeded (?:the )?(?:max|maximum|model|token|context)\w* (?:token|context|input|prompt|length|window|limit)",
        r"context[ _-]?(?:window|length)[ _-]exceeded",
        r"token limit (?:of \d+ )?(?:was |is )?exceeded",
        r"tokens? (?:to keep|in prompt|in the prompt).{0,60}(?:greater|larger|more) than.{0,20}context",
        r"prompt has (?P<size>\d+) tokens\D{1,60}(?P<limit>\d+)",
    )
)

# The sentences by which Anthropic refuses thinking, in lower case: it is bound to another list, or its signature is damaged.
_REFUSES_THINKING: tuple[str, ...] = (
    "bound to a different conversation",
    "not created in this conversation",
    "invalid `signature` in `thinking` block",
)
_PLACE = re.compile(r"messages\.\d{1,9}\.content\.\d{1,9}")
_CAUSE = re.compile(r"[a-z_]{1,40}")
_BAD_REQUEST = 400


def thinking_refused(message: str, where: str, *, status: int | None = None) -> ThinkingRefused | None:
    """The exception for a message by which a provider refuses thinking, or `None`.

    It comes before any rule that looks for the name of a beta header, because the message may name one.
    """
    said = message.lower()
    if status not in (None, _BAD_REQUEST) or not any(sentence in said for sentence in _REFUSES_THINKING):
        return None
    place = _PLACE.search(message)
    return ThinkingRefused(shorten(message, 600), where=where, path=place[0] if place else "")


def mismatch_facts(header: str) -> tuple[str, str]:
    """Path and cause in a header `anthropic-thinking-prefix-mismatch`, empty where it does not say. Of one name the first counts."""
    pairs = [(name.strip(), value.strip()) for name, _, value in (pair.partition("=") for pair in header.split(";"))]
    found = dict(reversed(pairs))
    path, cause = found.get("block", ""), found.get("kind", "")
    return path if _PLACE.fullmatch(path) else "", cause if _CAUSE.fullmatch(cause) else ""


def provider_error(error: Json, where: str, *, status: int | None = None, retry_after: float | None = None) -> ProviderError:
    """The exception for an error object; `where` names the provider, `retry_after` is in seconds.

    Without an HTTP status, the status is derived from the error code or type.
    """
    message = (
        text(error, "message") or text(error, "detail") or text(error, "error") or shorten(str(error) if error else "no reason was given")
    )
    if refused := thinking_refused(message, where, status=status):
        return refused
    # The details name what is wrong more exactly than the type.
    code = text(table_at(error, "details"), "error_code") or text(error, "code") or text(error, "type")
    codes = {text(error, "code"), text(error, "type")}
    line = shorten(f"{code}: {message}" if code and code not in message else message, 300)
    if code in _REFUSED_COMPACTIONS:
        line = f"{line}; undo the compaction, which `pal audit last` lists, with `pal undo last`, and the originals are sent again"
    throttled = status == 429 or bool(_THROTTLED.search(" ".join(codes))) or bool(_THROTTLED.search(message))
    if not throttled and (codes & _CODES or any(pattern.search(message) for pattern in _TOO_LONG)):
        return PromptTooLong(line, where=where, gap=_gap(error, message), status=status)
    status_of_code = next((_STATUS[name] for name in (text(error, "code"), text(error, "type")) if name in _STATUS), None)
    return ProviderError(line, where=where, status=status_of_code if status is None else status, retry_after=_valid_delay(retry_after))


def http_error(status: int, body: bytes, where: str, *, retry_after: float | None = None) -> ProviderError:
    """The exception for an HTTP response other than 2xx; `retry_after` is in seconds."""
    try:
        answer = parse(body, where)
    except WireError:
        answer = {"message": shorten(body) or "the answer was empty"}
    found = provider_error(error_object(answer) or answer, where, status=status, retry_after=retry_after)
    if isinstance(found, PromptTooLong | ThinkingRefused):
        return found
    # Some servers reject a prompt that is too long without a message.
    if status == 413 or (status == 400 and not body.strip()):
        return PromptTooLong(found.message, where=where, status=status)
    return ProviderError(f"HTTP {status}: {found.message}", where=where, status=status, retry_after=_valid_delay(retry_after))


def error_object(answer: Json) -> Json:
    """The error object of a response in any of the usual wrappings; empty if there is none."""
    error = answer.get("error")
    if is_json(error):
        return error
    return {"message": error} if isinstance(error, str) and error else {}


def _valid_delay(seconds: float | None) -> float | None:
    # A retry loop must not sleep for a negative or infinite time.
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def _gap(error: Json, message: str) -> int | None:
    size, limit = number(error, "n_prompt_tokens"), number(error, "n_ctx")
    if size and limit:
        return max(1, size - limit)
    for pattern in _TOO_LONG:
        found = pattern.search(message)
        if found and {"size", "limit"} <= found.groupdict().keys():
            gap = int(found["size"]) + int(found.groupdict().get("more") or 0) - int(found["limit"])
            return gap if gap > 0 else None
    return None


# Bounds that providers refuse in a schema; the description states them instead.
_BOUNDS: Final = ("minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# What a reader of our own makes of a field that is not there; in a reply every field is.
_DROPPED: Final = frozenset({*_BOUNDS, "default", "discriminator", "required"})


def reply_schema(reply: type[msgspec.Struct]) -> str:
    """Return the schema of a reply as JSON.

    Anthropic and OpenAI (in strict mode) want every object closed, every field required, an object at the top, unions without a
    discriminator, a reference without anything beside it, and no bounds of lengths and numbers.
    """
    schema = msgspec.json.schema(reply)
    definitions = {name: _accepted(each) for name, each in schema.get("$defs", {}).items()}
    top = definitions.pop(reply.__name__)
    return msgspec.json.encode({**top, **({"$defs": definitions} if definitions else {})}).decode()


def _accepted(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    accepted = {key: value for key, value in schema.items() if key not in _DROPPED}
    bounds = ", ".join(f"{key}: {schema[key]}" for key in _BOUNDS if key in schema)
    if bounds:
        accepted["description"] = "\n\n".join(text for text in (schema.get("description", ""), f"{{{bounds}}}") if text)
    if "anyOf" in schema:
        accepted["anyOf"] = [_accepted(each) for each in schema["anyOf"]]
    if "items" in schema:
        accepted["items"] = _accepted(schema["items"])
    if "properties" in schema:
        accepted["properties"] = {name: _accepted(each) for name, each in schema["properties"].items()}
        accepted["required"] = list(schema["properties"])
        accepted["additionalProperties"] = False
    return accepted
