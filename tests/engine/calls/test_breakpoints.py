"""Cache breakpoints of our own rule as a session grows: head, frontier, best live prefix, tail."""

import asyncio

import pytest
from workplace import START, answered_by, say, work

from palimpsest.agent.calls import call
from palimpsest.agent.session import Session
from palimpsest.core.events import CallStarted, ContextStated, ModelReplied, Statement, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import past_request

PROSE = "words that say nothing in particular\n" * 300


def begin(*, tick: int = 1_000) -> Session:
    profile = Profile("test", (), lambda each: palimpsest_budget(each.window, each.reply))
    session = work(profile, clock=FixedClock(START, tick))
    session.log.append(ContextStated(head=(Statement("base", PROSE, "system"),)))
    say(session, PROSE)
    return session


def breakpoints(session: Session) -> tuple[str, ...]:
    """The breakpoints of the next call; the model asks for a tool and gets its result."""
    name = f"c{session.log.tip}"
    # A provider that reports no cache leaves the ledger to its own belief.
    provider = Scripted(ModelReplied((ToolCall(name, "Bash", "{}"),), usage=Usage(output=5)))
    asyncio.run(call(answered_by(session, provider)))
    session.log.append(ToolReturned(ToolResult(name, (Text(PROSE),)), tool="Bash"))
    started = next(event.body for event in reversed(list(session.log.events())) if isinstance(event.body, CallStarted))
    return started.breakpoints


@pytest.mark.states("PA-24")
def test_an_unchanged_view_moves_no_breakpoint_but_the_last() -> None:
    session = begin()
    assert breakpoints(session) == ("head:0", "2.0")
    assert breakpoints(session) == ("head:0", "2.0", "5.0")
    assert breakpoints(session) == ("head:0", "5.0", "8.0")
    assert breakpoints(session) == ("head:0", "8.0", "11.0")


@pytest.mark.states("PA-24")
def test_after_an_edit_the_breakpoints_are_head_frontier_best_live_prefix_and_tail() -> None:
    session = begin()
    for _ in range(4):
        breakpoints(session)
    session.log.append(ViewEdited((Mask(("11.0",), "[gone]"),), by="test"))
    # The call before the cleared result is the frontier, and what was cached up to the result before that is still live.
    assert breakpoints(session) == ("head:0", "8.0", "10.0", "14.0")
    # The frontier stays where it is while the tail goes on, and so does what the last call left.
    assert breakpoints(session) == ("head:0", "10.0", "14.0", "18.0")
    assert breakpoints(session) == ("head:0", "10.0", "18.0", "21.0")


@pytest.mark.states("PA-24")
def test_after_a_fold_the_last_item_that_it_left_in_place_is_the_frontier() -> None:
    session = begin()
    for _ in range(3):
        breakpoints(session)
    ids = session.log.view.ids
    session.log.append(ViewEdited((Fold(ids[0], ids[-1], (Keep(ids[0]), Put("summary", Text(PROSE)))),), by="test"))
    assert session.derived.cache.value().frontier == "2.0"
    found = breakpoints(session)
    assert found == ("head:0", "2.0", "12.0.1")


@pytest.mark.states("PA-24")
def test_with_a_cold_cache_the_old_tail_gets_a_breakpoint_again() -> None:
    session = begin(tick=200_000)
    assert breakpoints(session) == ("head:0", "2.0")
    assert breakpoints(session) == ("head:0", "2.0", "5.0")


def test_a_request_is_made_again_byte_for_byte_from_what_was_recorded() -> None:
    session = begin()
    breakpoints(session)
    session.log.append(ViewEdited((Mask(("5.0",), "[gone]"),), by="test"))
    breakpoints(session)
    calls = [event.seq for event in session.log.events() if isinstance(event.body, CallStarted)]
    for number in range(1, len(calls) + 1):
        assert past_request(session.log, number, session.environment.blobs.get).verified
