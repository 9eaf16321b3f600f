"""What policies, sources and limiters of other authors raise is recorded and counted, and ends no turn."""

import asyncio
from dataclasses import replace

import pytest
from every_case import every_case
from loops import ECHO, PROFILE, bodies, calls, loop_of, shown, typed
from worlds import MemoryWorld

from palimpsest.agent.context import SourcedContext
from palimpsest.agent.decision import Decision
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.turn import run_turn
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.plans import Ask, EventSpan, Moment, Plan, Proposal, Save, Situation, Steps, Want
from palimpsest.policies.profile import ResultLimiter
from palimpsest.sources.source import Fields, Source, SourceSet, World
from palimpsest.wire.models import ModelCard


class Unreadable(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise ValueError


ERRORS = (
    *(ValueError("odd"), KeyError("x"), RecursionError("deep"), AssertionError(), OSError(28, "no space"), StopIteration("x")),
    *(MemoryError(), SystemExit(3), asyncio.CancelledError(), Unreadable()),
)


class Raising:
    """A policy that raises."""

    name = "theirs"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks = True

    def __init__(self, error: BaseException) -> None:
        self.error, self.runs = error, 0

    def plan(self, situation: Situation) -> Plan:
        self.runs += 1
        raise self.error


@every_case("error", ERRORS)
def test_a_policy_that_raises_anything_is_recorded_and_left_alone_after_some_failures(error: BaseException) -> None:
    policy = Raising(error)
    loop = loop_of(
        *(calls((f"c{number}", "echo", f'{{"n":{number}}}')) for number in range(5)), "done", profile=replace(PROFILE, policies=(policy,))
    )
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    failed = [body for body in bodies(loop.session) if isinstance(body, Failed)]
    assert {(each.what, each.error, each.by) for each in failed} == {("plan", "foreign", "theirs")}
    assert policy.runs == len(failed) == PROFILE.circuit < 6


class Wanting(Raising):
    """A policy that wants something which cannot be had."""

    def __init__(self, want: Want) -> None:
        super().__init__(ValueError())
        self.want = want

    def plan(self, situation: Situation) -> Plan:
        self.runs += 1
        return self._steps()

    def _steps(self) -> Steps:
        yield self.want
        return ()


@pytest.mark.parametrize(
    "want",
    [EventSpan("1", 2), Save("text", "name"), Ask((3,), "x", "fold"), Ask((), 3, "fold")],  # type: ignore[arg-type]
)
def test_a_policy_whose_want_cannot_be_answered_is_recorded_and_ends_no_turn(want: Want) -> None:
    policy = Wanting(want)
    loop = loop_of(calls(("c1", "echo", "{}")), "done", profile=replace(PROFILE, policies=(policy,)))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert {(body.what, body.by) for body in bodies(loop.session) if isinstance(body, Failed)} == {("plan", "theirs")}


def _observed(_: World) -> Fields:
    return {"text": "fine"}


@every_case("error", [*ERRORS, GeneratorExit()])
def test_a_source_that_raises_costs_its_own_statement_only(error: BaseException) -> None:
    def _raises(_: object) -> Fields | None:
        raise error

    def _cannot_say(_: Fields) -> str:
        raise error

    sources = (
        Source("bad", _raises, str),
        Source("mute", _observed, _cannot_say),
        Source("good", _observed, lambda fields: fields["text"]),
    )
    loop = loop_of("done", profile=replace(PROFILE, sources=SourceSet(sources)))
    world = MemoryWorld()
    loop = type(loop)(loop.session, loop.toolbox, loop.feed, context=SourcedContext(loop.session, lambda: world, lambda: world))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [("context", "fine"), ("user", "go"), ("assistant", "done")]
    failed = [(body.by, body.message.partition(":")[0]) for body in bodies(loop.session) if isinstance(body, Failed)]
    assert failed[:2] == [("source bad", type(error).__name__), ("source mute", type(error).__name__)]


@every_case("error", [*ERRORS, GeneratorExit()])
def test_a_call_about_which_nothing_can_decide_is_refused_and_the_turn_goes_on(error: BaseException) -> None:
    def _undecided(_: AgentTool, __: ToolCall) -> Decision:
        raise error

    loop = loop_of(calls(("c1", "echo", "{}")), "done", tools=(ECHO,), decide=_undecided)
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert [body.what for body in bodies(loop.session) if isinstance(body, Failed)] == ["deciding"]
    assert shown(loop.session)[2][1].startswith("This call was not run: ")


@every_case("error", [*ERRORS, GeneratorExit()])
def test_a_limiter_that_raises_is_replaced_by_one_that_does_not(error: BaseException) -> None:
    def limiter(_: ModelCard) -> ResultLimiter:
        raise error

    loop = loop_of(calls(("c1", "echo", "{}")), "done", profile=replace(PROFILE, limiter=limiter))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session)[2] == ("result", "echo {}")


class Answering(Raising):
    """A policy whose plan is none."""

    def __init__(self, answer: object) -> None:
        super().__init__(ValueError())
        self.answer = answer

    def plan(self, situation: Situation) -> Plan:
        return self.answer  # type: ignore[return-value]


@every_case(
    "answer",
    [None, 3, [], {}, "fold", (1, 2), Proposal(edits=("x",)), Proposal(events=(3,)), Proposal(events=(object(),)), Proposal(notices=(1,))],  # type: ignore[arg-type]
)
def test_a_policy_that_returns_anything_ends_no_turn_and_leaves_a_log_that_can_be_read(answer: object) -> None:
    loop = loop_of(calls(("c1", "echo", "{}")), "done", profile=replace(PROFILE, policies=(Answering(answer),)))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == "done"
    assert shown(loop.session) == [("user", "go"), ("call", "echo {}"), ("result", "echo {}"), ("assistant", "done")]


def test_text_of_a_reply_is_the_models_also_if_its_author_left_out_the_role() -> None:
    session = loop_of().session
    session.log.append(ModelReplied((Text("x"),)))
    assert [item.content for item in session.log.view.items] == [Text("x", "assistant")]
