"""Laws of every clearing policy, for any session."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from working_days import PROFILE, Step, steps, take_back, tell
from workplace import START, offline, reply, run_plan, work

from palimpsest.agent.editing import run_policies
from palimpsest.core.events import EditRefused, ViewEdited
from palimpsest.core.items import Text, ToolResult, named_ids, unpaired
from palimpsest.core.plans import Policy, proposal_of
from palimpsest.policies.clear import ClearDead, clear_all
from palimpsest.stores.in_memory import FixedClock

POLICIES: tuple[Policy, ...] = (ClearDead(), ClearDead(cover=0.0, gain=0))


@pytest.mark.parametrize("policy", POLICIES, ids=("balanced", "greedy"))
@settings(max_examples=60)
@given(steps, st.sampled_from([1_000, 90_000, 400_000]), st.sampled_from(["claude-sonnet-4-5", "gpt-5"]))
def test_a_clearing_shrinks_keeps_pairs_is_the_same_again_and_rests(policy: Policy, told: list[Step], tick: int, model: str) -> None:
    session = work(replace(PROFILE, policies=(policy,)), model, clock=FixedClock(START, tick))
    tell(session, told, take_back)
    for _ in range(9):
        reply(session, Text("go on", "assistant"))
    situation = session.situation("before_call")
    first, second = (run_plan(policy.plan(situation), lambda _: None) for _ in range(2))
    assert proposal_of(first) == proposal_of(second)
    before, alone = session.counter.total(session.log.view), unpaired(session.log.view.items)
    events = offline(session, run_policies(session, "before_call")).events
    assert not any(isinstance(event.body, EditRefused) for event in events)
    assert unpaired(session.log.view.items) == alone
    if proposal_of(first).edits:
        assert [type(event.body) for event in events] == [ViewEdited]
        assert session.counter.total(session.log.view) < before
        # Without an edit the second run may find that the cache has grown cold meanwhile, for the clock goes on.
        assert offline(session, run_policies(session, "before_call")).events == ()


@settings(max_examples=60)
@given(steps, st.integers(0, 40))
def test_all_that_is_dead_goes_under_pressure_and_nothing_else(told: list[Step], wait: int) -> None:
    session = work(PROFILE, clock=FixedClock(START, 1_000))
    tell(session, told)
    for _ in range(wait):
        reply(session, Text("go on", "assistant"))
    situation = session.situation("before_call")
    dead = {name for name, use in situation.uses.items() if use.died is not None}
    shown = [item for item in situation.view.items if item.mask is None and isinstance(item.content, ToolResult)]
    masks = proposal_of(clear_all(situation)).edits
    assert [named_ids(mask) for mask in masks] == [(item.id,) for item in shown if item.id in dead]
