"""OpenAI Chat Completions as a strict double plays it: no reasoning comes or goes, and newer models take no tools here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from palimpsest.testing.strict.answers import (
    BilledTokenClasses,
    JsonObject,
    ScriptedReply,
    StrictRefusal,
    StrictRequest,
    canonical,
    tokens_of_text,
)
from palimpsest.testing.strict.messages import AnsweredMessage
from palimpsest.testing.strict.models import StrictModel
from palimpsest.testing.strict.responses import PromptCache, PromptItems, check_effort, openai_model

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
