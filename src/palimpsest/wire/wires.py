"""The table of the wires: where each is served, how its requests are written and its replies read, and what else differs between them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from palimpsest.core.deltas import Delta
from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied
from palimpsest.wire.anthropic import AnthropicWire, MessageAssembler, anthropic_fields, decode_message
from palimpsest.wire.chat import ChatWire, ChunkAssembler, chat_fields, decode_completion
from palimpsest.wire.encoding import Fields, WireEncoder
from palimpsest.wire.json_reading import Json, parse, table_at, tables_at, text
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.request import LONGEST_NAME, Params, Tool
from palimpsest.wire.responses import ResponseAssembler, ResponsesWire, decode_response_object, responses_fields
from palimpsest.wire.rules import anthropic_violations, chat_violations, responses_violations


class Assembler(Protocol):
    """Assembles the events of one streamed reply of one wire."""

    @property
    def complete(self) -> bool:
        """Whether the provider has marked the reply as complete."""
        ...

    def take(self, event: Json) -> Iterable[Delta]:
        """Apply one event and return its deltas. Raises `ProviderError` if the event is an error."""
        ...

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """What differs between the wires.

    `encoder` encodes views, `fields` writes the parameters of a body, `decode` reads a whole reply, `assembler` a streamed one, and
    `violations` names the rules of the provider that a body breaks.
    """

    name: WireName
    form: str
    """The name of the wire as a form of exports."""
    path: str
    """The path of requests below the address of the provider."""
    messages: str
    """The field of a request that holds the list."""
    system: str
    """The field that holds the system prompt; empty if the prompt is the first message of the list."""
    system_beside_list: bool
    """Whether no instructions stand in the list."""
    is_flat: bool
    """Whether each part of a reply is an entry of the list by itself, instead of a block of one message."""
    provider: str
    """The provider that a model is taken to have on this wire; signatures of one provider are not sent to another."""
    model: str
    """The model of sessions that name none."""
    cache: Literal["breakpoints", "automatic"]
    call_ids: Literal["claude"] | None
    """The call ids that every model of the wire takes; `None` if that depends on the model."""
    key_header: str
    key_scheme: str
    """What stands before the key in its header."""
    headers: Mapping[str, str]
    """Headers of every request."""
    has_endpoints: bool
    """Whether a dedicated endpoint has a path of its own, instead of a field of the body."""
    method: tuple[str, ...]
    """The attributes of an official client that lead to the method for requests."""
    arguments: tuple[str, ...]
    """The fields that this method takes itself."""
    encoder: Callable[[ModelCard, tuple[Tool, ...], Params, Fetch], WireEncoder]
    fields: Callable[[ModelCard, tuple[Tool, ...], Params], Fields]
    decode: Callable[[Json, ModelCard], ModelReplied]
    assembler: Callable[[ModelCard], Assembler]
    violations: Callable[[Json], Iterator[str]]

    @property
    def reply_role(self) -> str:
        """The role of a message with a whole reply; empty where replies have no message of their own."""
        return "" if self.is_flat else "assistant"


WIRES: Final[Mapping[WireName, Wire]] = {
    "anthropic": Wire(
        name="anthropic",
        form="messages",
        path="/v1/messages",
        messages="messages",
        system="system",
        system_beside_list=True,
        is_flat=False,
        provider="anthropic",
        model="claude-sonnet-4-5",
        cache="breakpoints",
        call_ids="claude",
        key_header="x-api-key",
        key_scheme="",
        headers={"anthropic-version": "2023-06-01"},
        has_endpoints=False,
        method=("messages",),
        arguments=("model", "messages", "max_tokens", "stream"),
        encoder=AnthropicWire,
        fields=anthropic_fields,
        decode=decode_message,
        assembler=MessageAssembler,
        violations=anthropic_violations,
    ),
    "responses": Wire(
        name="responses",
        form="responses",
        path="/responses",
        messages="input",
        system="instructions",
        system_beside_list=False,
        is_flat=True,
        provider="openai",
        model="gpt-5.5",
        cache="automatic",
        call_ids=None,
        key_header="authorization",
        key_scheme="Bearer ",
        headers={},
        has_endpoints=True,
        method=("responses",),
        arguments=("model", "input", "stream"),
        encoder=ResponsesWire,
        fields=responses_fields,
        decode=decode_response_object,
        assembler=ResponseAssembler,
        violations=responses_violations,
    ),
    "chat": Wire(
        name="chat",
        form="chat",
        path="/chat/completions",
        messages="messages",
        system="",
        system_beside_list=False,
        is_flat=False,
        provider="openai-compatible",
        model="openai-compatible/model",
        cache="automatic",
        call_ids=None,
        key_header="authorization",
        key_scheme="Bearer ",
        headers={},
        has_endpoints=True,
        method=("chat", "completions"),
        arguments=("model", "messages", "stream"),
        encoder=ChatWire,
        fields=chat_fields,
        decode=decode_completion,
        assembler=ChunkAssembler,
        violations=chat_violations,
    ),
}


def wire_called(name: str) -> Wire | None:
    """The wire of that name, which a log of another version may name; `None` if there is none."""
    return next((wire for wire in WIRES.values() if wire.name == name), None)


_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def check_request(wire: WireName, body: bytes) -> tuple[str, ...]:
    """The violations that the provider would reject the body for, one line each; empty if it is valid."""
    try:
        request = parse(body, wire)
    except WireError as error:
        return (f"body: {error.message}",)
    return (*_shared(request, wire), *WIRES[wire].violations(request))


def _shared(request: Json, wire: WireName) -> Iterator[str]:
    if not text(request, "model"):
        yield "model: missing"
    names = [name for tool in tables_at(request, "tools") if (name := _tool_name(tool))]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"tools: the name {name!r} is taken twice"
    for name in names:
        if not _TOOL_NAME.fullmatch(name):
            yield f"tools: the name {name!r} has letters that are not allowed"
        if len(name) > LONGEST_NAME[wire]:
            yield f"tools: the name {name!r} is longer than {LONGEST_NAME[wire]} letters"
    wanted = _tool_name(table_at(request, "tool_choice"))
    if wanted and wanted not in names:
        yield f"tool_choice: no tool is named {wanted!r}"


def _tool_name(tool: Json) -> str:
    return text(tool, "name") or text(table_at(tool, "function"), "name") or text(table_at(tool, "custom"), "name")
