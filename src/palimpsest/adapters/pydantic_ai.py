"""A capability for agents of pydantic-ai: the messages of every request are followed, those of the run stay as they are."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import Any, Unpack

from palimpsest.follow.conversation import Conversation, ConversationOptions, Conversations


def capability(name: str = "", **options: Unpack[ConversationOptions]) -> Any:
    """Return a capability for `Agent(capabilities=[capability()])`; its `conversations` are those of the agent.

    It is no history processor, because what such a function returns replaces the messages of the run. A message is followed as one of
    Anthropic's shape with a block for each part; what is no text, call, result or thinking is a block that passes through. Raises
    `ImportError` without the package `pydantic-ai`.
    """
    parent = import_module("pydantic_ai.capabilities").AbstractCapability
    calls = _CapabilityCalls(Conversations(name, **options))

    async def before_model_request(_: Any, context: Any, request: Any) -> Any:
        # Parts that cannot be read or written again are still the caller's.
        with suppress(Exception):
            request.messages = await calls.sent(str(getattr(context.model, "model_name", "") or "unknown"), list(request.messages))
        return request

    async def after_model_request(_: Any, context: Any, *, request_context: Any, response: Any) -> Any:
        del context, request_context
        with suppress(Exception):
            await calls.observe(response)
        return response

    attributes = {
        "conversations": calls.conversations,
        "before_model_request": before_model_request,
        "after_model_request": after_model_request,
    }
    return type("PalimpsestCapability", (parent,), attributes)()


class _CapabilityCalls:
    """Model calls of agents: the messages to send, and the reply to the last ones of a task."""

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations
        self._called: ContextVar[Conversation | None] = ContextVar("called", default=None)

    async def sent(self, model: str, messages: list[Any]) -> list[Any]:
        plain = [{"role": "user" if each.kind == "request" else "assistant", "content": _blocks(each)} for each in messages]
        system = next((each.instructions for each in reversed(messages) if getattr(each, "instructions", None)), None)
        conversation = self.conversations.of(plain, model=model, system=system, shape="anthropic")
        self._called.set(conversation)
        sent = await conversation.aprepare(plain, system=system)
        return messages if sent is plain else _reverted(sent, plain, messages)

    async def observe(self, response: Any) -> None:
        conversation = self._called.get()
        if conversation is None:
            return
        usage = response.usage
        counts = {
            "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cache_read_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
        }
        reply = {"id": response.provider_response_id or "", "type": "message", "role": "assistant", "content": _blocks(response)}
        await conversation.aobserve(reply | {"usage": counts})


def _blocks(message: Any) -> list[dict[str, Any]]:
    return [_block(part) for part in message.parts]


def _block(part: Any) -> dict[str, Any]:
    content = getattr(part, "content", None)
    match part.part_kind:
        case "user-prompt" | "text" if isinstance(content, str):
            return {"type": "text", "text": content}
        case "thinking":
            return {"type": "thinking", "thinking": content or "", "signature": part.signature or ""}
        case "tool-call":
            return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": _arguments(part)}
        case "tool-return":
            return {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": part.model_response_str()}
        case "retry-prompt" if part.tool_name:
            return {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": part.model_response(), "is_error": True}
        case kind:
            return {"type": kind, "content": str(content)}


def _arguments(part: Any) -> object:
    # A model may write arguments that are no JSON.
    with suppress(Exception):
        return part.args_as_dict()
    return {"text": str(part.args)}


def _reverted(sent: Sequence[Any], plain: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
    """The messages of pydantic-ai for a list: the same objects where nothing was edited, else with the parts that are left."""
    whole = {id(one): message for one, message in zip(plain, messages, strict=True)}
    parts = {
        id(block): (part, message)
        for one, message in zip(plain, messages, strict=True)
        for block, part in zip(one["content"], message.parts, strict=True)
    }
    named = {_name(block): parts[id(block)] for one in plain for block in one["content"]}
    return [whole.get(id(one)) or _pydantic_ai_message(one, parts, named) for one in sent]


def _name(block: Mapping[str, Any]) -> tuple[str, str]:
    """What a block is found by once it is another object: the id of its call, or what it says; a text is not looked for."""
    return block["type"], str(block.get("id") or block.get("tool_use_id") or block.get("thinking") or block.get("content"))


def _pydantic_ai_message(
    one: Mapping[str, Any], parts: Mapping[int, tuple[Any, Any]], named: Mapping[tuple[str, str], tuple[Any, Any]]
) -> Any:
    types = import_module("pydantic_ai.messages")
    is_reply = one["role"] == "assistant"
    made: list[Any] = []
    owner: Any = None
    for block in one["content"]:
        other = None if block["type"] == "text" else named.get(_name(block))
        part, message = parts.get(id(block)) or other or (None, None)
        # The newest message decides about the rest: the instructions of a request stand in it.
        owner = message or owner
        if part is None:
            made.append(types.TextPart(block["text"]) if is_reply else types.UserPromptPart(block["text"]))
        else:
            is_cleared = id(block) not in parts and block["type"] == "tool_result"
            made.append(replace(part, content=block["content"]) if is_cleared else part)
    if owner is not None:
        return replace(owner, parts=made)
    return types.ModelResponse(parts=made) if is_reply else types.ModelRequest(parts=made)
