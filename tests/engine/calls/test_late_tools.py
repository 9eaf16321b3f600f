"""Tools that come and go during a session: a model that binds its thinking is told of them where they do, and keeps all before it."""

from typing import Any

import msgspec
import pytest
from left_out import needless
from strict_session import QUIET, TOOLS, strict_session, turn
from workplace import answered_by, say, work

from palimpsest.agent.session import Session
from palimpsest.core.events import CallStarted, ModelReplied, ToolsChanged, ViewEdited
from palimpsest.core.items import Fold, Put, Signature, Text, Thinking
from palimpsest.providers.scripted import Scripted
from palimpsest.testing.strict.provider import StrictProvider, calls
from palimpsest.wire.encode import past_request
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

LS, CAT = TOOLS
LATE = Tool("late", "Joined late.")
ODD = Tool("später", "Has a name that is sent as another one.")
END = {"type": "text", "text": "End of the tool results."}


def after(session: Session, *tools: Tool, words: str = "go on") -> Any:
    """The request of a turn that offers these tools."""
    session.tools = tools
    if words:
        say(session, words)
    turn(session)
    call = session.log.view.call
    assert call is not None
    calls_made = [event.body for event in session.log.reader.run(0, session.log.tip) if isinstance(event.body, CallStarted)]
    past = past_request(session.log, len(calls_made), session.environment.blobs.get)
    assert past.verified
    return msgspec.json.decode(past.request.body)


def declared(body: Any) -> list[str]:
    return [("late " if tool.get("defer_loading") else "") + tool["name"] for tool in body["tools"]]


def changes(body: Any) -> list[str]:
    """The changes that a request tells of, in order, each with the number of its message."""
    found = [(number, block) for number, message in enumerate(body["messages"]) for block in message["content"] if "tool" in block]
    assert all(body["messages"][number]["role"] == "system" for number, _ in found)
    return [f"{number} {block['type']} {block['tool']['name']}" for number, block in found]


@pytest.mark.states("PV-63", "PV-13")
def test_tools_are_added_and_removed_where_they_join_and_leave() -> None:
    double = StrictProvider()
    session = strict_session(double)
    sent = [
        after(session, LS, CAT),
        after(session, LATE, LS, CAT),
        after(session, LATE, CAT),
        after(session, CAT),
        after(session, CAT, LS, LATE, ODD),
        after(session, CAT, LS, LATE, ODD),
    ]
    known = ["ls", "cat", "late late"]
    assert [declared(body) for body in sent] == [known[:2], known, known, known, [*known, "late sp_ter"], [*known, "late sp_ter"]]
    told = ["3 tool_addition late", "6 tool_removal ls", "9 tool_removal late"]
    told += [f"12 tool_addition {name}" for name in ("ls", "late", "sp_ter")]
    assert [changes(body) for body in sent] == [[], told[:1], told[:2], told[:3], told, told]
    assert [record.thinking_sent for record in double.records] == [0, 1, 2, 3, 4, 5]
    assert (dict(double.counts.refused), double.counts.thinking_dropped) == ({}, 0)
    assert needless(double) == []
    # A change carries no breakpoint of the cache.
    marked = [block for body in double.bodies for message in body["messages"] for block in message["content"] if "cache_control" in block]
    assert {block["type"] for block in marked} == {"text"}
    assert [event.body for event in session.log.events() if isinstance(event.body, ToolsChanged)] == [
        ToolsChanged(("late",)),
        ToolsChanged((), ("ls",)),
        ToolsChanged((), ("late",)),
        ToolsChanged(("ls", "late", "später")),
    ]


