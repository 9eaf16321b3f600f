"""OpenAI Responses and Chat Completions as the strict double plays them, with dropped reasoning and billed cache writes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from palimpsest.testing.strict.answers import (
    BilledTokenClasses,
    JsonObject,
    ScriptedReply,
    StrictModel,
    StrictRefusal,
    StrictRequest,
    SummarySeal,
    ThinkingSeal,
    canonical,
    digest_of,
    seal,
    strict_model,
    summary_seal,
    thinking_seal,
    tokens_of_text,
)
from palimpsest.testing.strict.binding import Prefix, ThinkingFate, by_value
from palimpsest.testing.strict.messages import AnsweredMessage

_LIFETIMES_S: Final = {"30m": 1_800.0, "12h": 43_200.0}
_STEP: Final = 128
_FIELDS: Final = frozenset(
    [
        "background",
        "client_metadata",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ]
)
_OUTPUT_ONLY: Final = frozenset({"id", "status", "annotations", "logprobs"})
_CALLS: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def openai_model(request: StrictRequest) -> StrictModel:
    """The model that a request to OpenAI names. Raises `StrictRefusal` without a key or for a name that is not known."""
    if not request.account:
        raise StrictRefusal("no key", "You didn't provide an API key.", 401)
    name = request.body.get("model")
    model = strict_model(name) if isinstance(name, str) else None
    if model is None or model.provider != "openai":
        raise StrictRefusal("model", f"The model `{name}` does not exist or you do not have access to it.", 404, code="model_not_found")
    return model


class PromptItems(NamedTuple):
    """What a model reads: the text and the tokens of each part in order."""

    texts: list[str]
    tokens: list[int]


class _AcceptedInput(NamedTuple):
    """A request that broke no rule: what became of its reasoning, the prefix behind it, and what the model reads."""

    request: StrictRequest
    model: StrictModel
    fates: tuple[ThinkingFate, ...]
    prefix: Prefix
    items: PromptItems
    now: float


class PromptCache:
    """A cache of whole prompts, of which the longest common beginning is read in steps of 128 tokens, from 1,024 on."""

    def __init__(self) -> None:
        self._prompts: dict[tuple[str, ...], float] = {}

    def bill(self, items: PromptItems, model: StrictModel, request: StrictRequest, now: float) -> BilledTokenClasses:
        """Bill a prompt that begins at a time in seconds, and fill the cache with it. What is not read is written, where writes cost."""
        texts, total = (model.name, request.account, *items.texts), sum(items.tokens)
        self._prompts = {known: until for known, until in self._prompts.items() if until > now}
        common = max((_shared_length(known, texts) for known in self._prompts), default=0)
        read = sum(items.tokens[: max(0, common - 2)]) // _STEP * _STEP
        read = read if read >= model.least_cache else 0
        lifetime = (request.body.get("prompt_cache_options") or {}).get("ttl", "30m")
        self._prompts[texts] = now + _LIFETIMES_S[lifetime]
        written = total - read if model.writes_cost and total >= model.least_cache else 0
        long = lifetime == "12h"
        return BilledTokenClasses(total - read - written, read, 0 if long else written, written if long else 0)


def _shared_length(known: tuple[str, ...], texts: tuple[str, ...]) -> int:
    pairs = zip(known, texts, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(known), len(texts)))


class StrictResponses:
    """The state behind `/responses` and `/responses/compact`: the cache, and the responses that are stored."""

    def __init__(self, script: Callable[[StrictRequest], ScriptedReply], summarise: Callable[[StrictRequest], ScriptedReply]) -> None:
        self._script = script
        self._summarise = summarise
        self._cache = PromptCache()
        self._stored: dict[str, tuple[JsonObject, ...]] = {}
        self._replies = 0

    def answer(self, request: StrictRequest, now: float) -> AnsweredMessage:
        """Answer a request at a time in seconds. Raises `StrictRefusal`."""
        model = openai_model(request)
        request = self._whole(request)
        check_effort(request, model, (request.body.get("reasoning") or {}).get("effort"))
        _check_items(request)
        fates, prefix = _judge(request, model)
        items = _prompt_items(request, {fate.message for fate in fates if fate.dropped})
        if sum(items.tokens) > model.window:
            message = "Your input exceeds the context window of this model. Please adjust your input and try again."
            raise StrictRefusal("window", message, code="context_length_exceeded")
        accepted = _AcceptedInput(request, model, fates, prefix, items, now)
        return self._compacted(accepted) if request.path.endswith("/compact") else self._replied(accepted)

    def _whole(self, request: StrictRequest) -> StrictRequest:
        """The request with the whole list that it stands for. Unknown fields are refused."""
        body = request.body
        for field in body:
            if field not in _FIELDS:
                raise StrictRefusal("unknown field", f"Unknown parameter: '{field}'.", code="unknown_parameter")
        given = body.get("input") or []
        items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self._stored:
            raise StrictRefusal(
                "previous_response_not_found", f"Previous response with id '{previous}' not found.", code="previous_response_not_found"
            )
        return replace(request, messages=(*self._stored.get(previous or "", ()), *items))

    def _replied(self, accepted: "_AcceptedInput") -> AnsweredMessage:
        request, model, items = accepted.request, accepted.model, accepted.items
        threshold = _threshold(request)
        head: list[JsonObject] = []
        if threshold is not None and sum(items.tokens) > threshold:
            head = [self._compaction_item(request, model)]
        scripted = self._script(request)
        self._replies += 1
        output, tokens, thought = self._output(scripted, accepted, head)
        prompt = self._cache.bill(items, model, request, accepted.now)
        bill = BilledTokenClasses(prompt.input, prompt.read, prompt.written, prompt.written_long, tokens, thought)
        response: JsonObject = {
            "id": f"resp_{self._replies}",
            "object": "response",
            "created_at": int(accepted.now),
            "model": request.body["model"],
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": request.body.get("tool_choice", "auto"),
            "tools": request.body.get("tools", []),
            "usage": _usage(bill),
        }
        if request.body.get("store", True):
            self._stored[response["id"]] = (*request.messages, *output)
        return AnsweredMessage(request, response, accepted.fates, (bill,), model)

    def _compacted(self, accepted: "_AcceptedInput") -> AnsweredMessage:
        """All messages of the user, and an item that stands for the rest."""
        request, model, now = accepted.request, accepted.model, accepted.now
        item = self._compaction_item(request, model)
        self._replies += 1
        kept = [each for each in request.messages if each.get("type", "message") == "message" and each.get("role") == "user"]
        prompt = self._cache.bill(accepted.items, model, request, now)
        bill = replace(prompt, output=tokens_of_text(item["encrypted_content"]))
        said = {"id": f"cmp_{self._replies}", "object": "response.compaction", "created_at": int(now)}
        return AnsweredMessage(request, {**said, "output": [*kept, item], "usage": _usage(bill)}, accepted.fates, (bill,), model)

    def _compaction_item(self, request: StrictRequest, model: StrictModel) -> JsonObject:
        text = "".join(block["text"] for block in self._summarise(request).blocks if block["type"] == "text")
        sealed = seal(SummarySeal(text, model.binds, "", "", (), ""))
        return {"type": "compaction", "id": f"cmp_item_{self._replies + 1}", "encrypted_content": sealed}

    def _output(self, scripted: ScriptedReply, accepted: "_AcceptedInput", head: list[JsonObject]) -> tuple[list[JsonObject], int, int]:
        """The items of a reply with ids and sealed reasoning, and their tokens: all, and those of reasoning."""
        model, account, prefix = accepted.model, accepted.request.account, accepted.prefix
        output = list(head)
        total = thought = 0
        for item in head:
            follow_item(prefix, item)
        for place, block in enumerate(scripted.blocks):
            number = f"{self._replies}_{place}"
            tokens = tokens_of_text(canonical(block))
            total += tokens
            if block["type"] == "thinking":
                thought += tokens
                sealed = prefix.sign({"type": "reasoning"}, f"rs_{number}", model.name, account, tokens)["signature"]
                output.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": sealed})
                continue
            item = _item_of(block, number)
            follow_item(prefix, item)
            output.append(item)
        return output, total, thought


def _item_of(block: JsonObject, number: str) -> JsonObject:
    if block["type"] == "text":
        content = [{"type": "output_text", "text": block["text"], "annotations": []}]
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
    if block["type"] == "tool_use":
        facts = {"name": block["name"], "arguments": canonical(block["input"]), "status": "completed"}
        return {"type": "function_call", "id": f"fc_{number}", "call_id": block.get("id", f"call_{number}"), **facts}
    return block


def check_effort(request: StrictRequest, model: StrictModel, effort: str | None) -> None:
    """Raise `StrictRefusal` for an effort or for sampling that a model does not take."""
    if model.off == "never" and effort not in {None, "low", "medium", "high", "xhigh", "max"}:
        message = f"Unsupported value: 'reasoning.effort' does not support '{effort}' with this model."
        raise StrictRefusal("effort", message, code="unsupported_value")
    if not model.sampling and (request.body.get("temperature", 1) != 1 or "stop" in request.body):
        field = "stop" if "stop" in request.body else "temperature"
        raise StrictRefusal("sampling", f"Unsupported parameter: '{field}' is not supported with this model.", code="unsupported_parameter")


def _check_items(request: StrictRequest) -> None:
    """Each call has its output behind it, and each output its call before it."""
    open_calls: dict[str, str] = {}
    for item in request.messages:
        kind = str(item.get("type", "message"))
        if kind in _CALLS:
            open_calls[item["call_id"]] = _CALLS[kind]
        elif kind in _CALLS.values() and open_calls.pop(str(item.get("call_id")), "") != kind:
            raise StrictRefusal("pairing", f"No tool call found for function call output with call_id {item.get('call_id')}.")
    if open_calls:
        raise StrictRefusal("pairing", f"No tool output found for function call {min(open_calls)}.")
    if not request.messages:
        raise StrictRefusal("messages", "Missing required parameter: 'input'.", code="missing_required_parameter")


def input_prefix(request: StrictRequest) -> Prefix:
    """The prefix of a list before its first item, in which some fields of the request count too."""
    body = request.body
    fields = (body.get("instructions"), (body.get("text") or {}).get("format"), (body.get("reasoning") or {}).get("effort"))
    return Prefix(canonical(fields), body.get("tools"))


def _judge(request: StrictRequest, model: StrictModel) -> tuple[tuple[ThinkingFate, ...], Prefix]:
    """The fate of each reasoning item, of which the reply says nothing."""
    prefix = input_prefix(request)
    fates: list[ThinkingFate] = []
    changed = False
    newest = max((at for at, item in enumerate(request.messages) if item.get("type") == "compaction"), default=-1)
    for at, item in enumerate(request.messages):
        if item.get("type") != "reasoning":
            follow_item(prefix, item)
            continue
        if at < newest:
            continue
        facts = thinking_seal(item.get("encrypted_content"))
        if facts is None:
            message = f"The encrypted content for item {item.get('id')} could not be verified."
            raise StrictRefusal("damaged signature", message, code="invalid_encrypted_content")
        changed = changed or (model.binds and not _fits(facts, prefix, model))
        fates.append(ThinkingFate(at, 0, dropped=changed, reason="prefix_binding_mismatch" if changed else ""))
        if not changed:
            prefix.thinking = facts.id
    return tuple(fates), prefix


def _fits(facts: ThinkingSeal, prefix: Prefix, model: StrictModel) -> bool:
    whole = (facts.system, facts.tools) == (prefix.system, prefix.tools) and facts.prefix in prefix.states
    return facts.model in model.reads and whole and (not prefix.thinking or facts.after == prefix.thinking)


def follow_item(prefix: Prefix, item: JsonObject) -> None:
    """Go on behind an item of the list; an item of a compaction is where the prefix begins again."""
    if item.get("type") == "compaction":
        if summary_seal(item.get("encrypted_content")) is None:
            message = f"The encrypted content for item {item.get('id')} could not be verified."
            raise StrictRefusal("damaged signature", message, code="invalid_encrypted_content")
        prefix.states = (digest_of("compaction", item["encrypted_content"]),)
    else:
        prefix.add(plain_item(item))


def plain_item(item: JsonObject) -> JsonObject:
    """An item by value: without what only a reply says, and a text alone as one part."""
    plain = {key: value for key, value in item.items() if key not in _OUTPUT_ONLY}
    plain.setdefault("type", "message")
    content = plain.get("content")
    if isinstance(content, str):
        content = [{"type": "output_text" if plain.get("role") == "assistant" else "input_text", "text": content}]
    if isinstance(content, list):
        plain["content"] = [{key: value for key, value in part.items() if key not in _OUTPUT_ONLY} for part in content]
    return plain


def _prompt_items(request: StrictRequest, dropped: set[int]) -> PromptItems:
    body = request.body
    texts = [by_value(tool) for tool in body.get("tools") or []]
    texts += [canonical(body["instructions"])] if body.get("instructions") else []
    tokens = [tokens_of_text(text) for text in texts]
    newest = max((at for at, item in enumerate(request.messages) if item.get("type") == "compaction"), default=0)
    for at, item in list(enumerate(request.messages))[newest:]:
        if at in dropped:
            continue
        facts = thinking_seal(item.get("encrypted_content")) if item.get("type") == "reasoning" else None
        texts.append(canonical(plain_item(item)))
        tokens.append(facts.tokens if facts is not None else tokens_of_text(texts[-1]))
    return PromptItems(texts, tokens)


def _threshold(request: StrictRequest) -> int | None:
    edits: Any = request.body.get("context_management") or ()
    return next((int(edit["compact_threshold"]) for edit in edits if edit.get("type") == "compaction"), None)


def _usage(bill: BilledTokenClasses) -> JsonObject:
    written = {"ttl_30m_tokens": bill.written, "ttl_12h_tokens": bill.written_long}
    total = bill.written + bill.written_long
    return {
        "input_tokens": bill.prompt,
        "input_tokens_details": {"cached_tokens": bill.read, "cache_write_tokens": total, "cache_write_tokens_details": written},
        "output_tokens": bill.output,
        "output_tokens_details": {"reasoning_tokens": bill.thinking},
        "total_tokens": bill.prompt + bill.output,
    }


_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


class StrictCompletions:
    """The state behind `/chat/completions`: the cache."""

    def __init__(self, script: Callable[[StrictRequest], ScriptedReply]) -> None:
        self._script = script
        self._cache = PromptCache()
        self._replies = 0

    def answer(self, request: StrictRequest, now: float) -> AnsweredMessage:
        """Answer a request at a time in seconds. Raises `StrictRefusal`."""
        model = openai_model(request)
        body = request.body
        effort = body.get("reasoning_effort")
        check_effort(request, model, effort)
        if body.get("tools") and (model.name == "gpt-6-astra" or effort != "none"):
            message = f"Function tools with reasoning_effort are not supported for {model.name} in /v1/chat/completions. Use /v1/responses."
            raise StrictRefusal("chat tools", message)
        _check_pairs(request)
        texts = [canonical(part) for part in (*(body.get("tools") or ()), *request.messages)]
        items = PromptItems(texts, [tokens_of_text(text) for text in texts])
        scripted = self._script(request)
        self._replies += 1
        thought = sum(tokens_of_text(canonical(block)) for block in scripted.blocks if block["type"] == "thinking")
        output = sum(tokens_of_text(canonical(block)) for block in scripted.blocks)
        bill = replace(self._cache.bill(items, model, request, now), output=output, thinking=thought)
        return AnsweredMessage(request, self._completion(scripted, bill, model, now), (), (bill,), model)

    def _completion(self, scripted: ScriptedReply, bill: BilledTokenClasses, model: StrictModel, now: float) -> JsonObject:
        words = "".join(block["text"] for block in scripted.blocks if block["type"] == "text")
        found = [
            {
                "id": block.get("id", f"call_{self._replies}_{place}"),
                "type": "function",
                "function": {"name": block["name"], "arguments": canonical(block["input"])},
            }
            for place, block in enumerate(scripted.blocks)
            if block["type"] == "tool_use"
        ]
        message = {"role": "assistant", "content": words or None, **({"tool_calls": found} if found else {})}
        usage = {
            "prompt_tokens": bill.prompt,
            "completion_tokens": bill.output,
            "total_tokens": bill.prompt + bill.output,
            "prompt_tokens_details": {"cached_tokens": bill.read, "cache_write_tokens": bill.written + bill.written_long},
            "completion_tokens_details": {"reasoning_tokens": bill.thinking},
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if found else "stop"}
        facts = {"object": "chat.completion", "created": int(now), "model": model.name}
        return {"id": f"chatcmpl_{self._replies}", **facts, "choices": [choice], "usage": usage}


def _check_pairs(request: StrictRequest) -> None:
    awaited: set[str] = set()
    for message in request.messages:
        role = message.get("role")
        if role not in _ROLES:
            raise StrictRefusal("roles", f"Invalid value: '{role}'. Supported values are: {', '.join(sorted(_ROLES))}.")
        if role == "tool":
            if message.get("tool_call_id") not in awaited:
                raise StrictRefusal("pairing", "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
            awaited.discard(message["tool_call_id"])
            continue
        if awaited:
            raise _unanswered(awaited)
        awaited = {call["id"] for call in message.get("tool_calls") or ()}
    if awaited:
        raise _unanswered(awaited)


def _unanswered(awaited: set[str]) -> StrictRefusal:
    said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    return StrictRefusal("pairing", f"{said} The following tool_call_ids did not have response messages: {', '.join(sorted(awaited))}")
