"""A statement of the operator in the middle of a conversation: one table of views through all wires."""

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from every_case import every_case
from msgspec.structs import replace

from palimpsest.core.items import Content, Item, Signature, Text, Thinking, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params
from palimpsest.wire.wires import check_request

SONNET = card("claude-sonnet-4-5")
OPUS = card("claude-opus-4-8")
GPT = card("gpt-5.5")
OPENAI = replace(GPT, wire="chat")
SOME = card("openai-compatible/some")
MISTRAL = card("openai-compatible/mistral-large")
LOCAL = card("local/some")
PLAIN = Params(breakpoint_rule="none")

FRAMED = "<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\nmind\n</system-message>"
MIND = Text("mind", "system")


def view_of(*contents: Content) -> View:
    return View(
        items=tuple(
            Item(f"{number}.0", "context" if content == MIND else "user" if isinstance(content, Text) else kind_of(content), content)
            for number, content in enumerate(contents, 1)
        )
    )


def sent(model: ModelCard, *contents: Content, params: Params = PLAIN) -> list[Any]:
    request = encode(view_of(*contents), model, (), params)
    assert check_request(model.wire, request.body) == ()
    body = json.loads(request.body)
    found: list[Any] = body["input"] if model.wire == "responses" else body["messages"]
    return found


def block(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]}


def line(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


CALL = ToolCall("abcdefgh9", "read", "{}")
RESULT = ToolResult("abcdefgh9", (Text("out"),))
SAID = Text("yes", "assistant")
A_CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "abcdefgh9", "name": "read", "input": {}}]}
A_RESULT = {"type": "tool_result", "tool_use_id": "abcdefgh9", "content": "out"}
R_PAIR = [
    {"type": "function_call", "name": "read", "arguments": "{}", "call_id": "abcdefgh9"},
    {"type": "function_call_output", "call_id": "abcdefgh9", "output": "out"},
]
C_PAIR = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "abcdefgh9", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "abcdefgh9", "content": "out"},
]


class Case(NamedTuple):
    """A view, and what is sent of it: to a model that takes no system messages in its conversation, to one that does, and so on."""

    name: str
    contents: tuple[Content, ...]
    sonnet: list[Any]
    opus: list[Any]
    gpt: list[Any]
    some: list[Any]
    mistral: list[Any]


