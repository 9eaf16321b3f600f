"""Items that an undo brought back stay under every profile until the window is full."""

import pytest
from workplace import offline, reply, say, use, work

from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text
from palimpsest.core.log.undo import restore
from palimpsest.engine.policies import PolicyRun, run_policies
from palimpsest.engine.session import Session
from palimpsest.profiles.named import PROFILES, profile

FOLDING = sorted(set(PROFILES) - {"none"})


def _run(session: Session) -> PolicyRun:
    return offline(session, run_policies(session, "before_call")).then(offline(session, run_policies(session, "after_call")))


def _first_fold(session: Session) -> PolicyRun:
    """Results arrive until a fold comes; long words of the model make it come even where every result is masked."""
    for number in range(400):
        reply(session, Text(f"what I found in file {number}: " + "something else " * 200))
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = {number}\n" * 300)
        ran = _run(session)
        if ran.folded:
            return ran
    raise AssertionError("no fold came")


@pytest.mark.parametrize("name", FOLDING)
def test_an_undone_fold_does_not_come_back_by_itself(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    for event in reversed(_first_fold(session).edited):
        session.undo(event.seq)
    before = session.log.view
    for _ in range(3):
        assert _run(session).edited == ()
    assert session.log.view.items == before.items


@pytest.mark.parametrize("name", FOLDING)
def test_a_restored_item_is_not_masked_or_folded_again_one_call_later(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    _first_fold(session)
    wanted = next(f"{event.seq}.0" for event in session.log.events() if isinstance(event.body, ToolReturned))
    restore(session.log, wanted)
    assert session.log.view[wanted].mask is None
    for number in range(3):
        use(session, f"later{number}", "Read", f'{{"file_path":"later{number}.py"}}', f"later_{number} = 1\n" * 300)
        _run(session)
        assert session.log.view[wanted].mask is None


@pytest.mark.parametrize("name", FOLDING)
def test_an_undone_fold_comes_again_when_nothing_could_be_sent(name: str) -> None:
    session = work(profile(name))
    say(session, "look at all files")
    for event in reversed(_first_fold(session).edited):
        session.undo(event.seq)
    room = session.budget.block_at or session.budget.window
    say(session, "and now this: " + "word " * (room - session.used + 1_000))
    assert session.used >= room
    _run(session)
    assert session.used < room
