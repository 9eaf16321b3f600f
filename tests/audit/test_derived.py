"""Audit projections are equal after every event, after a checkpoint and after reading the whole log."""

from derived_state import derived_state, reopened
from hypothesis import given, settings
from hypothesis import strategies as st
from working_days import MODEL, PROFILE, Step, go_back, steps, take_back, tell
from workplace import START, say, use, work

from palimpsest.agent.session import Session
from palimpsest.core.events import UserTyped
from palimpsest.core.items import Text
from palimpsest.core.undo import rewind
from palimpsest.stores.in_memory import FixedClock


def _type(session: Session, a: int, b: int) -> None:
    session.log.append(UserTyped((Text(f"typed {a}"),)))


@settings(max_examples=150)
@given(steps, steps, st.sampled_from([MODEL, "gpt-5", "local/any"]), st.sampled_from([1_000, 90_000]))
def test_restored_and_rebuilt_projections_equal_those_that_saw_every_event(
    before: list[Step], after: list[Step], model: str, tick: int
) -> None:
    session = work(PROFILE, model, clock=FixedClock(START, tick))
    tell(session, before, take_back, go_back, _type)
    session.log.checkpoint()
    tell(session, after, take_back, go_back, _type)
    live = derived_state(session.log)
    assert derived_state(reopened(session)) == live
    assert derived_state(reopened(session, rebuilt=True)) == live


def test_a_fork_knows_the_call_ids_of_every_branch_of_its_base_however_it_is_opened() -> None:
    session = work(PROFILE)
    say(session, "read a.py")
    use(session, "on the branch that is left", "Read", "{}", "x = 1")
    rewind(session.log, 1)
    fork = session.fork("f")
    session.log.checkpoint()
    for log in (fork.log, reopened(fork), reopened(fork, rebuilt=True)):
        assert "on the branch that is left" in log._projections.used_ids


@settings(max_examples=150)
@given(steps, steps, st.integers(0, 60))
def test_what_a_fork_derives_live_equals_what_is_rebuilt_from_it_and_its_base(before: list[Step], after: list[Step], back: int) -> None:
    session = work(PROFILE, clock=FixedClock(START, 1_000))
    tell(session, before, take_back, go_back, _type)
    fork = session.fork("f", max(0, session.log.tip - back) if back % 2 else None)
    tell(fork, after, take_back, go_back, _type)
    live = derived_state(fork.log)
    fork.log.checkpoint()
    assert derived_state(reopened(fork)) == live
    assert derived_state(reopened(fork, rebuilt=True)) == live


@settings(max_examples=150)
@given(steps, steps, steps)
def test_what_a_reader_derives_that_follows_a_writer_equals_what_the_writer_derives(
    first: list[Step], second: list[Step], third: list[Step]
) -> None:
    session = work(PROFILE, clock=FixedClock(START, 1_000))
    tell(session, first, take_back, go_back, _type)
    reader = reopened(session)
    for more in (second, third):
        before = reader.tip
        tell(session, more, take_back, go_back, _type)
        assert [event.seq for event in reader.follow()] == list(range(before + 1, session.log.tip + 1))
        assert derived_state(reader) == derived_state(session.log)
        assert reader.follow() == ()
