"""Thinking that is bound to what was sent before it: only what still fits is sent, in the very request that carries the edit."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from left_out import needless
from msgspec import Raw
from official_types import accept
from openai.types.responses.response_configuration_update_item_param_param import ResponseConfigurationUpdateItemParamParam as Update
from strict_session import QUIET, TOOLS, strict_session, turn
from workplace import answered_by, say, work

from palimpsest.agent.calls import compact
from palimpsest.agent.session import Session
from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import Body, CallStarted, Failed, ModelReplied, Noticed, ViewEdited
from palimpsest.core.items import Fold, Mask, Put, Signature, Text, Thinking, Unmask
from palimpsest.core.log import Log
from palimpsest.core.ports import Sendable
from palimpsest.core.undo import rewind, undo
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks
from palimpsest.wire.encode import next_request, past_request
from palimpsest.wire.models import card
from palimpsest.wire.request import NULL, Tool

MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-opus-4-8")
STEPS = ("turn", "turn", "turn", "mask", "mask", "fold", "undo", "unmask", "rewind", "fork", "switch", "resume", "tools")


LATE = (*TOOLS, Tool("late", "Joined late."), Tool("später.heute", "A name that is sent as another one."))


def replace_tool(tool: Tool, chance: random.Random) -> Tool:
    """A tool with another description."""
    return msgspec.structs.replace(tool, description=f"changed {chance.random()}")


def said_at_random(chance: random.Random, *, blanks: bool) -> list[dict[str, Any]]:
    """A reply: thinking and texts in any order, with `blanks` some of white space, and calls at its end."""
    blocks = [
        chance.choice(
            (
                thinks(f"t{chance.random()}"),
                says(f"words {chance.random()}"),
                thinks(""),
                says(f"\n{' ' * chance.randint(0, 99)}\n" if blanks else f"other {chance.random()}"),
            )
        )
        for _ in range(chance.randint(1, 5))
    ]
    if chance.random() < 0.6:
        blocks += [calls(chance.choice(("ls", "cat")), path=str(chance.random())) for _ in range(chance.randint(1, 2))]
    return blocks


def as_before(body: Body) -> Body:
    """An event body as versions recorded it that knew nothing of bound thinking."""
    return msgspec.structs.replace(body, prefix="", after="") if isinstance(body, CallStarted) else body


class Walk:
    """A session under random steps, whose every request the strict double answers."""

    def __init__(self, seed: int, *, blanks: bool = True, model: str = "claude-opus-5-5") -> None:
        self.chance = random.Random(seed)
        self.double = StrictProvider(lambda _: said_at_random(self.chance, blanks=blanks), thinks=False)
        self.session = strict_session(self.double, model)
        self.forks = 0
        say(self.session, "begin")
        self.step("turn")

    def step(self, name: str) -> None:
        """Take one step; one that does not fit the state of the session is left out."""
        session, chance = self.session, self.chance
        items = [item for item in session.log.view.items if item.kind in ("user", "result", "assistant")]
        try:
            match name:
                case "turn":
                    if chance.random() < 0.5 or session.log.view.items[-1].kind not in ("user", "result"):
                        say(session, f"go on {chance.random()}")
                    turn(session)
                case "mask":
                    session.log.append(ViewEdited((Mask((chance.choice(items).id,), chance.choice(("", "cleared"))),), "test"))
                case "fold":
                    first = chance.randrange(len(session.log.view.items))
                    run = session.log.view.items[first : first + chance.randint(1, 6)]
                    session.log.append(ViewEdited((Fold(run[0].id, run[-1].id, (Put("summary", Text("short")),)),), "test"))
                case "unmask":
                    session.log.append(ViewEdited((Unmask((chance.choice([i.id for i in items if i.mask]),)),), "test"))
                case "undo":
                    undo(session.log, chance.choice([e.seq for e in session.log.events() if isinstance(e.body, ViewEdited)]))
                case "rewind":
                    rewind(session.log, chance.choice([e.seq for e in session.log.events() if isinstance(e.body, CallStarted)]) - 1)
                case "fork":
                    self.forks += 1
                    self.session = session.fork(f"fork-{self.forks}")
                case "switch":
                    session.switch(card(chance.choice(MODELS)))
                case "resume":
                    session.close()
                    self.session = Session.resume(session.log.session, QUIET, session.card, session.environment, session.tools)
                case "tools":
                    # Any of them come or go, in any order; now and then one has another declaration.
                    offered = chance.sample(LATE, chance.randint(1, len(LATE)))
                    changed = replace_tool(offered[0], chance) if chance.random() < 0.1 else offered[0]
                    session.tools = (changed, *offered[1:])
                case "effort":
                    session.params = msgspec.structs.replace(session.params, effort=chance.choice(("low", "high", "")))
                case _:
                    raise AssertionError(name)
        except (BadEdit, BadInput, IndexError):
            return


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=30))
@pytest.mark.states("PV-11")
def test_no_request_is_refused_and_no_thinking_is_left_out_that_would_be_accepted(seed: int, steps: list[str]) -> None:
    # White space goes with the thinking beside it. Where an undo brings both back, thinking that fits only without them is left out, too.
    walk = Walk(seed, blanks={"undo", "unmask"}.isdisjoint(steps))
    for name in (*steps, "turn"):
        walk.step(name)
    assert (dict(walk.double.counts.refused), walk.double.counts.thinking_dropped) == ({}, 0)
    assert needless(walk.double) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from([step for step in STEPS if step != "fork"]), max_size=20))
@pytest.mark.states("PV-10", "PV-12")
def test_requests_can_be_shown_again_and_a_log_without_prefixes_leaves_out_the_same(seed: int, steps: list[str]) -> None:
    walk = Walk(seed)
    for name in steps:
        walk.step(name)
    session = walk.session
    fetch, bodies = session.environment.blobs.get, [event.body for event in session.log.reader.run(0, session.log.tip)]
    calls = sum(isinstance(body, CallStarted) for body in bodies)
    assert [number for number in range(1, calls + 1) if not past_request(session.log, number, fetch).verified] == []
    older = Log.create(MemorySessions(), session.log.opened, FixedClock(1, 1))
    for body in bodies[1:]:
        older.append(as_before(body), foreign=True)
    assert older.view.ids == session.log.view.ids
    both = [next_request(log.view, fetch, model=session.card.name, log=log).body for log in (session.log, older)]
    assert both[0] == both[1]


@pytest.mark.states("PV-15")
def test_a_session_that_an_older_version_could_not_continue_goes_on(tmp_path: Path) -> None:
    double = StrictProvider([[thinks(f"thought {number}"), calls("ls", path=str(number))] for number in range(6)])
    made = strict_session(double)
    say(made, "begin")
    for _ in range(4):
        turn(made)
    home = Home.at(tmp_path)
    older = Log.create(home.store, made.log.opened, FixedClock(1, 1))
    for body in [event.body for event in made.log.events()][1:]:
        older.append(as_before(body), foreign=True)
    # An edit before most of the thinking, and the request that was refused because of it: each run ended like this.
    cleared = [item.id for item in older.view.items if item.kind == "result"][1]
    older.append(ViewEdited((Mask((cleared,), "cleared"),), "clear_dead"))
    assert older.view.call is not None
    started = older.append(older.view.call).seq
    older.append(Failed("call", "provider", "HTTP 400: invalid_request_error: The block is bound to …", call=started, purpose="turn"))
    older.close()
    environment = replace(made.environment, store=home.store)
    with Session.resume(made.log.session, QUIET, made.card, environment, TOOLS) as session:
        say(session, "go on")
        turn(session)
        turn(session)
        call = session.log.view.call
        kept = [item.id for item in session.log.view.items if item.kind == "thinking"]
    assert dict(double.counts.refused) == {}
    assert call is not None
    # The thinking before the edit stays, that behind it goes, and that of the new turns follows it.
    assert call.withheld == tuple(kept[2:4])
    assert [record.thinking_sent for record in double.records] == [0, 1, 2, 3, 2, 3]


@pytest.mark.states("PV-09")
def test_thinking_is_sent_to_the_models_that_read_it_and_again_on_the_way_back() -> None:
    double = StrictProvider()
    session = strict_session(double, "claude-sonnet-5-5")
    sent = []
    for model in ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-1"):
        if session.card.name != model:
            session.switch(card(model))
        say(session, f"on {model}")
        turn(session)
        sent.append(double.records[-1].thinking_sent)
    # Opus reads Sonnet, Haiku nobody, and Fable Opus only: behind what Sonnet said first, which the thinking of Opus follows.
    assert sent == [0, 1, 0, 2, 2]
    assert dict(double.counts.refused) == {}
    assert double.counts.thinking_dropped == 0


@pytest.mark.states("PV-70")
def test_reasoning_that_openai_would_drop_is_left_out_of_the_request() -> None:
    model = card("gpt-6-sol")
    assert model.drops_reasoning
    replies = [
        ModelReplied((Thinking("", Signature("openai", model.name, f"sealed {name}"), "digest"), Text(f"said {name}", "assistant")))
        for name in "abcdef"
    ]
    provider = Scripted(*replies)
    session = answered_by(work(QUIET, model), provider)
    said = [say(session, "begin").seq]
    turn(session)
    said.append(say(session, "go on").seq)
    turn(session)
    session.log.append(ViewEdited((Mask((f"{said[1]}.0",), "shorter"),), "test"))
    for format_of_reply in (NULL, NULL, Raw(b'{"type":"object"}')):
        session.params = msgspec.structs.replace(session.params, schema=format_of_reply)
        say(session, "and on")
        turn(session)
    assert [_sealed(request) for request in provider.requests] == [[], ["a"], ["a"], ["a", "c"], []]
    calls_made = [event.body for event in session.log.events() if isinstance(event.body, CallStarted)]
    assert [len(call.withheld) for call in calls_made] == [0, 0, 1, 1, 4]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from([*(step for step in STEPS if step != "switch"), "effort", "effort"]), max_size=20))
@pytest.mark.states("PV-70", "PV-73")
def test_openai_drops_no_reasoning_that_is_sent_and_another_effort_is_stated_in_the_list(seed: int, steps: list[str]) -> None:
    # Its effort is low unless another one is asked for.
    walk = Walk(seed, model="gpt-6-astra")
    for name in (*steps, "turn"):
        walk.step(name)
        body = walk.double.bodies[-1]
        stated = [item["reasoning"]["effort"] for item in body["input"] if item["type"] == "configuration_update"]
        if name == "turn":
            assert [body["reasoning"].get("effort") or "low", *stated][-1] == (walk.session.params.effort or "low")
    assert (dict(walk.double.counts.refused), walk.double.counts.thinking_dropped) == ({}, 0)
    assert needless(walk.double) == []


@pytest.mark.states("PV-13", "PV-70")
def test_reasoning_behind_white_space_of_its_reply_goes_back_to_openai_as_that_does() -> None:
    double = StrictProvider([[says("\n\n"), thinks("hm"), calls("ls")], "Done."], thinks=False)
    session = strict_session(double, "gpt-6.1-sol")
    say(session, "begin")
    turn(session)
    turn(session)
    assert [item["type"] for item in double.bodies[-1]["input"]][1:4] == ["message", "reasoning", "function_call"]
    assert (double.records[-1].thinking_kept, double.counts.thinking_dropped) == (1, 0)


@pytest.mark.states("PV-11", "PV-19")
def test_a_fold_that_keeps_the_first_text_of_the_model_keeps_the_thinking_before_it() -> None:
    replies = [[thinks("hm"), says("I look first."), thinks("closer"), says(f"Then I see. {'x ' * 900}"), calls("ls")]]
    replies += [[thinks("so"), says(f"Step {number}. {'y ' * 9_000}"), calls("ls")] for number in range(6)]
    double = StrictProvider([*replies, "Done."])
    session = strict_session(double, profile=profile("palimpsest"))
    say(session, "begin")
    for _ in replies:
        turn(session)
    say(session, "go on")
    assert asyncio.run(compact(session)).folded
    turn(session)
    assert [blocks[0]["type"] for blocks in (message["content"] for message in double.bodies[-1]["messages"][:2])] == ["text", "thinking"]
    assert double.records[-1].thinking_kept >= 1
    assert (dict(double.counts.refused), needless(double)) == ({}, [])


@pytest.mark.states("PV-13", "PV-60")
def test_a_text_goes_back_with_what_it_cites_because_the_thinking_behind_it_is_bound_to_that() -> None:
    cited = {"type": "text", "text": "It says so.", "citations": [{"type": "char_location", "cited_text": "so", "document_index": 0}]}
    double = StrictProvider([[thinks("hm"), cited, thinks("so"), calls("ls")], "Done."])
    session = strict_session(double)
    say(session, "begin")
    turn(session)
    turn(session)
    assert double.bodies[-1]["messages"][1]["content"][1] == cited
    assert ([record.thinking_kept for record in double.records], dict(double.counts.refused)) == ([0, 2], {})


@pytest.mark.states("PV-09", "PV-70")
def test_reasoning_of_another_model_of_openai_is_not_sent_and_fits_again_on_the_way_back() -> None:
    double = StrictProvider()
    session = strict_session(double, "gpt-6.1-sol")
    for model in ("gpt-6.1-sol", "gpt-6.1-sol", "gpt-6-sol", "gpt-6-sol", "gpt-6.1-sol"):
        if session.card.name != model:
            session.switch(card(model))
        say(session, f"on {model}")
        turn(session)
    assert [record.thinking_sent for record in double.records] == [0, 1, 0, 1, 2]
    assert (double.counts.thinking_dropped, needless(double)) == (0, [])


@pytest.mark.states("PV-73")
def test_another_effort_costs_openai_no_reasoning() -> None:
    double = StrictProvider()
    session = strict_session(double, "gpt-6-astra")
    for effort in ("low", "high", "high", "low"):
        session.params = msgspec.structs.replace(session.params, effort=effort)
        say(session, "go on")
        turn(session)
    stated = [[item for item in body["input"] if item["type"] == "configuration_update"] for body in double.bodies]
    high, low = ({"type": "configuration_update", "reasoning": {"effort": effort}} for effort in ("high", "low"))
    assert stated == [[], [high], [high], [high, low]]
    assert {body["reasoning"]["effort"] for body in double.bodies} == {"low"}
    assert [record.thinking_kept for record in double.records] == [0, 1, 2, 3]
    assert [accept(Update, item) for item in stated[-1]] == stated[-1]


@pytest.mark.states("PV-73")
def test_an_effort_that_is_no_longer_set_is_the_usual_one_again_or_said_to_stay() -> None:
    for model, stated, said in (
        ("gpt-6-astra", ["high", "low"], []),
        ("gpt-6.1-sol", ["high"], ["gpt-6.1-sol stays at effort high: the one that it has unasked is not known; set another effort"]),
    ):
        double = StrictProvider()
        session = strict_session(double, model)
        for effort in ("", "high", "", ""):
            session.params = msgspec.structs.replace(session.params, effort=effort)
            say(session, "go on")
            turn(session)
        last = double.bodies[-1]
        assert [item["reasoning"]["effort"] for item in last["input"] if item["type"] == "configuration_update"] == stated
        assert ["effort" in body["reasoning"] for body in double.bodies] == [False] * 4
        assert [event.body.text for event in session.log.events() if isinstance(event.body, Noticed)] == said
        assert [record.thinking_kept for record in double.records] == [0, 1, 2, 3]


def _sealed(request: Sendable) -> list[str]:
    """The last letters of the reasoning in a request."""
    listed: list[dict[str, str]] = msgspec.json.decode(request.body)["input"]
    return [item["encrypted_content"][-1] for item in listed if item["type"] == "reasoning"]
