"""Before and after of an audited edit are the states at its parent and at itself, whatever was undone since."""

from histories import Step, new_log, steps, tell
from hypothesis import given, settings
from pal_runs import SMALL, Pal, edited

from palimpsest.apps.cli.look.edits import audited_edits
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import undo
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card


@settings(max_examples=150)
@given(steps)
def test_an_edit_is_audited_between_the_states_at_its_parent_and_at_itself(reported: list[Step]) -> None:
    log = tell(new_log(), reported)
    for edit in audited_edits(log, TokenCounter(palimpsest_size), card("claude-sonnet-4-5")):
        parent = log.event(edit.event).parent
        assert (edit.before, edit.after) == (log.state_at(parent).view, log.state_at(edit.event).view)


def test_an_edit_between_another_one_and_its_undoing_is_audited_with_both(pal: Pal) -> None:
    edited(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(1_932_800_500_000), write=True) as log:
        undo(log, 15)
        undo(log, 14)
    result = pal("audit", SMALL, "15", "--full")
    assert result.exit_code == 0
    # The fold of event 14 was undone only later, so that the mask was made on the view that it had left.
    assert "- 14.0.0 summary 11 tokens a.py was read." in result.output
    assert "+ 14.0.0 summary 9 tokens (hidden)" in result.output
