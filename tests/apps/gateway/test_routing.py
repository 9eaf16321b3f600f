import json
from typing import Any

import pytest

from pal.gateway.routing import ConversationName, RequestReader, conversation_name, fields_of, is_followed
from palimpsest.wire.models import WireName

PROMPT = "You are a coding agent. " * 40


def name(wire: WireName, body: dict[str, Any], **headers: str) -> ConversationName:
    fields = fields_of(json.dumps(body).encode())
    assert fields is not None
    return conversation_name(wire, {key.replace("_", "-"): value for key, value in headers.items()}, fields)


def messages(*texts: str, system: object = PROMPT, model: str = "claude-sonnet-4-6") -> dict[str, Any]:
    return {"model": model, "system": system, "messages": [{"role": "user", "content": text} for text in texts]}


def test_a_client_that_names_its_session_may_rewrite_its_list_and_short_parts_of_its_prompt() -> None:
    def system(build: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": f"version {build}"}, {"type": "text", "text": PROMPT}]

    before = name("anthropic", messages("hello", system=system("ff3")), x_claude_code_session_id="s")
    assert before == name("anthropic", messages("summary of all", system=system("5be")), x_claude_code_session_id="s")
    assert (before.client, before.agent) == ("s", "")


def test_sub_agents_side_calls_models_and_sessions_have_names_of_their_own() -> None:
    names = [
        name("anthropic", messages("hello"), x_claude_code_session_id="s"),
        name("anthropic", messages("hello"), x_claude_code_session_id="t"),
        name("anthropic", messages("hello"), x_claude_code_session_id="s", x_claude_code_agent_id="a"),
        name("anthropic", messages("hello", system="Write a title."), x_claude_code_session_id="s"),
        name("anthropic", messages("hello", model="claude-haiku-4-5"), x_claude_code_session_id="s"),
        name("anthropic", messages("hello")),
        name("anthropic", messages("hello, you")),
    ]
    assert len({each.session for each in names}) == len(names)


def test_codex_is_told_apart_by_its_thread_and_its_developer_message() -> None:
    def body(*texts: str) -> dict[str, Any]:
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": PROMPT}]}
        return {"model": "gpt-5.5", "input": [developer, *({"type": "message", "role": "user", "content": text} for text in texts)]}

    assert name("responses", body("q0"), thread_id="t") == name("responses", body("folded"), thread_id="t")
    assert name("responses", body("q0"), thread_id="t") != name("responses", body("q0"), thread_id="u")
    by_key = [name("responses", body("q0") | {"prompt_cache_key": key}) for key in ("k", "k", "l")]
    assert by_key[0] == by_key[1] != by_key[2]


@pytest.mark.states("PV-21")
@pytest.mark.states("PV-23")
def test_a_request_without_a_list_of_its_own_belongs_to_no_conversation() -> None:
    bodies: list[tuple[WireName, bytes]] = [
        ("responses", b'{"input": "hello"}'),
        ("responses", b'{"input": [], "previous_response_id": "r1"}'),
        ("responses", b'{"input": [], "conversation": "conv_1"}'),
        ("responses", b'{"input": [], "conversation": {"id": "conv_1"}}'),
        ("responses", b'{"input": [{"type": "item_reference", "id": "rs_1"}, {"role": "user", "content": "hello"}]}'),
        ("anthropic", b'{"messages": [], "thread": {"type": "continue", "previous_message_id": "msg_1"}}'),
        ("anthropic", b'{"messages": [], "thread": {"type": "later"}}'),
        ("anthropic", b"{}"),
        ("anthropic", b'{"messages": [], "thread": {"type": "create"}}'),
        (
            "responses",
            b'{"input": [{"role": "user", "content": "say item_reference"}], "previous_response_id": null, "conversation": null}',
        ),
        ("anthropic", b'{"messages": [{"role": "user"}]}'),
    ]
    assert [is_followed(wire, fields_of(body) or {}) for wire, body in bodies] == [*[False] * 8, *[True] * 3]
    assert [fields_of(body) for body in (b"[]", b"{", b"\xff")] == [None, None, None]


def test_a_lifetime_is_set_at_every_breakpoint_and_nowhere_else() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "m",
        "tools": [{"name": "t", "input_schema": {"cache_control": {"type": "a property"}}}, {"name": "u", **mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": '"cache_control"'}, {"type": "text", "text": "b", **mark}]}],
    }
    raw = json.dumps(body, indent=2).encode()
    given = RequestReader().read("anthropic", raw, fields_of(raw) or {})
    changed = json.loads(given.body_with(given.messages, "1h"))
    long = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body["tools"] = [{"name": "t", "input_schema": {"cache_control": {"type": "a property"}}}, {"name": "u", **long}]
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": '"cache_control"'}, {"type": "text", "text": "b", **long}]}]
    assert changed == body
    assert given.body_with(given.messages) is raw