CASES = [
    Case(
        "after a question",
        (Text("go"), MIND),
        [block("user", "go", FRAMED)],
        [block("user", "go"), block("system", "mind")],
        [message("user", "go"), message("system", "mind")],
        [line("user", "go"), line("system", "mind")],
        [block("user", "go", FRAMED)],
    ),
    Case(
        "before a question",
        (Text("go"), SAID, MIND, Text("and?")),
        [block("user", "go"), block("assistant", "yes"), block("user", FRAMED, "and?")],
        [block("user", "go"), block("assistant", "yes"), block("user", "and?"), block("system", "mind")],
        [message("user", "go"), message("assistant", "yes"), message("system", "mind"), message("user", "and?")],
        [line("user", "go"), line("assistant", "yes"), line("system", "mind"), line("user", "and?")],
        [line("user", "go"), line("assistant", "yes"), block("user", FRAMED, "and?")],
    ),
    Case(
        "after a result",
        (Text("go"), CALL, RESULT, MIND),
        [block("user", "go"), A_CALL, {"role": "user", "content": [A_RESULT, {"type": "text", "text": FRAMED}]}],
        [block("user", "go"), A_CALL, {"role": "user", "content": [A_RESULT]}, block("system", "mind")],
        [message("user", "go"), *R_PAIR, message("system", "mind")],
        [line("user", "go"), *C_PAIR, line("system", "mind")],
        [line("user", "go"), *C_PAIR, line("assistant", "Done."), line("user", FRAMED)],
    ),
    Case(
        "between a call and its result, twice",
        (Text("go"), CALL, MIND, MIND, RESULT),
        [block("user", "go"), A_CALL, {"role": "user", "content": [A_RESULT, *block("", FRAMED, FRAMED)["content"]]}],
        [block("user", "go"), A_CALL, {"role": "user", "content": [A_RESULT]}, block("system", "mind", "mind")],
        [message("user", "go"), R_PAIR[0], message("system", "mind"), message("system", "mind"), R_PAIR[1]],
        [line("user", "go"), *C_PAIR, line("system", "mind"), line("system", "mind")],
        [line("user", "go"), *C_PAIR, line("assistant", "Done."), block("user", FRAMED, FRAMED)],
    ),
    Case(
        "between two replies",
        (Text("go"), SAID, MIND, SAID, Text("and?")),
        [block("user", "go"), block("assistant", "yes"), block("user", FRAMED), block("assistant", "yes"), block("user", "and?")],
        [block("user", "go"), block("assistant", "yes"), block("user", FRAMED), block("assistant", "yes"), block("user", "and?")],
        [
            message("user", "go"),
            message("assistant", "yes"),
            message("system", "mind"),
            message("assistant", "yes"),
            message("user", "and?"),
        ],
        [line("user", "go"), line("assistant", "yes"), line("system", "mind"), line("assistant", "yes"), line("user", "and?")],
        [line("user", "go"), line("assistant", "yes"), line("user", FRAMED), line("assistant", "yes"), line("user", "and?")],
    ),
    Case(
        "alone",
        (MIND,),
        [block("user", FRAMED)],
        [block("user", FRAMED)],
        [message("system", "mind")],
        [line("system", "mind")],
        [line("user", FRAMED)],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_statement_keeps_its_authority_as_far_as_the_wire_can_say_it(case: Case) -> None:
    assert sent(SONNET, *case.contents) == case.sonnet
    assert sent(OPUS, *case.contents) == case.opus
    assert sent(GPT, *case.contents) == case.gpt
    assert sent(SOME, *case.contents) == case.some
    assert sent(OPENAI, *case.contents) == case.some
    assert sent(MISTRAL, *case.contents) == case.mistral


@every_case(
    ("model", "expected"),
    [
        (SONNET, [block("user", "go", FRAMED)]),
        (OPUS, [block("user", "go"), block("system", "mind")]),
        (GPT, [message("user", "go"), message("developer", "mind")]),
        (OPENAI, [line("user", "go"), line("developer", "mind")]),
        (SOME, [line("user", "go"), line("system", "mind")]),
        (LOCAL, [block("user", "go", FRAMED)]),
        (replace(SOME, system_messages=False), [block("user", "go", FRAMED)]),
        (replace(SONNET, system_messages=True), [block("user", "go"), block("system", "mind")]),
    ],
)
def test_a_developers_statement_has_the_same_authority_under_its_own_name_where_there_is_one(
    model: ModelCard, expected: list[dict[str, Any]]
) -> None:
    assert sent(model, Text("go"), Text("mind", "developer")) == expected


def test_the_tail_breakpoint_is_on_a_system_message_that_is_the_last() -> None:
    assert sent(OPUS, Text("go"), MIND, params=Params())[-1] == {
        "role": "system",
        "content": [{"type": "text", "text": "mind", "cache_control": {"type": "ephemeral"}}],
    }


def test_a_turn_that_began_with_a_thought_keeps_its_budget_when_a_statement_follows_the_result() -> None:
    thought = Thinking("hm", Signature("anthropic", SONNET.name, "s"))
    params = Params(breakpoint_rule="none", thinking_budget=2_000)
    for opening, thinks in (((thought, CALL), True), ((CALL,), False)):
        body = json.loads(encode(view_of(Text("go"), *opening, RESULT, MIND), SONNET, (), params).body)
        assert ("thinking" in body) is thinks


@pytest.mark.parametrize("model", [SONNET, OPUS, GPT, SOME], ids=lambda model: model.name)
def test_a_statement_that_was_sent_keeps_its_bytes_in_a_longer_conversation(model: ModelCard) -> None:
    talk = (Text("go"), CALL, RESULT, MIND, SAID, Text("and?"), MIND, SAID)
    ending = b"]}]}" if model.wire == "anthropic" else b"]}"
    bodies = [encode(view_of(*talk[:size]), model, (), PLAIN).body for size in (1, 4, 7)]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter.removesuffix(ending))
