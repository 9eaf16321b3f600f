"""During a turn call only its outcome changes the view, and every call has one outcome."""

from typing import get_args

import pytest
from bodies import FIRST_OF_A_LOG, one_of_each
from every_case import every_case
from histories import new_log
from msgspec import structs

from palimpsest.core.errors import BadInput, CallOpen
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Failed,
    Interrupted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    Pinned,
    ProfileChanged,
    Recalled,
    Rewound,
    ToolReturned,
    ToolsChanged,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Mask, Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions

BODIES = one_of_each("1.0", 2)
OUTCOMES = {ModelReplied, Interrupted, Failed}
ENTERS = {UserSaid, ToolReturned, ToolsChanged, ContextStated, Recalled, ViewEdited, EditUndone, Rewound}
REFUSED = ENTERS | {CallStarted, ModelSwitched, ProfileChanged, ModeChanged, Pinned}


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


@every_case("body", BODIES)
def test_during_a_turn_call_each_body_is_its_outcome_or_is_refused_or_does_not_change_the_view(body: Body) -> None:
    log = calling()
    before = log.view
    if type(body) in REFUSED:
        with pytest.raises(CallOpen, match=f"{type(body).__name__} would change the view during call 4"):
            log.append(body)
        assert (log.tip, log.view, log.open_call) == (4, before, 4)
        return
    log.append(body)
    assert log.open_call == (None if type(body) in OUTCOMES else 4)
    if type(body) not in OUTCOMES:
        assert structs.replace(log.view, seq=before.seq, notes=before.notes) == before


@every_case("body", BODIES)
def test_the_same_body_is_accepted_without_an_open_call(body: Body) -> None:
    log = calling()
    log.append(ModelReplied((), call=4))
    log.append(body)
    assert log.tip == 6


@pytest.mark.parametrize("outcome", [ModelReplied((), call=3), Interrupted(3), Failed("call", "provider", call=3, purpose="turn")])
def test_the_outcome_of_another_call_does_not_end_the_turn_call(outcome: Body) -> None:
    log = calling()
    with pytest.raises((CallOpen, BadInput)):
        log.append(outcome)
    assert log.open_call == 4


@pytest.mark.parametrize("purpose", ["turn", "title"])
@pytest.mark.parametrize("outcome", [ModelReplied((Text("yes", "assistant"),), 1), Interrupted(1), Failed("call", "provider", call=1)])
def test_a_second_outcome_of_a_call_is_refused(purpose: str, outcome: ModelReplied | Interrupted | Failed) -> None:
    log = new_log()
    log.append(CallStarted("m", "chat", purpose=purpose))
    log.append(ModelReplied((Text("no", "assistant"),), 1, purpose=purpose))
    items = log.view.items
    with pytest.raises(BadInput, match="is no outcome of call 1, which is not open"):
        log.append(structs.replace(outcome, purpose=purpose))
    assert (log.tip, log.view.items) == (2, items)


def test_side_calls_start_and_end_during_a_turn_call() -> None:
    log = calling()
    items = log.view.items
    started = log.append(CallStarted("small", "chat", purpose="title"))
    log.append(ModelReplied((Text("A title", "assistant"),), started.seq, purpose="title"))
    second = log.append(CallStarted("small", "chat", purpose="title"))
    log.append(Failed("call", "provider", call=second.seq, purpose="title"))
    assert (log.open_call, log.view.items) == (4, items)
    log.append(ModelReplied((Text("done", "assistant"),), 4))
    assert (log.open_call, log.view.ids) == (None, ("1.0", "3.0", "9.0"))


def test_an_open_call_stays_open_after_resuming_and_following_and_not_in_a_fork_or_after_a_rewind() -> None:
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
    assert [each.open_call for each in (reader, log)] == [None, None]


def test_a_side_call_that_outlasts_a_rewind_still_has_its_outcome() -> None:
    log = new_log()
    log.append(UserSaid((Text("go"),)))
    log.append(UserSaid((Text("on"),)))
    title = log.append(CallStarted("small", "chat", purpose="title")).seq
    log.append(Rewound(1))
    log.append(ModelReplied((Text("A title", "assistant"),), title, purpose="title"))
    assert log.ledger.open == ()
    with pytest.raises(BadInput):
        log.append(ModelReplied((Text("Another", "assistant"),), title, purpose="title"))
