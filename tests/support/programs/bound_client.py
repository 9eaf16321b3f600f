"""A program with a list of its own that asks a model bound to its prefix, as Claude Code does, directly or through a gateway."""

from dataclasses import dataclass, field
from typing import Any

import anthropic

from palimpsest.testing.strict.answers import StrictRequest
from palimpsest.testing.strict.provider import StrictAnswer, calls

MODEL = "claude-opus-5-5"
KEY = "sk-ant-api03-bound"
MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM = [{"type": "text", "text": "You are a coding agent. Read before you write. " * 60, **MARK}]
TOOLS = [
    {"name": name, "description": f"{name} does what its name says.", "input_schema": {"type": "object", "properties": {}}}
    for name in ("Bash", "Read")
]
CALLS_A_TURN = 6


def working_model(request: StrictRequest) -> StrictAnswer:
    """The next reply by the list alone: six calls of a shell in each turn of the user, then a text."""
    last_said = max(number for number, message in enumerate(request.messages) if is_said(message))
    made, turn = sum(message["role"] == "assistant" for message in request.messages[last_said:]), last_said
    return [calls("Bash", command=f"make check-{turn}-{made}")] if made < CALLS_A_TURN else f"Turn {turn} is done."


def is_said(message: Any) -> bool:
    return bool(message["role"] == "user" and message["content"][0]["type"] == "text")


def output(call: str, lines: int) -> str:
    """What a call prints; the last one of a turn is short."""
    lines = 3 if call.endswith(f"-{CALLS_A_TURN - 1}") else lines
    return "\n".join(f"{call} line {line}: the value is {line * 7919 % 10_007}" for line in range(lines))


@dataclass
class BoundClient:
    """A client with its list. `refused` are the errors that it was answered; it goes on as if it had not asked."""

    url: str
    session: str = "5c43"
    streams: bool = True
    threads: bool = False
    lines: int = 400
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    resent: int = 0
    _previous: str = ""

    def say(self, text: str) -> None:
        """One turn: until the model calls no more tools."""
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
        while (reply := self.ask()) is not None and (used := [each for each in reply["content"] if each["type"] == "tool_use"]):
            results = [
                {"type": "tool_result", "tool_use_id": each["id"], "content": output(each["input"]["command"], self.lines)} for each in used
            ]
            self.messages.append({"role": "user", "content": results})

    def ask(self) -> Any:
        """Send the list, and append the reply; `None` if it was refused."""
        headers = {"x-claude-code-session-id": self.session, **self.headers}
        client = anthropic.Anthropic(base_url=self.url, api_key=KEY, max_retries=0, default_headers=headers)
        request: dict[str, Any] = {"model": MODEL, "max_tokens": 4_096, "system": SYSTEM, "tools": TOOLS, **self.fields}
        try:
            with client:
                reply = self._sent(client, request)
        except anthropic.APIStatusError as error:
            self.refused.append(error.message)
            return None
        self.replies.append(reply)
        self._previous = reply["id"]
        self.messages.append({"role": "assistant", "content": reply["content"]})
        return reply

    def _sent(self, client: Any, request: dict[str, Any]) -> Any:
        if not self.threads:
            return self._reply(client, request | {"messages": marked(self.messages)})
        beta = {"anthropic-beta": "message-threads-2026-08-12"}
        whole = request | {"messages": marked(self.messages), "extra_headers": beta, "extra_body": {"thread": {"type": "create"}}}
        if not self._previous:
            return self._reply(client, whole)
        after = max(number for number, message in enumerate(self.messages) if message["role"] == "assistant") + 1
        thread = {"type": "continue", "previous_message_id": self._previous}
        try:
            return self._reply(client, whole | {"messages": marked(self.messages[after:]), "extra_body": {"thread": thread}})
        except anthropic.BadRequestError as error:
            if "thread_unsupported_request" not in str(error.body):
                raise
            self.resent, self.threads = self.resent + 1, False
            return self._reply(client, request | {"messages": marked(self.messages)})

    def _reply(self, client: Any, request: dict[str, Any]) -> Any:
        if not self.streams:
            return client.messages.create(**request).to_dict(mode="json")
        with client.messages.stream(**request) as stream:
            return stream.get_final_message().to_dict(mode="json")


def marked(messages: list[Any]) -> list[Any]:
    """The messages with a breakpoint at the end of the last two of the user, as Claude Code sets them."""
    found = [number for number, message in enumerate(messages) if message["role"] == "user"][-2:]
    return [with_mark(message) if number in found else message for number, message in enumerate(messages)]


def with_mark(message: Any) -> Any:
    *blocks, last = message["content"]
    return {**message, "content": [*blocks, {**last, **MARK}]}
