"""Ids of tool calls are unique in a session, and results find their calls, whatever ids providers and files use."""

from collections.abc import Callable

import pytest
from histories import new_log
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.events import (
    Body,
    ChildOpened,
    Event,
    HookRan,
    Interrupted,
    ModelReplied,
    PermissionAsked,
    Permitted,
    ProcessStarted,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Fold, Item, Put, Text, ToolCall, ToolResult, text_of, unpaired
from palimpsest.core.log import NEVER_RAN, UNKNOWN_OUTCOME, Log, recover
from palimpsest.core.undo import restore, rewind
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def call(log: Log, *ids: str) -> list[ToolCall]:
    """A reply with a call for each id, and the calls as they are recorded."""
    event = log.append(ModelReplied(tuple(ToolCall(call_id, "read", '{"path":"a.py"}') for call_id in ids)))
    assert isinstance(event.body, ModelReplied)
    return [part for part in event.body.parts if isinstance(part, ToolCall)]


def answer(log: Log, call_id: str, text: str = "x = 1") -> str:
    """The id under which a result is recorded."""
    event = log.append(ToolReturned(ToolResult(call_id, (Text(text),))))
    assert isinstance(event.body, ToolReturned)
    return event.body.result.call_id


def recorded(calls: list[ToolCall]) -> list[tuple[str, str]]:
    return [(each.call_id, each.given) for each in calls]


def test_a_unique_id_is_recorded_as_it_is() -> None:
    assert recorded(call(new_log(), "toolu_1", "toolu_2")) == [("toolu_1", ""), ("toolu_2", "")]


def test_a_missing_id_is_made_from_the_position_of_the_call() -> None:
    log = new_log()
    assert recorded(call(log, "", "")) == [("pal_1_0", ""), ("pal_1_1", "")]
    assert [answer(log, ""), answer(log, "")] == ["pal_1_0", "pal_1_1"]


def test_an_id_that_is_repeated_in_a_reply_or_later_is_replaced_and_kept_beside() -> None:
    log = new_log()
    assert recorded(call(log, "call_0", "call_0")) == [("call_0", ""), ("pal_1_1", "call_0")]
    assert [answer(log, "call_0"), answer(log, "call_0")] == ["call_0", "pal_1_1"]
    assert recorded(call(log, "call_0")) == [("pal_4_0", "call_0")]
    assert answer(log, "call_0") == "pal_4_0"


def test_a_search_that_the_provider_runs_itself_gets_no_id() -> None:
    event = new_log().append(ModelReplied((ToolCall("", "web_search", "{}", form="search"),)))
    assert event.body == ModelReplied((ToolCall("", "web_search", "{}", form="search"),))


def test_a_generated_id_that_a_provider_has_used_is_not_used_again() -> None:
    log = new_log()
    assert recorded(call(log, "pal_2_0")) == [("pal_2_0", "")]
    assert recorded(call(log, "")) == [("pal_2_0x", "")]


def test_a_result_answers_the_newest_reply_that_waits_for_its_id() -> None:
    log = new_log()
    call(log, "call_0")
    log.append(UserSaid((Text("never mind"),)))
    newest = call(log, "call_0")
    assert answer(log, "call_0") == newest[0].call_id == "pal_3_0"
    assert answer(log, "call_0") == "call_0"


def test_the_calls_of_one_reply_are_answered_in_their_order() -> None:
    log = new_log()
    first, second = call(log, "call_0", "call_0")
    assert [answer(log, "call_0", "one"), answer(log, "call_0", "two")] == [first.call_id, second.call_id]


def test_ids_that_a_resumed_log_a_fork_or_another_branch_has_used_are_used() -> None:
    store = MemorySessions()
    log = new_log(store)
    call(log, "call_0")
    rewind(log, 0)
    assert recorded(call(log, "call_0")) == [("pal_3_0", "call_0")]
    log.checkpoint()
    call(log, "call_1")
    fork = log.fork(store, "f")
    assert recorded(call(fork, "call_0", "call_1")) == [("pal_6_0", "call_0"), ("pal_6_1", "call_1")]
    log.close()
    with Log.open(store, "s", FixedClock(1, 1), write=True) as resumed:
        assert recorded(call(resumed, "call_0", "call_1")) == [("pal_5_0", "call_0"), ("pal_5_1", "call_1")]


def test_replies_of_another_purpose_keep_their_ids_and_use_them_up() -> None:
    log = new_log()
    aside = log.append(ModelReplied((ToolCall("call_0", "look", "{}"),), purpose="extraction"))
    assert aside.body == ModelReplied((ToolCall("call_0", "look", "{}"),), purpose="extraction")
    assert recorded(call(log, "call_0")) == [("pal_2_0", "call_0")]


@pytest.mark.parametrize(
    "body",
    [
        ToolStarted("call_0", "read"),
        PermissionAsked("call_0", "read"),
        Permitted("call_0", "read", "user"),
        ToolRefused("call_0", "read", "user"),
        HookRan("check", "before", call_id="call_0"),
        ProcessStarted("p", "make", "call_0"),
        ChildOpened("child", "call_0"),
    ],
    ids=lambda body: type(body).__name__,
)
def test_a_body_that_names_a_call_is_recorded_with_the_id_of_that_call(body: Body) -> None:
    log = new_log()
    call(log, "call_0")
    assert log.append(body).body == body
    answer(log, "call_0")
    call(log, "call_0")
    assert log.append(body).body == replace(body, call_id="pal_4_0")


def test_of_the_calls_of_one_reply_each_start_names_the_next() -> None:
    log = new_log()
    call(log, "call_0", "call_0", "call_0")
    log.append(ToolStarted("call_0", "read"))
    log.checkpoint()
    log.append(ToolStarted("call_0", "read"))
    assert log.started_calls == ("call_0", "pal_1_1")
    assert [text_of(event.body.result) for event in recover(log) if isinstance(event.body, ToolReturned)] == [
        UNKNOWN_OUTCOME,
        UNKNOWN_OUTCOME,
        NEVER_RAN,
    ]


def test_a_child_that_is_recorded_after_the_result_belongs_to_the_newest_call_of_its_id() -> None:
    store = MemorySessions()
    log = new_log(store)
    for _ in range(2):
        call(log, "call_0")
        answer(log, "call_0")
    log.close()
    with Log.open(store, "s", FixedClock(1, 1), write=True) as resumed:
        assert resumed.append(ChildOpened("child", "call_0")).body == ChildOpened("child", "pal_3_0")
        assert resumed.append(HookRan("check", "after")).body == HookRan("check", "after")


def test_the_results_of_a_reply_with_very_many_calls_of_one_id_find_their_calls() -> None:
    log = new_log()
    call(log, *(f"old_{number}" for number in range(5_000)))
    calls = call(log, *("call_0",) * 5_000)
    assert [answer(log, "call_0") for _ in range(20)] == [each.call_id for each in calls[:20]]


def test_ids_of_interrupted_calls_are_remembered_and_unique() -> None:
    log = new_log()
    call(log, "call_0")
    cut = log.append(Interrupted(None, (ToolCall("call_0", "read", "{"), ToolCall("call_1", "read", "{"))))
    assert cut.body == Interrupted(None, (ToolCall("pal_2_0", "read", "{", given="call_0"), ToolCall("call_1", "read", "{")))
    assert recorded(call(log, "call_1")) == [("pal_3_0", "call_1")]


Turn = tuple[list[int], bool, bool, int]
IDS = ("", "call_0", "call_1", "other")
turns: st.SearchStrategy[list[Turn]] = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans(), st.booleans(), st.integers(0, 4)), max_size=8
)


