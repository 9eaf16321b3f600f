"""Compaction by the provider: through its dedicated endpoint, and by an item in a reply."""

import json
from typing import Any

import pytest
from codex_work import BOTH, CONTEXT, FULL, GPT, OTHER, PREFIX, codex_session, shows, state, turn
from workplace import offline, online, reply, say

from palimpsest.agent.calls import switch
from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import ProviderError
from palimpsest.core.events import ContextStated, Failed, ModelReplied, Statement, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Image, Item, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.policies.limits import prompt
from palimpsest.policies.provider_compact import with_short_outputs, without_last_outputs
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import card
from palimpsest.wire.stream import decode_response

SEALED = {"type": "compaction", "encrypted_content": "a" * 2_000}


def message(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def answer(*items: dict[str, Any]) -> ModelReplied:
    return decode_response("responses", json.dumps({"output": items}).encode(), GPT)


def worked(name: str, turns: int = 3) -> Session:
    session = codex_session(name, GPT)
    state(session)
    for number in range(turns):
        turn(session, f"ask {number}", number, usage=FULL if number == turns - 1 else Usage())
    return session


def sent(provider: Scripted, number: int = 0) -> Any:
    return json.loads(provider.requests[number].body)


def by(ran: PolicyRun) -> list[str]:
    return [event.body.by for event in ran.edited if isinstance(event.body, ViewEdited)]


@pytest.mark.states("CX-42")
def test_the_endpoint_gets_the_items_without_tools_and_its_answer_is_filtered() -> None:
    session = worked("codex")
    old = next(item.id for item in session.log.view.items if item.kind == "user")
    provider = Scripted(
        answer(
            message("developer", "stale"),
            message("user", "ask 0"),
            message("user", "<environment_context>old</environment_context>"),
            message("user", "a message it made shorter"),
            {"type": "reasoning", "summary": [], "encrypted_content": "r"},
            {"type": "function_call", "call_id": "x", "name": "shell", "arguments": "{}"},
            SEALED,
            message("assistant", "said", "output_text"),
        )
    )
    ran = online(session, run_policies(session, "turn_starts"), provider)
    request = sent(provider)
    assert getattr(provider.requests[0], "endpoint", "") == "compact"
    assert sorted(request) == ["input", "model", "parallel_tool_calls", "reasoning", "tools"]
    assert (request["tools"], request["parallel_tool_calls"]) == ([], False)
    assert [item.get("role", item["type"]) for item in request["input"]][:4] == ["developer", "user", "user", "function_call"]
    assert by(ran) == ["remote"]
    assert [(item.kind, item.id == old) for item in session.log.view.items] == [
        ("user", True),
        ("user", False),
        ("assistant", False),
        # What was asked last stays, though it did not come back.
        ("user", False),
        ("summary", False),
    ]
    assert shows(session)[1:4] == ["a message it made shorter", "said", "ask 2"]
    sealed = session.log.view.items[-1].content
    assert isinstance(sealed, Opaque)
    assert (json.loads(sealed.data), sealed.provider, sealed.model) == (SEALED, "openai", "gpt-5.5")
    # Models that cannot decrypt it read this.
    assert sealed.text_fallback.startswith(PREFIX)
    assert session.log.view.facts == {}


@pytest.mark.states("CX-42")
def test_within_a_turn_the_context_stands_before_the_last_message_and_the_compaction_last() -> None:
    session = worked("codex", 2)
    say(session, "ask on")
    reply(session, ToolCall("last", "shell", "{}"), usage=FULL)
    session.log.append(ToolReturned(ToolResult("last", (Text("x"),)), tool="shell"))
    online(session, run_policies(session, "before_call"), Scripted(answer(message("user", "ask 0"), message("user", "ask on"), SEALED)))
    assert shows(session)[:-1] == ["ask 0", *CONTEXT, "ask on"]
    assert isinstance(session.log.view.items[-1].content, Opaque)


@pytest.mark.states("CX-42")
def test_a_summary_among_the_answer_stays_a_summary() -> None:
    session = worked("codex")
    online(session, run_policies(session, "asked"), Scripted(answer(message("user", f"{PREFIX}\nearlier"), message("user", "ask 2"))))
    assert [(item.kind, text) for item, text in zip(session.log.view.items, shows(session), strict=True)] == [
        ("summary", "earlier"),
        ("user", "ask 2"),
    ]


@pytest.mark.states("CX-42")
def test_where_no_message_comes_back_those_of_the_user_stay_by_our_own_rule() -> None:
    session = worked("codex")
    online(session, run_policies(session, "asked"), Scripted(answer(SEALED)))
    assert shows(session)[:-1] == ["ask 0", "ask 1", "ask 2"]


@pytest.mark.states("CX-42")
def test_of_messages_with_the_same_words_the_last_one_stays() -> None:
    session = worked("codex", 2)
    turn(session, "ask 0", 2, usage=FULL)
    last = [item.id for item in session.log.view.items if item.kind == "user"][-1]
    online(session, run_policies(session, "asked"), Scripted(answer(message("user", "ask 0"), SEALED)))
    assert shows(session)[:-1] == ["ask 0", "ask 0"]
    assert session.log.view.items[1].id == last


@pytest.mark.states("CX-42")
def test_outputs_and_developer_messages_at_the_end_are_trimmed_until_the_rest_fits() -> None:
    session = codex_session("codex", GPT)
    items = (
        Item("1.0", "user", Text("go")),
        Item("2.0", "call", ToolCall("a", "shell", "{}")),
        Item("2.1", "call", ToolCall("b", "shell", "{}")),
        Item("3.0", "result", ToolResult("a", (Text("x" * 4_000),))),
        Item("4.0", "result", ToolResult("b", (Text("x" * 4_000),))),
        Item("5.0", "context", Text("y" * 4_000, "developer"), "permissions"),
    )
    situation = session.situation("asked")
    assert [item.id for item in without_last_outputs(situation, items, 10_000)] == ["1.0", "2.0", "2.1", "3.0", "4.0", "5.0"]
    assert [item.id for item in without_last_outputs(situation, items, 2_200)] == ["1.0", "2.0", "2.1", "3.0", "4.0"]
    assert [item.id for item in without_last_outputs(situation, items, 2_000)] == ["1.0", "2.0", "3.0"]
    # A message of the user stops it, whether or not the rest fits.
    assert [item.id for item in without_last_outputs(situation, items, 1)] == ["1.0"]


@pytest.mark.states("CX-43")
def test_the_request_ends_with_the_trigger_and_is_otherwise_the_live_one() -> None:
    session = worked("codex-0.166")
    provider = Scripted(answer(message("assistant", "ignored", "output_text"), SEALED))
    ran = online(session, run_policies(session, "turn_starts"), provider)
    request = sent(provider)
    assert getattr(provider.requests[0], "endpoint", "") == ""
    assert request["input"][-1] == {"type": "compaction_trigger"}
    assert ([tool["name"] for tool in request["tools"]], request["prompt_cache_key"], request["stream"]) == (["shell"], "s", True)
    assert by(ran) == ["remote"]
    assert shows(session)[:-1] == ["ask 0", "ask 1", *CONTEXT, "ask 2"]
    assert isinstance(session.log.view.items[-1].content, Opaque)
    assert sorted(session.log.view.facts) == ["agents_md", "environment", "permissions"]


@pytest.mark.parametrize("items", [(), (SEALED, {**SEALED, "encrypted_content": "b"}), (message("assistant", "done", "output_text"),)])
@pytest.mark.states("CX-43")
def test_any_other_number_of_compaction_items_fails_and_the_hand_over_is_made_here(items: tuple[dict[str, Any], ...]) -> None:
    session = worked("codex-0.166")
    provider = Scripted(answer(*items), "the summary")
    ran = online(session, run_policies(session, "turn_starts"), provider)
    failed = ran.events[0].body
    assert isinstance(failed, Failed)
    count = sum(item is SEALED or item["type"] == "compaction" for item in items)
    assert (failed.by, failed.error, failed.message) == ("remote", "wire", f"one compaction item was asked for and {count} came back")
    assert by(ran) == ["handoff"]
    assert shows(session) == ["ask 0", "ask 1", *CONTEXT, "ask 2", "the summary"]
    assert len(provider.requests) == 2


@pytest.mark.states("CX-43")
def test_outputs_at_the_end_become_a_line_until_the_rest_fits_and_every_pair_stays() -> None:
    session = codex_session("codex-0.166", GPT)
    items = (
        Item("1.0", "user", Text("go")),
        Item("2.0", "call", ToolCall("a", "shell", "{}")),
        Item("2.1", "call", ToolCall("b", "tool_search", "{}", "search")),
        Item("3.0", "result", ToolResult("a", (Text("x" * 4_000),))),
        Item("4.0", "result", ToolResult("b", (Text('["' + "x" * 4_000 + '"]'),), form="search")),
    )
    situation = session.situation("asked")
    assert with_short_outputs(situation, items, 10_000) == items
    assert [item.id for item in with_short_outputs(situation, items, 1)] == [item.id for item in items]
    assert [item.content for item in with_short_outputs(situation, items, 1_500)[3:]] == [
        items[3].content,
        ToolResult("b", (Text("[]"),), form="search"),
    ]
    assert [item.content for item in with_short_outputs(situation, items, 1)[3:4]] == [
        ToolResult("a", (Text("[output left out: there was no room for it in this request]"),))
    ]


@pytest.mark.states("CX-43")
def test_messages_keep_their_pictures_within_64000_tokens() -> None:
    session = codex_session("codex-0.166", GPT)
    for number in range(4):
        turn(session, f"{number}" * 80_000, number, usage=FULL)
    session.log.append(UserSaid((Text("look"), Image("image/png", url="https://example.org/a.png"))))
    reply(session, Text("done", "assistant"), usage=FULL)
    online(session, run_policies(session, "turn_starts"), Scripted(answer(SEALED)))
    cut = "0" * 7_998 + "…16001 tokens truncated…" + "0" * 7_998
    assert shows(session)[:-1] == [cut, "1" * 80_000, "2" * 80_000, "3" * 80_000, "look", "[image image/png]"]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_a_remote_compaction_that_fails_is_made_here_once_and_the_message_stays(name: str) -> None:
    session = worked(name)
    provider = Scripted(ProviderError("server error", status=500), "the summary")
    ran = online(session, run_policies(session, "turn_starts"), provider)
    assert ran.failure is None
    assert ran.notices[0] == "the provider could not compact (server error); compacting locally instead"
    assert by(ran) == ["handoff"]
    assert [text for text in shows(session) if text.startswith("ask")] == ["ask 0", "ask 1", "ask 2"]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_after_three_failures_the_provider_is_not_asked_again(name: str) -> None:
    session = worked(name)
    for number in range(3):
        online(session, run_policies(session, "turn_starts"), Scripted(ProviderError("down", status=500), f"summary {number}"))
        turn(session, "more", 10 + number, usage=FULL)
    provider = Scripted("the last summary")
    online(session, run_policies(session, "turn_starts"), provider)
    assert sent(provider)["input"][-1]["content"][0]["text"] == prompt("handoff", focus="")
    assert shows(session)[-1] == "the last summary"


@pytest.mark.parametrize("name", BOTH)
def test_a_provider_without_compaction_is_never_asked_and_without_a_model_the_fallback_folds_once(name: str) -> None:
    session = codex_session(name, OTHER)
    turn(session, "ask", 1, usage=FULL)
    remote = session.profile.policies[0]
    assert (remote.name, remote.plan(session.situation("asked"))) == ("remote", ())
    session = worked(name, 30)
    assert by(offline(session, run_policies(session, "asked"))) == ["fold without a model"]


def test_when_the_provider_changes_the_one_before_puts_its_summary_into_words() -> None:
    session = worked("codex-0.166")
    online(session, run_policies(session, "turn_starts"), Scripted(answer(SEALED)))
    turn(session, "ask 3", 3)
    provider = Scripted("in words")
    ran = online(session, switch(session, card("claude-sonnet-4-5")), provider)
    assert ran.folded
    assert sent(provider)["model"] == "gpt-5.5"
    assert SEALED in sent(provider)["input"]
    assert shows(session)[-1] == "in words"


def test_the_trailing_switch_is_not_sent_and_stands_behind_the_compaction() -> None:
    session = worked("codex-0.166")
    session.log.append(ContextStated((Statement("model_switch", "<model_switch>", "developer"),)))
    provider = Scripted(answer(SEALED))
    online(session, run_policies(session, "asked"), provider)
    assert "<model_switch>" not in provider.requests[0].body.decode()
    assert shows(session)[-1] == "<model_switch>"


def test_the_answer_of_the_endpoint_must_have_a_compaction_or_a_summary() -> None:
    session = worked("codex")
    ran = online(session, run_policies(session, "asked"), Scripted(answer({"type": "reasoning", "summary": []}), "the summary"))
    assert isinstance(ran.events[0].body, Failed)
    assert ran.events[0].body.message == "the answer holds neither a compaction nor a summary"
    assert Thinking("", None, "sealed") not in [item.content for item in session.log.view.items]
    assert shows(session)[-1] == "the summary"
