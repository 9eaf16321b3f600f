"""A witness that goes on from the memo of a checkpoint knows what one knows that saw every event."""

from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.audit.witness import Witness
from working_days import MODEL, PROFILE, Step, steps, take_back, tell
from workplace import START, work

from palimpsest.core.log import Log
from palimpsest.core.sizes import claude_size
from palimpsest.core.token_counter import TokenCounter
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.cards import card


@settings(max_examples=150)
@given(steps, steps, st.sampled_from([MODEL, "gpt-5", "local/any"]), st.sampled_from([1_000, 90_000]))
def test_a_witness_resumed_from_a_memo_equals_the_live_one(before: list[Step], after: list[Step], model: str, tick: int) -> None:
    session = work(PROFILE, model, clock=FixedClock(START, tick))
    tell(session, before, take_back)
    session.log.checkpoint()
    tell(session, after)
    live = session.witness
    log = Log.open(session.environment.store, "s", session.environment.clock)
    assert log.remembered is not None
    resumed = Witness.of(log, TokenCounter(claude_size), card(model))
    assert resumed.uses == live.uses
    assert resumed.cache == live.cache
    assert resumed.rent == live.rent


@settings(max_examples=60)
@given(steps)
def test_a_witness_of_a_whole_log_equals_the_live_one_when_nothing_wastake_backne(told: list[Step]) -> None:
    session = work(PROFILE, clock=FixedClock(START, 40_000))
    tell(session, told)
    again = Witness.of(session.log, TokenCounter(claude_size), card(MODEL))
    assert (again.uses, again.cache, again.rent) == (session.derived.uses.value(), session.derived.cache.value(), session.derived.rent.value)