def log_of(turns: list[Turn], name: Callable[[int, int, int], str]) -> Log:
    """Turns with some calls each; results come under the ids of the file in the order of the calls, or under ours in any order."""
    log = new_log()
    for number, (ids, by_given, swapped, unanswered) in enumerate(turns):
        log.append(UserSaid((Text(f"turn {number}"),)))
        given_ids = [name(number, place, which) for place, which in enumerate(ids)]
        calls = call(log, *given_ids)
        places = list(range(len(ids) - min(unanswered, len(ids))))
        for place in places if by_given else places[:: -1 if swapped else 1]:
            answer(log, given_ids[place] if by_given else calls[place].call_id, f"result {number}.{place}")
    return log


def both(turns: list[Turn]) -> tuple[Log, Log]:
    """The same session with the ids of a careless provider, and with unique ones."""
    return log_of(turns, lambda _, __, which: IDS[which]), log_of(turns, lambda number, place, _: f"unique_{number}_{place}")


def without_ids(items: tuple[Item, ...]) -> list[Item]:
    found = []
    for item in items:
        content = item.content
        if isinstance(content, ToolCall):
            found.append(replace(item, content=replace(content, call_id="", given="")))
        elif isinstance(content, ToolResult):
            found.append(replace(item, content=replace(content, call_id="")))
        else:
            found.append(item)
    return found


def pairs(items: tuple[Item, ...]) -> set[tuple[str, str]]:
    calls = {item.content.call_id: item.id for item in items if isinstance(item.content, ToolCall)}
    return {(calls[item.content.call_id], item.id) for item in items if isinstance(item.content, ToolResult)}


@given(turns)
def test_with_repeated_missing_or_swapped_ids_the_pairs_are_those_of_unique_ids(turns: list[Turn]) -> None:
    careless, unique = both(turns)
    ids = [item.content.call_id for item in careless.view.items if isinstance(item.content, ToolCall)]
    assert len(set(ids)) == len(ids)
    assert pairs(careless.view.items) == pairs(unique.view.items)
    assert unpaired(careless.view.items) == unpaired(unique.view.items)
    assert without_ids(careless.view.items) == without_ids(unique.view.items)
    assert len(careless.pending_calls) == len(unique.pending_calls)


@given(turns, st.integers(0, 60))
def test_with_repeated_missing_or_swapped_ids_a_pair_is_restored_as_with_unique_ids(turns: list[Turn], which: int) -> None:
    careless, unique = both(turns)
    results = [item.id for item in unique.view.items if isinstance(item.content, ToolResult)]
    if not results or unique.pending_calls:
        return
    shown: list[list[Item]] = []
    for log in (careless, unique):
        ids = log.view.ids
        log.append(ViewEdited((Fold(ids[0], ids[-1], (Put("summary", Text("so far")),)),), by="test"))
        restored: Event = restore(log, results[which % len(results)])
        assert isinstance(restored.body, ViewEdited)
        shown.append(without_ids(log.view.items))
    assert shown[0] == shown[1]
    assert [item.kind for item in shown[0]] == ["summary", "call", "result"]
