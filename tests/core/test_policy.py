"""Plans and their driver."""

from collections.abc import Generator
from dataclasses import dataclass

import pytest
from workplace import run_plan

from palimpsest.audit.sizes import claude_size
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError, PromptTooLong
from palimpsest.core.events import Event, ModelReplied, TurnEnded
from palimpsest.core.items import Edit, Insert, Item, Mask, Put, Text
from palimpsest.core.plans import (
    Answer,
    Ask,
    EventSpan,
    Look,
    Moment,
    Plan,
    Policy,
    Proposal,
    Save,
    Situation,
    Steps,
    Want,
    ask,
    look,
    run_steps,
    save,
    span,
    steps_of,
)
from palimpsest.core.tokens import TokenSizes
from palimpsest.core.view import View
from palimpsest.wire.models import ModelCard

ITEM = Item("1.0", "user", Text("hello"))
MASK = Mask(("1.0",), "gone")
CARD = ModelCard("test-1", "chat", "test", 8_000, 1_000)


def _reply(text: str) -> ModelReplied:
    return ModelReplied((Text(text, "assistant"),))


def _summary(reply: ModelReplied) -> tuple[Edit, ...]:
    return (Insert((Put("summary", reply.parts[0]),)),)


def _retrying() -> Steps:
    try:
        reply = yield from ask(Ask((ITEM, ITEM), "sum up", "summary"))
    except PromptTooLong:
        reply = yield from ask(Ask((ITEM,), "sum up", "summary"))
    return _summary(reply)


def test_a_plan_of_plain_edits_passes_through() -> None:
    def no_answer(want: Want) -> Answer:
        raise AssertionError(want)

    assert run_plan((MASK,), no_answer) == (MASK,)
    assert run_plan((), no_answer) == ()


def test_an_answer_reaches_the_plan() -> None:
    assert run_plan(_retrying(), lambda _: _reply("short")) == _summary(_reply("short"))


@pytest.mark.parametrize("raises", [True, False])
def test_a_failure_reaches_the_except_of_the_plan_whether_raised_or_returned(raises: bool) -> None:
    seen: list[Want] = []

    def answer(want: Want) -> Answer | PalimpsestError:
        seen.append(want)
        if len(seen) > 1:
            return _reply("shorter")
        if raises:
            raise PromptTooLong("7 tokens too many", gap=7)
        return PromptTooLong("7 tokens too many", gap=7)

    assert run_plan(_retrying(), answer) == _summary(_reply("shorter"))
    assert seen == [Ask((ITEM, ITEM), "sum up", "summary"), Ask((ITEM,), "sum up", "summary")]


def test_a_failure_that_the_plan_does_not_catch_is_raised() -> None:
    def refuse(_: Want) -> Answer:
        raise BadInput("no such model")

    with pytest.raises(BadInput, match="no such model"):
        run_plan(_retrying(), refuse)


def test_each_want_has_its_own_kind_of_answer() -> None:
    event = Event(3, 2, 0, "", TurnEnded())
    answers: dict[type, Answer] = {Look: None, Save: "address", EventSpan: (event,), Ask: _reply("done")}
    seen: list[tuple[str | None, str, tuple[Event, ...]]] = []

    def plan() -> Steps:
        seen.append(((yield from look(Look("a.py"))), (yield from save(Save(b"x"))), (yield from span(EventSpan(3, 3)))))
        return _summary((yield from ask(Ask((), "p", "title"))))

    assert run_plan(plan(), lambda want: answers[type(want)]) == _summary(_reply("done"))
    assert seen == [(None, "address", (event,))]


def _wanting_bytes() -> Steps:
    yield from save(Save(b"x"))
    return ()


def _wanting_events() -> Steps:
    yield from span(EventSpan(0, 1))
    return ()


def _wanting_a_file() -> Steps:
    yield from look(Look("a.py"))
    return ()


@pytest.mark.parametrize(
    ("plan", "answer", "words"),
    [
        (_retrying(), "text", "the want Ask was answered with str"),
        (_wanting_bytes(), None, "the want Save was answered with NoneType"),
        (_wanting_events(), "text", "the want EventSpan was answered with str"),
        (_wanting_a_file(), (), "the want Look was answered with tuple"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_refused(plan: Steps, answer: Answer, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run_plan(plan, lambda _: answer)


@pytest.mark.parametrize("word", ["refusal", "content_filter", "content-filter", "SAFETY"])
def test_a_refusal_is_a_failure_and_no_answer(word: str) -> None:
    refused = ModelReplied((Text("no", "assistant"),), stop=word)
    with pytest.raises(CannotFold, match="the model refused to answer"):
        run_plan(_retrying(), lambda _: refused)


def test_a_plan_becomes_steps_with_a_proposal_at_the_end_whichever_way_it_was_made() -> None:
    proposal = Proposal((MASK,), "too long")
    assert run_steps(steps_of((MASK,)), lambda _: None) == Proposal((MASK,))
    assert run_steps(steps_of(proposal), lambda _: None) == proposal
    assert run_steps(steps_of(_retrying()), lambda _: _reply("short")) == Proposal(_summary(_reply("short")))


def test_a_plan_is_closed_when_its_driver_is_stopped() -> None:
    closed: list[str] = []

    def waiting() -> Generator[Want, Answer, tuple[Edit, ...]]:
        try:
            yield Look("a.py")
        finally:
            closed.append("closed")
        return ()

    def stop(_: Want) -> Answer:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(waiting(), stop)
    assert closed == ["closed"]


@dataclass(frozen=True)
class HideFirst:
    """The smallest policy there is."""

    name: str = "hide_first"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        return (Mask((situation.view.items[0].id,)),) if situation.used >= situation.budget.window else ()


def test_a_frozen_dataclass_is_a_policy_and_a_model_card_is_a_card() -> None:
    policy: Policy = HideFirst()
    situation = Situation(View(items=(ITEM,)), Budget(window=100), CARD, "before_call", TokenSizes(claude_size), used=100)
    assert (policy.plan(situation), situation.card.window, situation.card.prices.input) == ((Mask(("1.0",)),), 8_000, 0.0)
