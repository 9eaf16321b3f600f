"""While a turn call is under way nothing but its outcome enters the view, whatever body is appended."""

from typing import get_args

import pytest
from bodies import FIRST_OF_A_LOG, one_of_each
from histories import new_log

from palimpsest.core.edits import Mask
from palimpsest.core.errors import CallOpen
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Failed,
    Interrupted,
    ModelReplied,
    Recalled,
    Rewound,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.ephemeral import FixedClock, MemorySessions

BODIES = one_of_each("1.0", 2)
OUTCOMES = {ModelReplied, Interrupted, Failed}
REFUSED = {UserSaid, ToolReturned, ContextStated, Recalled, ViewEdited, EditUndone, Rewound, CallStarted}


def calling(store: MemorySessions | None = None) -> Log:
    """Two items, an edit, and a call under way since event 4."""
    log = new_log(store)
    log.append(UserSaid((Text("go"),)))
    log.append(ViewEdited((Mask(("1.0",), "gone"),), by="test"))
    log.append(UserSaid((Text("on"),)))
    log.append(CallStarted("m", "chat"))
    return log


def test_there_is_a_body_of_every_type() -> None:
    assert {type(body) for body in BODIES} == set(get_args(Body)) - {FIRST_OF_A_LOG}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_body_is_the_outcome_or_is_refused_or_leaves_the_view_alone_while_a_call_is_under_way(body: Body) -> None:
    log = calling()
    before = log.view
    if type(body) in REFUSED:
        with pytest.raises(CallOpen, match=f"{type(body).__name__} would enter the view while call 4 is under way"):
            log.append(body)
        assert (log.tip, log.view, log.open_call) == (4, before, 4)
        return
    log.append(body)
    assert log.open_call == (None if type(body) in OUTCOMES else 4)
    if type(body) not in OUTCOMES:
        assert (log.view.head, log.view.items, log.view.facts, log.view.held) == (before.head, before.items, before.facts, before.held)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_the_same_body_is_taken_when_no_call_is_under_way(body: Body) -> None:
    log = calling()
    log.append(ModelReplied((), call=4))
    log.append(body)
    assert log.tip == 6


@pytest.mark.parametrize("outcome", [ModelReplied((), call=3), Interrupted(3), Failed("call", "provider", call=3, purpose="turn")])
def test_the_outcome_of_another_call_does_not_end_the_one_under_way(outcome: Body) -> None:
    log = calling()
    if isinstance(outcome, Failed):
        log.append(outcome)
    else:
        with pytest.raises(CallOpen):
            log.append(outcome)
    assert log.open_call == 4


def test_calls_of_another_purpose_come_and_go_while_a_turn_call_is_under_way() -> None:
    log = calling()
    items = log.view.items
    started = log.append(CallStarted("small", "chat", purpose="title"))
    log.append(ModelReplied((Text("A title", "assistant"),), started.seq, purpose="title"))
    second = log.append(CallStarted("small", "chat", purpose="title"))
    log.append(Failed("call", "provider", call=second.seq, purpose="title"))
    assert (log.open_call, log.view.items) == (4, items)
    log.append(ModelReplied((Text("done", "assistant"),), 4))
    assert (log.open_call, log.view.ids) == (None, ("1.0", "3.0", "9.0"))


def test_a_call_that_was_under_way_is_so_for_who_resumes_and_follows_and_not_for_a_fork_or_after_a_rewind() -> None:
    store = MemorySessions()
    log = calling(store)
    log.checkpoint()
    reader = Log.open(store, "s", FixedClock(1, 1))
    assert reader.open_call == 4
    fork = log.fork(store, "f")
    assert fork.open_call is None
    fork.append(UserSaid((Text("another way"),)))
    log.append(Interrupted(4))
    log.append(Rewound(3))
    reader.follow()
    assert (reader.open_call, log.open_call) == (None, None)
