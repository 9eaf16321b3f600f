"""The wants of a plan are answered: by the model it names, with the tools it was granted, within the turns it has."""

import asyncio
from collections.abc import Generator
from dataclasses import replace

import msgspec
import pytest
from workplace import NOTHING, answered_by, say, use, work

from palimpsest.agent.calls import carry_out, end_turn
from palimpsest.agent.session import GrantedTool, Session
from palimpsest.core.errors import NoModel, PromptTooLong, ProviderError
from palimpsest.core.events import TURN, CallStarted, Failed, ModelReplied, NotesTaken, ToolReturned
from palimpsest.core.items import Item, Text, ToolCall
from palimpsest.core.plans import Answer, Ask, Moment, Plan, Proposal, Situation, Want, ask
from palimpsest.core.ports import Provider
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import past_request
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Tool
from palimpsest.wire.wires import check_request

SONNET = "claude-sonnet-4-5"


def asked(session: Session, want: Ask) -> ModelReplied:
    return asyncio.run(carry_out(ask(want), session))


def tool(name: str, ran: list[str]) -> GrantedTool:
    async def run(args: str) -> str:
        ran.append(f"{name} {args}")
        return f"{name} says yes"

    return GrantedTool(Tool(name, f"The tool {name}."), run)


def purposes(session: Session) -> list[tuple[str, str]]:
    bodies = [event.body for event in session.log.events()]
    return [(type(body).__name__, body.purpose) for body in bodies if isinstance(body, CallStarted | ModelReplied)]


def test_a_plan_that_names_another_model_reaches_that_model() -> None:
    session = work(profile("none"))
    say(session, "go")
    ours, other = Scripted("ours"), Scripted("the other")

    def provider(model: ModelCard, purpose: str) -> Provider:
        return ours if model.name == SONNET else other

    session.environment = replace(session.environment, provider=provider)
    assert asked(session, Ask((), "Name it.", "title", model="gpt-5.5")).parts == (Text("the other", "assistant"),)
    assert (len(ours.requests), len(other.requests)) == (0, 1)
    assert other.requests[0].wire == "responses"
    started = session.log.event(2).body
    assert isinstance(started, CallStarted)
    assert (started.model, started.purpose) == ("gpt-5.5", "title")
    assert session.log.view.model == SONNET


def test_without_a_model_nothing_is_recorded_and_the_plan_gets_the_error() -> None:
    session = work(profile("none"))
    say(session, "go")
    with pytest.raises(NoModel):
        asked(session, Ask((), "Name it.", "title"))
    assert session.log.tip == 1


@pytest.mark.states("SG-09")
def test_a_refused_schema_is_left_out_once_and_the_user_is_told() -> None:
    session = work(profile("none"))
    say(session, "go")
    provider = Scripted(ProviderError("output_config.format: Extra inputs are not permitted", status=400), "{}")
    answered_by(session, provider)
    asked(session, Ask((), "Choose.", "recall", schema='{"type":"object","properties":{},"required":[],"additionalProperties":false}'))
    with_schema, without = (msgspec.json.decode(request.body) for request in provider.requests)
    assert with_schema.pop("output_config")["format"]["type"] == "json_schema"
    assert with_schema == without
    failures = [event.body for event in session.log.events() if isinstance(event.body, Failed)]
    assert [failed.what for failed in failures] == ["call", "schema"]
    assert failures[1].message == f"{SONNET} refused a request with a schema for its reply; the same is asked without one"


@pytest.mark.states("SG-09")
def test_another_refusal_or_a_second_one_ends_the_plan() -> None:
    session = work(profile("none"))
    say(session, "go")
    wrong = ProviderError("output_config.format: Extra inputs are not permitted", status=400)
    for refused, schema in (((wrong, wrong), "{}"), ((wrong,), ""), ((PromptTooLong("prompt is too long", status=400),), "{}")):
        provider = Scripted(*refused)
        answered_by(session, provider)
        with pytest.raises(ProviderError):
            asked(session, Ask((), "Choose.", "recall", schema=schema))
        assert len(provider.requests) == len(refused)


def test_only_the_tools_that_were_granted_are_run_whatever_the_reply_calls() -> None:
    session, ran = work(profile("none")), list[str]()
    say(session, "go")
    calls = ModelReplied((ToolCall("a", "look", "{}"), ToolCall("b", "delete", "{}")))
    provider = Scripted(calls, "done")
    answered_by(session, provider)
    session.environment = replace(session.environment, tools={"look": tool("look", ran), "delete": tool("delete", ran)})
    reply = asked(session, Ask(session.log.view.items, "Look.", "extraction", tools=False, grants=("look",), turns=3))
    assert reply.parts == (Text("done", "assistant"),)
    assert ran == ["look {}"]
    offered, second = (msgspec.json.decode(request.body) for request in provider.requests)
    assert [each["name"] for each in offered["tools"]] == ["look"]
    results = second["messages"][-1]["content"]
    assert [(each["content"][0]["text"] if isinstance(each["content"], list) else each["content"]) for each in results] == [
        "look says yes",
        "This tool is not granted here.",
    ]
    assert all(check_request("anthropic", request.body) == () for request in provider.requests)
    assert purposes(session) == [("CallStarted", "extraction"), ("ModelReplied", "extraction")] * 2
    assert session.log.view.ids == ("1.0",)
    assert not any(isinstance(event.body, ToolReturned) for event in session.log.events())


