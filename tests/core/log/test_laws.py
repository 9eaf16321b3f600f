from histories import Step, new_log, steps, tell
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from palimpsest.core.budget import used
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.items import Fold, Item, ToolCall, ToolResult, newly_unpaired, unpaired
from palimpsest.core.lines import decode_line, encode_body, encode_line
from palimpsest.core.log import Log
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.undo import plan_undo, undo
from palimpsest.core.verify import verify
from palimpsest.core.view_projection import ViewProjection, project
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


def shown(items: tuple[Item, ...]) -> list[Item]:
    return [item for item in items if not item.hidden]


@given(steps, st.integers(0, 1_000))
def test_projecting_in_two_steps_is_projecting_in_one(history: list[Step], cut: int) -> None:
    log = tell(new_log(), history)
    events = list(log.events())
    skip = log.reader.undone_edits(log.path)
    middle = cut % (len(events) + 1)
    first = project(events[:middle], skip=skip, find=log.reader.item)
    assert project(events[middle:], first, skip=skip, find=log.reader.item) == project(events, skip=skip, find=log.reader.item)


@given(steps)
def test_the_live_view_is_the_projection_of_the_path(history: list[Step]) -> None:
    log = tell(new_log(), history)
    skip = log.reader.undone_edits(log.path)
    assert log.view == ViewProjection(skip=skip, find=log.reader.item).follow(log.reader, log.path)


@given(steps, st.booleans(), st.integers(0, 25))
def test_a_resumed_log_equals_the_live_one(history: list[Step], with_checkpoint: bool, at: int) -> None:
    store = MemorySessions()
    live = tell(new_log(store), history[:at])
    if with_checkpoint:
        live.checkpoint()
    tell(live, history[at:])
    resumed = Log.open(store, "s", FixedClock(1, 1))
    assert (resumed.view, resumed.health, resumed.ledger) == (live.view, live.health, live.ledger)
    assert (resumed.tip, resumed.path, resumed.place_of(resumed.tip)) == (live.tip, live.path, live.place_of(live.tip))


@given(steps)
def test_every_id_in_a_view_exists_in_the_log(history: list[Step]) -> None:
    log = tell(new_log(), history)
    for item in (*log.view.head, *log.view.items):
        original = log.item(item.id)
        assert (original.kind, original.content, original.source) == (item.kind, item.content, item.source)
    assert len(set(log.view.ids)) == len(log.view.ids)


@given(steps)
def test_a_call_is_never_separated_from_its_result(history: list[Step]) -> None:
    log = tell(new_log(), history)
    answered: set[str] = set()
    called: set[str] = set()
    for item in shown(log.view.items):
        if isinstance(item.content, ToolCall):
            called.add(item.content.call_id)
        if isinstance(item.content, ToolResult):
            assert item.content.call_id in called
            answered.add(item.content.call_id)
    for event in log.events():
        if isinstance(event.body, ViewEdited):
            before, after = log.state_at(event.parent).view, log.state_at(event.seq).view
            # What never had another half may be hidden and restored alone.
            never_paired = unpaired(project(event for event in log.events() if not isinstance(event.body, ViewEdited)).items)
            assert newly_unpaired(before.items, after.items) - never_paired == frozenset()


@given(steps)
def test_every_event_survives_being_written(history: list[Step]) -> None:
    log = tell(new_log(), history)
    for event in log.events():
        line = encode_line(event.seq, event.parent, event.at, event.prev, encode_body(event.body))
        assert decode_line(line, "memory") == event


@given(steps)
def test_undoing_the_newest_edit_restores_the_items_before_it(history: list[Step]) -> None:
    log = tell(new_log(), history)
    edits = [event for event in log.events() if isinstance(event.body, ViewEdited) and event.seq not in log.reader.undone_edits(log.path)]
    if not edits or edits[-1].seq != log.tip:
        return
    before = log.state_at(edits[-1].parent).view
    undo(log, edits[-1].seq)
    assert (log.view.items, log.view.head, log.view.facts) == (before.items, before.head, before.facts)


