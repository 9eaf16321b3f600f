import pytest
from every_case import every_case
from histories import new_log

from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import EditUndone, ModelReplied, Rewound, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Cover, Fold, Insert, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.lines import EventRange, Path
from palimpsest.core.log import Log
from palimpsest.core.undo import plan_undo, restore, rewind, undo
from palimpsest.core.view import Reported
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def session(store: MemorySessions | None = None) -> Log:
    """Events 1 to 6: a request, a call, its result, an answer, a second request, an answer."""
    log = new_log(store)
    log.append(UserSaid((Text("read a.py"),)))
    log.append(ModelReplied((ToolCall("c1", "read", '{"path":"a.py"}'),)))
    log.append(ToolReturned(ToolResult("c1", (Text("print(1)"),))))
    log.append(ModelReplied((Text("it prints 1", "assistant"),)))
    log.append(UserSaid((Text("now b.py"),)))
    log.append(ModelReplied((Text("ok", "assistant"),)))
    return log


def edited(log: Log, *edits: Mask | Fold | Insert) -> int:
    return log.append(ViewEdited(edits, by="test")).seq


def test_undo_is_an_event_with_the_items_that_become_visible_again() -> None:
    log = session()
    seq = edited(log, Fold("1.0", "4.0", (Put("summary", Text("s")), Keep("1.0"))))
    assert undo(log, seq, why="wrong")[0].body == EditUndone(seq, (), "wrong", ("2.0", "3.0", "4.0"))
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0", "5.0", "6.0")


def test_an_undo_restores_the_report_before_the_edit() -> None:
    log = session()
    log.append(ModelReplied((Text("done", "assistant"),), usage=Usage(input=9_000, output=5)))
    seq = log.append(ViewEdited((Fold("1.0", "4.0"),), by="test", tokens_after=70)).seq
    assert log.view.reported == Reported(70, seq)
    undo(log, seq)
    assert log.view.reported == Reported(9_005, 7)


def test_a_report_that_was_made_with_an_edit_keeps_the_items_of_its_time_when_the_edit_is_undone() -> None:
    log = session()
    seq = log.append(ViewEdited((Fold("1.0", "4.0", (Put("summary", Text("s")),)),), by="test", tokens_after=70)).seq
    log.append(ModelReplied((Text("done", "assistant"),), usage=Usage(input=80, output=5)))
    measured = log.view.items
    planned = plan_undo(log, seq).view
    undo(log, seq)
    assert log.view.reported == planned.reported == Reported(85, 8, measured=measured)
    log.checkpoint()
    log.append(ModelReplied((Text("again", "assistant"),), usage=Usage(input=900, output=5)))
    assert log.view.reported == Reported(905, 10)


def test_a_checkpoint_keeps_the_items_that_a_report_measured_with_their_masks() -> None:
    store = MemorySessions()
    log = session(store)
    edited(log, Mask(("3.0",), "[cleared]"))
    log.append(ModelReplied((Text("done", "assistant"),), usage=Usage(input=80, output=5)))
    edited(log, Fold("1.0", "4.0"))
    log.checkpoint()
    opened = Log.open(store, "s", FixedClock(1, 1))
    assert opened.view == log.view
    assert opened.view.reported is not None
    assert [(item.id, item.mask) for item in opened.view.reported.measured or ()] == [
        ("1.0", None),
        ("2.0", None),
        ("3.0", Cover("[cleared]")),
        ("4.0", None),
        ("5.0", None),
        ("6.0", None),
        ("8.0", None),
    ]


def test_items_that_an_undo_restored_are_held_for_the_epoch() -> None:
    log = session()
    undo(log, edited(log, Mask(("3.0",), "[cleared]")))
    assert log.view.held == frozenset({"3.0"})


def test_undoing_an_edit_also_undoes_the_later_edits_that_depend_on_it() -> None:
    log = session()
    first = edited(log, Fold("1.0", "4.0", (Put("summary", Text("one")),)))
    second = edited(log, Fold(f"{first}.0.0", "5.0", (Put("summary", Text("two")),)))
    third = edited(log, Mask(("6.0",), "[..]"))
    planned = plan_undo(log, first)
    assert (planned.resting, [body.event for body in planned.undone]) == ((second,), [second, first])
    undo(log, first)
    assert [(item.id, item.mask is not None) for item in log.view.items][-1] == ("6.0", True)
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0", "5.0", "6.0")
    assert plan_undo(log, third).resting == ()


def test_one_edit_of_several_can_be_undone() -> None:
    log = session()
    seq = edited(log, Mask(("4.0",), "a"), Mask(("6.0",), "b"))
    undo(log, seq, (1,))
    assert [item.id for item in log.view.items if item.mask is not None] == ["4.0"]
    with pytest.raises(BadInput, match=f"edit {seq} is undone already"):
        undo(log, seq, (1,))
    undo(log, seq, (0,))
    assert [item.id for item in log.view.items if item.mask is not None] == []


def test_an_event_that_is_no_edit_cannot_be_undone() -> None:
    log = session()
    seq = edited(log, Mask(("4.0",), "a"))
    with pytest.raises(BadInput, match="event 2 is no edit of the view"):
        undo(log, 2)
    with pytest.raises(BadInput, match="there is no edit 3"):
        undo(log, seq, (3,))
    undo(log, seq)
    with pytest.raises(BadInput, match="is undone already"):
        undo(log, seq)


