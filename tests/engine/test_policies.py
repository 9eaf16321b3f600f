"""Policies run at their moments, and their proposals are installed, refused or recorded as failures."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from workplace import offline, online, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import TooFull
from palimpsest.core.events import CallStarted, EditRefused, Failed, ModelReplied, Usage, ViewEdited
from palimpsest.core.items import Fold, Insert, Keep, Mask, Put, Text, text_of
from palimpsest.core.plans import Ask, Moment, Outcome, Plan, Policy, Proposal, Situation, Steps, ask
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile
from palimpsest.policies.profiles import palimpsest
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import past_request


@dataclass(frozen=True)
class Doing:
    """A policy with a given plan."""

    do: Callable[[Situation], Plan]
    name: str = "doing"
    moments: frozenset[Moment] = frozenset({"before_call", "asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        return self.do(situation)


@dataclass(frozen=True)
class Noting:
    """A policy that says what it saw after a fold."""

    seen: list[str] = field(default_factory=list)
    name: str = "noting"
    moments: frozenset[Moment] = frozenset({"folded"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        self.seen.extend(situation.view.ids)
        return (Insert((Put("reminder", Text("all is well")),)),)


def profile(*policies: Policy, fallback: Policy | None = None) -> Profile:
    return Profile("test", policies, lambda card: palimpsest_budget(card.window, card.reply), fallback=fallback)


def mask_results(situation: Situation) -> Outcome:
    ids = tuple(item.id for item in situation.view.items if item.kind == "result" and item.mask is None)
    return Proposal((Mask(ids, "gone"),), "because") if ids else ()


def fold_first(situation: Situation) -> Outcome:
    items = situation.view.items
    return (Fold(items[0].id, items[-1].id, (Keep(items[0].id), Put("summary", Text("read a file")))),) if len(items) > 2 else ()


def busy(*policies: Policy, fallback: Policy | None = None) -> Session:
    session = work(profile(*policies, fallback=fallback))
    say(session, "read a.py")
    use(session, "c1", "Read", '{"file_path":"a.py"}', "x = 1\n" * 500)
    return session


def test_an_edit_is_recorded_with_who_why_when_sizes_price_and_loss() -> None:
    session = busy(Doing(mask_results))
    ran = offline(session, run_policies(session, "before_call"))
    body = ran.edited[0].body
    assert isinstance(body, ViewEdited)
    assert (body.edits, body.by, body.why, body.moment) == ((Mask(("4.0",), "gone"),), "doing", "because", "before_call")
    assert body.tokens_before > body.tokens_after > 0
    assert body.loss is not None
    assert body.loss.ids == ("4.0",)
    assert body.price_usd is not None
    assert session.log.view.items[2].mask is not None


def test_a_policy_runs_only_at_its_moments_and_proposes_nothing_the_second_time() -> None:
    session = busy(Doing(mask_results))
    assert offline(session, run_policies(session, "turn_ends")).events == ()
    assert len(offline(session, run_policies(session, "before_call")).events) == 1
    assert offline(session, run_policies(session, "before_call")).events == ()


def test_an_edit_that_does_not_shrink_is_refused_and_three_refusals_open_the_circuit() -> None:
    grow = Doing(lambda _: (Insert((Put("reminder", Text("more")),)),))
    session = busy(grow)
    for _ in range(3):
        event = offline(session, run_policies(session, "before_call")).events[0]
        assert isinstance(event.body, EditRefused)
        assert (event.body.policy, event.body.by) == ("doing", "gate")
    assert offline(session, run_policies(session, "before_call")).events == ()
    assert len(offline(session, run_policies(session, "asked")).events) == 1


def test_an_edit_that_does_not_fit_the_view_is_refused_with_the_reason() -> None:
    session = busy(Doing(lambda _: (Mask(("9.9",), "gone"),)))
    event = offline(session, run_policies(session, "before_call")).events[0]
    assert isinstance(event.body, EditRefused)
    assert event.body.why == "there is no item 9.9 in the view"


def test_after_a_fold_the_policies_that_restore_run_on_the_folded_view() -> None:
    noting = Noting()
    session = busy(Doing(fold_first), noting)
    ran = offline(session, run_policies(session, "before_call"))
    assert ran.folded
    assert noting.seen == ["1.0", "5.0.1"]
    assert [text_of(item.content) for item in session.log.view.items] == ["read a.py", "read a file", "all is well"]


def asking(_: Situation) -> Steps:
    reply = yield from ask(Ask((), "sum up", "summary"))
    return Proposal((), f"the model said {text_of(reply.parts[0])}", notices=("asked",))


def test_a_plan_asks_the_model_and_the_call_is_recorded_with_what_it_cost() -> None:
    session = busy(Doing(asking))
    ran = online(session, run_policies(session, "before_call"), Scripted("done"))
    assert ran.notices == ("asked",)
    started, replied = session.log.event(session.log.tip - 2), session.log.event(session.log.tip - 1)
    assert isinstance(started.body, CallStarted)
    assert isinstance(replied.body, ModelReplied)
    assert (started.body.purpose, replied.body.purpose, replied.body.call) == ("summary", "summary", started.seq)
    assert replied.body.parts == (Text("done", "assistant"),)
    assert past_request(session.log, 2, session.environment.blobs.get).verified
    assert session.log.ledger.spendings[-1].purpose == "summary"


def test_without_a_model_the_model_free_fallback_takes_its_place() -> None:
    session = busy(Doing(asking), fallback=Doing(fold_first, name="fallback"))
    ran = offline(session, run_policies(session, "asked"))
    body = ran.edited[0].body
    assert isinstance(body, ViewEdited)
    assert body.by == "fallback"


def test_a_plan_that_fails_is_recorded_and_the_view_stays() -> None:
    session = busy(Doing(asking))
    before = session.log.view.items
    ran = online(session, run_policies(session, "before_call"), Scripted())
    failed = ran.events[0].body
    assert isinstance(failed, Failed)
    assert (failed.what, failed.error, failed.by) == ("plan", "provider", "doing")
    assert session.log.view.items == before


def test_at_most_two_folds_happen_in_a_turn_unless_they_are_asked_for() -> None:
    session = busy(Doing(fold_first))
    for number in range(2):
        assert offline(session, run_policies(session, "before_call")).folded
        use(session, f"d{number}", "Read", '{"file_path":"a.py"}', "x = 1\n" * 500)
    event = offline(session, run_policies(session, "before_call")).events[0]
    assert isinstance(event.body, EditRefused)
    assert event.body.why == "this turn had its 2 folds"
    assert offline(session, run_policies(session, "asked")).folded


def test_a_view_that_cannot_fit_raises() -> None:
    def full(_: Situation) -> Plan:
        raise TooFull("the head alone has 300,000 tokens")

    session = busy(Doing(full))
    with pytest.raises(TooFull, match="the head alone"):
        offline(session, run_policies(session, "before_call"))


def test_tokens_after_a_fold_are_those_before_less_what_was_saved_also_where_a_report_knows_of_more_than_the_log() -> None:
    session = work(palimpsest({}))
    say(session, "read all of it")
    for number in range(40):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 400)
    counted = session.used
    reply(session, Text("Done."), usage=Usage(input=counted + 30_000))
    before = session.log.view
    (event,) = offline(session, run_policies(session, "asked")).edited
    assert isinstance(event.body, ViewEdited)
    saved = session.counter.total(before) - session.counter.total(session.log.view)
    assert event.body.tokens_before - event.body.tokens_after == saved
    assert session.used == event.body.tokens_after
