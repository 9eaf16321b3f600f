"""What follows from a log is the same for who saw every event, who goes on from a checkpoint, and who reads the whole log again."""

from derived_state import derived_state, reopened
from hypothesis import given, settings
from hypothesis import strategies as st
from working_days import MODEL, PROFILE, Step, go_back, steps, take_back, tell
from workplace import START, work

from palimpsest.core.events import UserTyped
from palimpsest.core.items import Text
from palimpsest.engine.session import Session
from palimpsest.stores.ephemeral import FixedClock


def _type(session: Session, a: int, b: int) -> None:
    session.log.append(UserTyped((Text(f"typed {a}"),)))


@settings(max_examples=150)
@given(steps, steps, st.sampled_from([MODEL, "gpt-5", "local/any"]), st.sampled_from([1_000, 90_000]))
def test_what_goes_on_from_a_checkpoint_and_what_is_rebuilt_equal_what_saw_every_event(
    before: list[Step], after: list[Step], model: str, tick: int
) -> None:
    session = work(PROFILE, model, clock=FixedClock(START, tick))
    tell(session, before, take_back, go_back, _type)
    session.log.checkpoint()
    tell(session, after, take_back, go_back, _type)
    live = derived_state(session.log)
    assert derived_state(reopened(session)) == live
    assert derived_state(reopened(session, rebuilt=True)) == live