@given(steps, st.integers(0, 100))
def test_undoing_any_edit_gives_the_path_without_it_and_its_dependents(history: list[Step], which: int) -> None:
    log = tell(new_log(), history)
    skip = dict(log.reader.undone_edits(log.path))
    edits = [event.seq for event in log.events() if isinstance(event.body, ViewEdited) and event.seq not in skip]
    if not edits:
        return
    planned = plan_undo(log, edits[which % len(edits)])
    events = list(log.events())
    undo(log, edits[which % len(edits)])
    without: dict[int, frozenset[int]] = {**skip, **{body.event: frozenset[int]() for body in planned.undone}}
    assert log.view.items == project(events, skip=without, find=log.reader.item).items == planned.view.items


@given(steps)
def test_undoing_every_edit_gives_the_log_as_if_none_had_been(history: list[Step]) -> None:
    log = tell(new_log(), history)
    while True:
        skip = log.reader.undone_edits(log.path)
        edits = [event.seq for event in log.events() if isinstance(event.body, ViewEdited) and event.seq not in skip]
        if not edits:
            break
        undo(log, edits[-1])
    assert log.view.items == project(event for event in log.events() if not isinstance(event.body, ViewEdited)).items


@given(steps, steps, st.integers(0, 60))
def test_a_fork_starts_with_the_view_of_its_base_and_then_differs(history: list[Step], later: list[Step], at: int) -> None:
    store = MemorySessions()
    base = tell(new_log(store), history)
    seq = at % (base.tip + 1)
    fork = base.fork(store, "f", seq)
    assert fork.view.items == base.state_at(seq).view.items
    alone = [event.body for event in base.events(base.reader.path(seq))]
    tell(fork, later)
    reopened = Log.open(store, "f", FixedClock(1, 1))
    assert (reopened.view, reopened.path) == (fork.view, fork.path)
    assert [event.body for event in base.events(base.reader.path(seq))] == alone
    assert verify(store, "f", MemoryBlobs()).findings == ()


@given(steps)
def test_what_was_recorded_verifies(history: list[Step]) -> None:
    store = MemorySessions()
    log = tell(new_log(store), history)
    events: list[Event] = list(log.reader.run(0, log.tip))
    verdict = verify(store, "s", MemoryBlobs())
    assert (verdict.findings, verdict.events) == ((), len(events))


@given(steps, st.integers(0, 100))
def test_an_undone_edit_leaves_the_count_that_its_plan_gave(history: list[Step], which: int) -> None:
    log = tell(new_log(), history)
    skip = log.reader.undone_edits(log.path)
    edits = [event.seq for event in log.events() if isinstance(event.body, ViewEdited) and event.seq not in skip]
    if edits:
        plan = plan_undo(log, edits[which % len(edits)])
        for body in plan.undone:
            log.append(body)
        assert (log.view.reported, log.view.items) == (plan.view.reported, plan.view.items)


@given(steps)
def test_undoing_the_newest_edit_restores_the_count_before_it(history: list[Step]) -> None:
    log = tell(new_log(), history)
    counter = TokenCounter(palimpsest_size, 1.33)
    before = used(log.view, counter, 500)
    if log.view.items:
        seq = log.append(ViewEdited((Fold(log.view.ids[0], log.view.ids[-1]),), by="test", tokens_after=len(history)), foreign=True).seq
        undo(log, seq)
    assert used(log.view, counter, 500) == before


@given(steps)
def test_a_report_with_the_items_that_it_measured_counts_as_much_as_without_them(history: list[Step]) -> None:
    log = tell(new_log(), history)
    counter = TokenCounter(palimpsest_size)
    assert used(structs.replace(log.view, reported=log.view.measured_report), counter) == used(log.view, counter)