def test_a_plan_has_no_more_requests_than_turns() -> None:
    session, ran = work(profile("none")), list[str]()
    say(session, "go")
    again = ModelReplied((ToolCall("same", "look", "{}"),))
    provider = Scripted(again, again, again)
    answered_by(session, provider)
    session.environment = replace(session.environment, tools={"look": tool("look", ran)})
    reply = asked(session, Ask((), "Look.", "extraction", grants=("look",), turns=2))
    assert len(provider.requests) == 2
    assert ran == ["look {}"]
    assert [part.call_id for part in reply.parts if isinstance(part, ToolCall)] == ["pal_5_0"]


def test_a_side_request_can_be_shown_byte_for_byte_with_its_own_purpose() -> None:
    session = work(profile("none"))
    say(session, "read a.py")
    use(session, "c1", "Read", '{"file_path":"a.py"}', "x = 1\n" * 40)
    provider = Scripted("a summary", "another")
    answered_by(session, provider)
    items = session.log.view.items
    extra = Item("99.0", "user", Text("A line that only this request has."))
    asked(session, Ask((*items[:-1], extra, items[-1]), "Sum it up.", "summary", head=False, tools=False, reply=500))
    say(session, "go on")
    past = past_request(session.log, 2, session.environment.blobs.get)
    assert (past.verified, past.request.body) == (True, provider.requests[0].body)


@pytest.mark.parametrize(("used", "limit"), [(1_000, 20_000), (190_000, 10_000)])
def test_a_side_call_asks_for_no_longer_reply_than_fits(used: int, limit: int) -> None:
    session = work(profile("codex"), card("gpt-5.5", window=200_000))
    provider = Scripted("short")
    answered_by(session, provider)
    text = Text("x" * (4 * used - 4 * 50))
    asked(session, Ask((Item("1.0", "user", text),), "Sum it up.", "summary", head=False, tools=False, reply=20_000))
    sent = msgspec.json.decode(provider.requests[0].body)
    assert abs(sent["max_output_tokens"] - limit) < 300


def test_each_request_of_a_tool_loop_asks_for_no_longer_reply_than_fits_beside_its_tools() -> None:
    session, ran = work(profile("codex"), card("gpt-5.5", window=200_000)), list[str]()
    provider = Scripted(ModelReplied((Text("y" * 8_000, "assistant"), ToolCall("1", "look", "{}"))), "done")
    answered_by(session, provider)
    look = tool("look", ran)
    look = replace(look, tool=Tool("look", "z" * 16_000))
    session.environment = replace(session.environment, tools={"look": look})
    text = Text("x" * (4 * 180_000))
    asked(session, Ask((Item("1.0", "user", text),), "Look.", "extraction", head=False, grants=("look",), turns=2, reply=20_000))
    limits = [msgspec.json.decode(request.body)["max_output_tokens"] for request in provider.requests]
    # About 3,100 tokens of tools in both requests, and 2,000 of a reply in the second.
    assert [abs(limit - expected) < 300 for limit, expected in zip(limits, (16_900, 14_900), strict=True)] == [True, True]


class TakesNotes:
    """Takes notes at the end of a turn."""

    name = "takes_notes"
    moments: frozenset[Moment] = frozenset({"turn_ends"})
    shrinks = False

    def plan(self, situation: Situation) -> Plan:
        return self._steps(situation)

    def _steps(self, situation: Situation) -> Generator[Want, Answer, Proposal]:
        reply = yield from ask(Ask(situation.view.items, "Take notes.", "notes", tools=False))
        (text,) = (part.text for part in reply.parts if isinstance(part, Text))
        return Proposal(events=(NotesTaken(text, situation.view.seq),), notices=("noted",))


def test_a_plan_may_return_events_beside_edits() -> None:
    session = work(Profile("noting", (TakesNotes(),), profile("none").budget))
    say(session, "go")
    answered_by(session, Scripted("They said go."))
    run = asyncio.run(end_turn(session))
    assert [event.body for event in run.events] == [NotesTaken("They said go.", 2)]
    assert run.notices == ("noted",)
    assert session.log.view.notes is not None
    assert (session.log.view.notes.text, session.log.view.notes.covers) == ("They said go.", 2)


def test_a_side_reply_calibrates_and_costs_but_does_not_enter_the_view() -> None:
    session = work(profile("none"))
    say(session, "go")
    answered_by(session, Scripted("title"))
    before = session.log.view
    asked(session, Ask(before.items, "Name it.", "title"))
    after = session.log.view
    assert (after.items, after.reported, after.call, session.log.health.calls) == (before.items, None, None, 0)
    assert [(each.purpose, each.calls, each.usage != NOTHING) for each in session.log.ledger.spendings] == [("title", 1, True)]
    assert TURN not in {purpose for _, purpose in purposes(session)}
