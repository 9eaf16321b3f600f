"""Middleware for agents of LangChain and LangGraph: the messages of every model call are followed, those of the state stay as they are."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Unpack

from palimpsest.follow.conversation import Conversation, ConversationOptions, Conversations


def middleware(name: str = "", **options: Unpack[ConversationOptions]) -> Any:
    """Return a middleware for `create_agent(..., middleware=[middleware()])`; its `conversations` are those of the agent.

    Messages that cannot be written as Chat Completions are sent as they are. Raises `ImportError` without the package `langchain`.
    """
    types = import_module("langchain.agents.middleware.types")
    calls = _MiddlewareCalls(Conversations(name, **options))
    attributes = {
        "conversations": calls.conversations,
        "wrap_model_call": lambda _, request, handler: calls.call(request, handler),
        "awrap_model_call": lambda _, request, handler: calls.acall(request, handler),
    }
    return type("PalimpsestMiddleware", (types.AgentMiddleware,), attributes)()


class _MiddlewareCalls:
    """Model calls of an agent with their messages as Chat Completions."""

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations
        self._convert = import_module("langchain_core.messages").convert_to_openai_messages
        self._revert = import_module("langchain_core.messages").convert_to_messages
        self._tool = import_module("langchain_core.utils.function_calling").convert_to_openai_tool

    def call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        plain, conversation = self._langchain_read(request)
        if conversation is None:
            return handler(request)
        sent = conversation.prepare(plain, **self._facts(request))
        response = handler(self._changed(request, plain, sent))
        conversation.observe(self._langchain_reply(response))
        return response

    async def acall(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        plain, conversation = self._langchain_read(request)
        if conversation is None:
            return await handler(request)
        sent = await conversation.aprepare(plain, **self._facts(request))
        response = await handler(self._changed(request, plain, sent))
        await conversation.aobserve(self._langchain_reply(response))
        return response

    def _langchain_read(self, request: Any) -> tuple[list[Any], Conversation | None]:
        try:
            plain = self._convert(request.messages)
        except Exception:  # noqa: BLE001 - blocks that the converter of LangChain does not know; the agent must go on
            return [], None
        if len(plain) != len(request.messages):
            return [], None
        model = getattr(request.model, "model_name", "") or getattr(request.model, "model", "") or "unknown"
        return plain, self.conversations.of(plain, model=str(model), system=_system(request), shape="chat")

    def _facts(self, request: Any) -> dict[str, Any]:
        tools: list[Any] = []
        with suppress(Exception):
            tools = [self._tool(tool) for tool in request.tools]
        return {"tools": tools, "system": _system(request)}

    def _changed(self, request: Any, plain: Sequence[Any], sent: Sequence[Any]) -> Any:
        """The request with the messages to send: those of LangChain where nothing was edited."""
        if sent is plain:
            return request
        given = {id(one): message for one, message in zip(plain, request.messages, strict=True)}
        return request.override(messages=[given.get(id(one)) or self._revert([one])[0] for one in sent])

    def _langchain_reply(self, response: Any) -> object:
        """The response as one of Chat Completions; as it is if it cannot be read, which is then a recorded reason."""
        messages = getattr(response, "result", None) or [response]
        with suppress(Exception):
            usage = getattr(messages[0], "usage_metadata", None) or {}
            cached = (usage.get("input_token_details") or {}).get("cache_read", 0)
            counts = {"prompt_tokens": usage.get("input_tokens", 0), "completion_tokens": usage.get("output_tokens", 0)}
            choice = {"index": 0, "message": self._convert(messages[:1])[0], "finish_reason": "stop"}
            counts |= {"prompt_tokens_details": {"cached_tokens": cached}}
            return {"id": getattr(messages[0], "id", "") or "", "choices": [choice], "usage": counts}
        return messages[0]


def _system(request: Any) -> object:
    message = getattr(request, "system_message", None)
    return None if message is None else message.content
