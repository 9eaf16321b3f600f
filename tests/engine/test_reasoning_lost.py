"""What an edit is said to cost in reasoning is what the next call leaves out because of it; policies wait where that is much."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strict_session import strict_session, turn
from workplace import offline, say

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadEdit
from palimpsest.core.events import CallStarted, EditRefused, ModelReplied, ViewEdited
from palimpsest.core.items import Edit, Fold, Insert, Mask, Put, ReasoningLost, Text, ToolCall, Unmask
from palimpsest.core.plans import Moment, Proposal, Situation
from palimpsest.policies.profile import Profile
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks
from palimpsest.wire.encode import Encoder


def thoughtful(chance: random.Random) -> list[dict[str, Any]]:
    """A reply with thinking in several places, which calls a tool or not."""
    blocks = [chance.choice((thinks(f"because {chance.random()}"), says("words"))) for _ in range(chance.randint(1, 4))]
    return [*blocks, *([calls("ls", path=str(chance.random()))] if chance.random() < 0.7 else [])]


def last_call(session: Session) -> CallStarted:
    call = session.log.view.call
    assert call is not None
    return call


def thinking_sent(session: Session) -> set[str]:
    """The thinking that a request for the view would send now, by what each block is bound to."""
    encoder = Encoder(session.card, session.tools, session.request_params, session.environment.blobs.get)
    return set(session.past_thinking.encode(encoder, session.log.view, session.card)[1].thinking)


def some_edit(session: Session, chance: random.Random, *, alone: bool) -> Edit:
    """An edit of the view, of no thinking by itself.

    Only one that is made `alone` shows something again, or hides what an edit put there, because that gives back what an edit took.
    """
    found = [item for item in session.log.view.items[:-1] if item.kind != "thinking"]
    items = [item for item in found if alone or item.id.count(".") == 1]
    if not items:
        return Insert((Put("reminder", Text(f"remember {chance.random()}")),), "")
    first = chance.randrange(len(items))
    masked = [item.id for item in items if item.mask]
    match chance.choice(("mask", "mask", "fold", "insert", "unmask")):
        case "mask":
            return Mask((items[first].id,), chance.choice(("", f"cleared {chance.random()}")))
        case "fold":
            last = min(len(items) - 1, first + chance.randrange(6))
            return Fold(items[first].id, items[last].id, (Put("summary", Text(f"short {chance.random()}")),))
        case "unmask" if masked and alone:
            return Unmask((chance.choice(masked),))
        case _:
            return Insert((Put("reminder", Text(f"remember {chance.random()}")),), chance.choice(("", items[first].id)))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
@pytest.mark.states("PV-18")
def test_an_edit_costs_the_thinking_that_the_next_call_leaves_out(seed: int) -> None:
    chance = random.Random(seed)
    double = StrictProvider(lambda _: thoughtful(chance), thinks=False)
    session = strict_session(double)
    say(session, "begin")
    for _ in range(8):
        for _ in range(chance.randint(1, 4)):
            if session.log.view.items[-1].kind not in ("user", "result"):
                say(session, f"go on {chance.random()}")
            turn(session)
        say(session, "and now")
        before, predicted = thinking_sent(session), 0
        edits = chance.randint(1, 2)
        for _ in range(edits):
            edit = some_edit(session, chance, alone=edits == 1)
            try:
                lost = session.reasoning_lost(session.log.trial((edit,)))
                session.log.append(ViewEdited((edit,), "test", reasoning_lost=lost))
            except BadEdit:
                continue
            assert lost is not None
            predicted += lost.blocks
        still_sent = thinking_sent(session)
        turn(session)
        assert double.records[-1].thinking_kept == len(still_sent)
        assert predicted == len(before - still_sent)


class Clears:
    """Proposes to clear these results at any moment, as a policy does that looks at nothing but their age."""

    name = "clears"
    moments: frozenset[Moment] = frozenset({"before_call", "asked", "overflow"})
    shrinks = True

    def __init__(self, most: int) -> None:
        self.most = most

    def plan(self, situation: Situation) -> Proposal:
        results = [item.id for item in situation.view.items if item.kind == "result" and item.mask is None]
        return Proposal((Mask(tuple(results[: self.most]), "cleared"),) if results else (), "old")


def looped(most: int, results: int, *, model: str = "claude-opus-5-5", compact_at: int = 150_000) -> Session:
    """A session in the middle of a loop: the model thinks and calls a tool again and again, on one prompt."""
    profile = Profile("clearing", (Clears(most),), lambda card: Budget(card.window, compact_at=compact_at))
    session = strict_session(StrictProvider(lambda _: [thinks("so"), calls("ls", path=".")], thinks=False), model)
    say(session, "begin")
    for _ in range(results):
        turn(session)
    session.change_profile(profile)
    return session


def edits_of(session: Session, moment: Moment) -> list[ReasoningLost | None]:
    """What the edits cost that policies make now."""
    ran = offline(session, run_policies(session, moment))
    assert not any(isinstance(event.body, EditRefused) for event in ran.events)
    return [event.body.reasoning_lost for event in ran.edited if isinstance(event.body, ViewEdited)]


def blocks_lost(found: list[ReasoningLost | None]) -> list[int | None]:
    return [None if lost is None else lost.blocks for lost in found]


@pytest.mark.states("PV-14", "PV-19")
def test_a_clear_waits_for_the_next_message_of_the_user_and_until_enough_is_due() -> None:
    session = looped(most=10, results=12)
    assert edits_of(session, "before_call") == []
    say(session, "thank you, and now the other one")
    # The first block was thought before any result, so that it is still what it was.
    assert blocks_lost(edits_of(session, "before_call")) == [11]

    few = looped(most=9, results=12)
    say(few, "go on")
    assert edits_of(few, "before_call") == []


@pytest.mark.states("PV-14")
@pytest.mark.parametrize(("moment", "compact_at"), [("asked", 150_000), ("overflow", 150_000), ("before_call", 10)])
def test_neither_the_user_nor_a_full_window_waits(moment: Moment, compact_at: int) -> None:
    assert blocks_lost(edits_of(looped(1, 3, compact_at=compact_at), moment)) == [2]


@pytest.mark.states("PV-14")
def test_nothing_is_edited_while_a_call_has_no_result() -> None:
    session = looped(most=10, results=12)
    session.log.append(ModelReplied((ToolCall("open", "ls", "{}"),), model=session.card.name), foreign=True)
    assert edits_of(session, "asked") == []


@pytest.mark.states("PV-19")
def test_a_model_that_binds_nothing_is_edited_as_before() -> None:
    assert edits_of(looped(most=1, results=3, model="claude-opus-4-8"), "before_call") == [None]


@pytest.mark.states("PV-18")
def test_the_reason_names_what_is_lost_and_the_price_has_the_share_that_is_thought_again() -> None:
    prices: dict[float, float] = {}
    tokens = 0
    for share in (0.0, 0.5):
        session = looped(most=10, results=12)
        session.change_profile(replace(session.profile, thinking_rethought=share))
        (event,) = offline(session, run_policies(session, "asked")).edited
        assert isinstance(event.body, ViewEdited)
        lost = event.body.reasoning_lost
        assert lost is not None
        assert lost.tokens
        assert event.body.price_usd is not None
        prices[share], tokens = event.body.price_usd, lost.tokens
        assert event.body.why == f"old; 11 thinking blocks of {lost.tokens} tokens behind it are no longer sent"
        assert lost == ReasoningLost(11, lost.tokens)
    assert prices[0.5] - prices[0.0] == pytest.approx(0.5 * tokens * session.card.prices.output / 1_000_000)
