"""What turns cost, and what edits of the context cost and saved, from a log."""

import pytest

from pal.terminal.commands.context import EditSavings, PaidCall, TurnCost, edit_savings, savings_text, turn_costs
from palimpsest.core.events import EditUndone, ModelReplied, SessionOpened, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Mask, Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.wire.models import PriceBook

MODEL = "claude-sonnet-4-5"
USAGE = Usage(input=1_000_000, output=100_000)


def said(text: str, *, steering: bool = False) -> UserSaid:
    return UserSaid((Text(text),), steering=steering)


def replied(purpose: str = "turn") -> ModelReplied:
    return ModelReplied((Text("ok"),), model=MODEL, usage=USAGE, purpose=purpose)


def log_of(*bodies: UserSaid | ModelReplied | ViewEdited | EditUndone) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(0))
    for body in bodies:
        log.append(body, foreign=True)
    return log


def test_calls_count_to_the_turn_of_the_message_before_them_and_steering_begins_none() -> None:
    log = log_of(said("first"), replied(), said("more", steering=True), replied("title"), said("second"), replied())
    # 1M tokens of input at $3 and 100k of output at $15 a million.
    call, side = PaidCall(MODEL, "turn", USAGE, 4.5), PaidCall(MODEL, "title", USAGE, 4.5)
    assert turn_costs(log, PriceBook()) == (TurnCost(1, "first", (call, side)), TurnCost(5, "second", (call,)))


def test_an_edit_saves_with_each_call_until_a_fold_replaces_it_and_nothing_if_it_was_undone() -> None:
    def edit(saves: float, *edits: Fold | Mask) -> ViewEdited:
        return ViewEdited(edits, "test", price_usd=0.5, saved_usd_per_call=saves)

    log = log_of(said("one"), replied(), said("two"), replied())
    ids = [item.id for item in log.view.items]
    for body in (edit(0.25, Mask((ids[0],))), replied(), edit(1.0, Fold(ids[0], ids[1])), replied(), replied()):
        log.append(body, foreign=True)
    assert edit_savings(log) == EditSavings(2, 1.0, 0.25 + 2 * 1.0)
    assert savings_text(edit_savings(log)) == "2 edits of the context: cost $1.00 once, saved about $2.25 so far"
    fold = max(event.seq for event in log.events() if isinstance(event.body, ViewEdited))
    log.append(EditUndone(fold))
    assert edit_savings(log) == EditSavings(1, 0.5, 3 * 0.25)


@pytest.mark.parametrize(
    ("price", "saves", "said"),
    [
        (None, None, "1 edit of the context: cost unknown, savings unknown"),
        (0.5, None, "1 edit of the context: cost $0.50 once, savings unknown"),
        (-0.5, 0.25, "1 edit of the context: saved $0.50 at once, saved about $0.50 so far"),
        (0.5, -0.25, "1 edit of the context: cost $0.50 once, added about $0.50 so far"),
    ],
)
def test_what_edits_cost_and_saved_has_its_sign_and_is_unknown_where_no_price_is_known(
    price: float | None, saves: float | None, said: str
) -> None:
    log = log_of(UserSaid((Text("one"),)), replied())
    edits = (Mask((log.view.items[0].id,)),)
    for body in (ViewEdited(edits, "test", price_usd=price, saved_usd_per_call=saves), replied(), replied()):
        log.append(body, foreign=True)
    assert savings_text(edit_savings(log)) == said