@pytest.mark.states("PV-63")
def test_a_tool_that_joins_in_a_turn_is_added_behind_the_results() -> None:
    double = StrictProvider([[calls("ls", path="a")], "done"])
    session = strict_session(double)
    after(session, LS, words="begin")
    body = after(session, LS, LATE, words="")
    assert body["messages"][2:] == [
        {"role": "user", "content": [body["messages"][2]["content"][0], END | {"cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}]},
    ]
    assert double.counts.thinking_kept == 1


@pytest.mark.states("PV-63")
def test_what_a_fold_hides_is_said_again_and_the_head_stays() -> None:
    double = StrictProvider()
    session = strict_session(double)
    first = after(session, LS, CAT)
    after(session, LS, LATE)
    items = session.log.view.items
    session.log.append(ViewEdited((Fold(items[0].id, items[-1].id, (Put("summary", Text("short")),)),), "test"))
    body = after(session, LS, LATE)
    assert declared(body) == ["ls", "cat", "late late"]
    assert (body["tools"][:2], body.get("system")) == (first["tools"], first.get("system"))
    assert changes(body) == ["1 tool_removal cat", "1 tool_addition late"]
    assert dict(double.counts.refused) == {}
    assert needless(double) == []


@pytest.mark.states("PV-63")
def test_a_tool_with_another_declaration_lets_all_begin_anew() -> None:
    double = StrictProvider()
    session = strict_session(double)
    after(session, LS, CAT)
    after(session, LS, LATE)
    other = msgspec.structs.replace(LS, description="List more.")
    body = after(session, other, LATE)
    assert (declared(body), changes(body)) == (["ls", "late"], [])
    # Nothing that was thought before fits a changed declaration.
    assert [record.thinking_sent for record in double.records] == [0, 1, 0]
    assert dict(double.counts.refused) == {}
    assert needless(double) == []


@pytest.mark.states("PV-63", "PV-09")
def test_a_model_that_binds_nothing_is_declared_the_tools_on_offer_and_on_the_way_back_thinking_is_kept() -> None:
    double = StrictProvider()
    session = strict_session(double)
    after(session, LS)
    after(session, LS, LATE)
    session.switch(card("claude-opus-4-8"))
    body = after(session, LS, LATE, CAT)
    assert (declared(body), changes(body)) == (["ls", "late", "cat"], [])
    assert "mid-conversation" not in double.records[-1].request.headers.get("anthropic-beta", "")
    session.switch(card("claude-opus-5-5"))
    body = after(session, LS, LATE)
    assert (declared(body), changes(body)) == (["ls", "late late"], ["3 tool_addition late"])
    assert dict(double.counts.refused) == {}
    assert needless(double) == []


@pytest.mark.states("PV-63")
def test_a_resumed_session_and_a_fork_go_on_with_the_tools_that_joined() -> None:
    double = StrictProvider()
    session = strict_session(double)
    after(session, LS)
    after(session, LS, LATE)
    name, profile, environment = session.log.session, session.profile, session.environment
    session.close()
    resumed = Session.resume(name, profile, session.card, environment, (LS, LATE))
    after(resumed, LS, LATE)
    fork = resumed.fork("fork")
    fork.tools = (LATE, LS)
    say(fork, "in a fork")
    turn(fork)
    assert [declared(body) for body in double.bodies[2:]] == [["ls", "late late"]] * 2
    assert [record.thinking_sent for record in double.records] == [0, 1, 2, 3]
    assert dict(double.counts.refused) == {}
    assert needless(double) == []


@pytest.mark.states("PV-73")
def test_openai_is_given_late_tools_in_the_input_and_keeps_the_reasoning() -> None:
    model = card("gpt-6-sol")
    replies = [
        ModelReplied((Thinking("", Signature("openai", model.name, f"sealed {name}"), "digest"), Text(name, "assistant")))
        for name in "abcd"
    ]
    provider = Scripted(*replies)
    session = answered_by(work(QUIET, model), provider)
    for tools in ((LS, CAT), (LATE, LS, CAT), (LATE, CAT), (CAT, LATE, LS)):
        after(session, *tools)
    sent = [msgspec.json.decode(request.body) for request in provider.requests]
    assert [[tool["name"] for tool in body["tools"]] for body in sent] == [["ls", "cat"]] * 4
    late = {"type": "function", "name": "late", "description": "Joined late.", "strict": False} | {
        "parameters": {"type": "object", "properties": {}}
    }
    joined = {"type": "additional_tools", "role": "developer", "tools": [late]}
    found = [[(place, item) for place, item in enumerate(body["input"]) if item["type"] == "additional_tools"] for body in sent]
    assert found == [[], [(4, joined)], [(4, joined)], [(4, joined)]]
    left = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name} for name in ("cat", "late")]}
    assert [body["tool_choice"] for body in sent] == ["auto", "auto", left, "auto"]
    assert [sum(item["type"] == "reasoning" for item in body["input"]) for body in sent] == [0, 1, 2, 3]