def test_an_edit_of_another_branch_cannot_be_undone_here() -> None:
    log = session()
    seq = edited(log, Mask(("4.0",), "a"))
    rewind(log, 5)
    with pytest.raises(BadInput, match="is on another branch"):
        undo(log, seq)


def test_restoring_one_item_restores_its_call_or_result_and_nothing_else() -> None:
    log = session()
    fold = edited(log, Fold("1.0", "4.0", (Put("summary", Text("s")),)))
    restore(log, "3.0")
    assert log.view.ids == (f"{fold}.0.0", "2.0", "3.0", "5.0", "6.0")


def test_restoring_a_masked_item_removes_its_mask() -> None:
    log = session()
    edited(log, Mask(("3.0",), "[cleared]"), Mask(("4.0",), "[cleared]"))
    restore(log, "3.0")
    assert [item.id for item in log.view.items if item.mask is not None] == ["4.0"]
    with pytest.raises(BadInput, match=r"item 3\.0 is visible already"):
        restore(log, "3.0")
    with pytest.raises(BadInput, match=r"there is no item 99\.0 on this branch"):
        restore(log, "99.0")


def test_a_rewind_continues_from_an_earlier_event_and_keeps_the_later_events() -> None:
    log = session()
    rewind(log, 4)
    log.append(UserSaid((Text("rather c.py"),)))
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0", "8.0")
    assert log.path == Path((EventRange(0, 4), EventRange(7, 8)))
    assert (log.event(7).parent, log.event(7).body) == (4, Rewound(4))
    assert log.event(5).body == UserSaid((Text("now b.py"),))


def test_rewinding_back_to_the_other_branch_shows_it_again() -> None:
    log = session()
    rewind(log, 4)
    rewind(log, 6)
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0", "5.0", "6.0")
    assert log.path == Path((EventRange(0, 6), EventRange(8, 8)))


def test_an_edit_before_the_target_of_a_rewind_stays() -> None:
    log = session()
    seq = edited(log, Mask(("4.0",), "[..]"))
    log.append(UserSaid((Text("more"),)))
    rewind(log, seq)
    assert [item.id for item in log.view.items if item.mask is not None] == ["4.0"]
    rewind(log, seq - 1)
    assert [item.id for item in log.view.items if item.mask is not None] == []


@every_case(
    ("edit", "message"),
    [
        (Mask(("9.0",)), "there is no item 9.0 in the view"),
        (Mask(("3.0",)), "item 2.0 would be separated from its call or result"),
        (Fold("4.0", "1.0"), "the fold ends with 1.0 before it begins with 4.0"),
        (Fold("2.0", "2.0"), "item 3.0 would be separated from its call or result"),
        (Fold("1.0", "3.0", (Keep("3.0"), Keep("2.0"))), "item 2.0 would be separated from its call or result"),
        (Fold("1.0", "3.0", (Keep("5.0"),)), "the fold keeps item 5.0, which is outside of its range"),
        (Fold("1.0", "4.0", (Keep("1.0"), Keep("1.0"))), "an item is kept twice"),
        (Insert((Keep("1.0"),)), "item 1.0 is visible already"),
        (Insert((Keep("77.0"),)), "there is no item 77.0 on this branch"),
        (Insert((), "77.0"), "there is no item 77.0 in the view"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused_and_nothing_is_recorded(edit: Mask | Fold | Insert, message: str) -> None:
    log = session()
    before = (log.tip, log.view)
    with pytest.raises(BadEdit, match=message):
        edited(log, edit)
    assert (log.tip, log.view) == before


def test_a_pending_call_cannot_be_hidden_before_the_next_user_message() -> None:
    log = session()
    log.append(ModelReplied((ToolCall("c2", "read", "{}"),)))
    for edit in (Mask(("7.0",)), Fold("6.0", "7.0")):
        with pytest.raises(BadEdit, match=r"call 7\.0 has no result yet"):
            edited(log, edit)
    log.append(UserSaid((Text("never mind"),)))
    edited(log, Fold("6.0", "7.0"))
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0", "5.0", "8.0")


def test_a_rewind_to_a_missing_event_is_refused() -> None:
    log = session()
    with pytest.raises(BadInput, match="there is no event 70; the newest is 6"):
        rewind(log, 70)


def test_edits_made_after_a_fold_are_undone_with_it_wherever_they_are() -> None:
    log = session()
    before = log.view.items
    fold = edited(log, Fold("1.0", "4.0", (Put("summary", Text("s")),)))
    files = log.append(ViewEdited((Insert((Put("reminder", Text("a.py as it is")),)),), by="restore", moment="folded")).seq
    again = edited(log, Mask(("6.0",), "[..]"))
    assert plan_undo(log, files).resting == ()
    assert plan_undo(log, again).resting == ()
    assert plan_undo(log, fold).resting == (files,)
    undo(log, again)
    undo(log, fold)
    assert log.view.items == before


def test_edits_made_after_another_fold_stay() -> None:
    log = session()
    first = edited(log, Mask(("4.0",), "[..]"))
    fold = edited(log, Fold("1.0", "3.0", (Put("summary", Text("s")),)))
    one = log.append(ViewEdited((Insert((Put("reminder", Text("one")),)),), by="restore", moment="folded")).seq
    two = log.append(ViewEdited((Insert((Put("reminder", Text("two")),)),), by="restore", moment="folded")).seq
    assert plan_undo(log, first).resting == ()
    assert plan_undo(log, one).resting == ()
    assert plan_undo(log, fold).resting == (two, one)
    log.append(EditUndone(fold))
    assert plan_undo(log, first).resting == ()
