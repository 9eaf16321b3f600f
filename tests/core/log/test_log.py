import math

import pytest
from every_case import every_case
from histories import new_log
from msgspec import Raw

from palimpsest.core.errors import BadEdit, BadInput, PalimpsestError, ReadOnly
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    ModelReplied,
    Recalled,
    SessionOpened,
    Statement,
    TaskChanged,
    ToolReturned,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Fold, Insert, Keep, Mask, Put, Text, ToolCall, ToolResult, Unmask
from palimpsest.core.log import Log
from palimpsest.core.undo import restore, rewind, undo
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemoryFile, MemorySessions


def user_message(text: str) -> UserSaid:
    return UserSaid((Text(text),))


def paired(log: Log, call_id: str = "c") -> None:
    log.append(ModelReplied((ToolCall(call_id, "read", "{}"),)))
    log.append(ToolReturned(ToolResult(call_id, (Text("content"),))))


def reopened(store: MemorySessions, session: str = "s") -> Log:
    return Log.open(store, session, FixedClock(1, 1))


@pytest.mark.parametrize(
    "body",
    [
        TaskChanged("t", "x", Raw(b"")),
        TaskChanged("t", "x", Raw(b"not JSON")),
        Recalled("q", ("n",), (math.nan,)),
        UserSaid((Text(None),)),  # type: ignore[arg-type]  # what a careless caller may do
        UserSaid((Text("x", "tool"),)),  # type: ignore[arg-type]  # the same
        UserSaid((Text("\ud800"),)),
    ],
)
def test_a_body_that_could_not_be_decoded_is_not_recorded(body: Body) -> None:
    store = MemorySessions()
    log = new_log(store)
    with pytest.raises(BadInput, match="cannot be recorded"):
        log.append(body)
    log.append(user_message("goes on"))
    assert (log.tip, reopened(store).view.ids) == (1, ("1.0",))


def test_raw_json_with_newlines_stays_on_one_line() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(CallStarted("m", "chat", params=Raw(b'{\n  "a": "x\\ny"\n}')))
    log.append(ModelReplied((), call=1))
    log.append(user_message("next"))
    assert [type(event.body) for event in reopened(store).events()] == [SessionOpened, CallStarted, ModelReplied, UserSaid]
    assert verify(store, "s", MemoryBlobs()).ok


class InterruptedLines(MemoryFile):
    """Lines whose write is interrupted right after it happened."""

    def append(self, line: bytes) -> int:
        super().append(line)
        raise KeyboardInterrupt


def test_an_interrupted_append_makes_the_log_read_only_and_no_number_is_used_twice() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(user_message("one"))
    lines = log.reader.lines
    assert isinstance(lines, MemoryFile)
    lines.__class__ = InterruptedLines
    with pytest.raises(KeyboardInterrupt):
        log.append(user_message("two"))
    lines.__class__ = MemoryFile
    with pytest.raises(ReadOnly, match="interrupted while it was written; reopen the session"):
        log.append(user_message("three"))
    log.close()
    with Log.open(store, "s", FixedClock(1, 1), write=True) as again:
        again.append(user_message("three"))
    assert verify(store, "s", MemoryBlobs()).findings == ()


def test_syncing_a_fork_makes_its_base_durable_too() -> None:
    store = MemorySessions()
    base = new_log(store)
    base.append(user_message("unsynced"))
    fork = base.fork(store, "f")
    fork.append(user_message("in the fork"))
    fork.sync()
    lines = base.reader.lines
    assert isinstance(lines, MemoryFile)
    lines.crash(0)
    assert reopened(store, "f").view.ids == ("1.0", "3.0")


def test_an_item_of_the_head_cannot_be_inserted_into_the_items() -> None:
    log = new_log()
    log.append(ContextStated(head=(Statement("base", "be brief", "system"),)))
    with pytest.raises(BadInput, match=r"item 1\.0 is in the head"):
        restore(log, "1.0")
    with pytest.raises(BadEdit, match=r"item 1\.0 is visible already"):
        log.append(ViewEdited((Insert((Keep("1.0"),)),), by="test"))


def test_calls_that_share_an_id_can_still_be_edited() -> None:
    log = new_log()
    log.append(user_message("go"))
    paired(log)
    paired(log)
    log.append(ViewEdited((Fold("2.0", "3.0"), Mask(("5.0",), "[cleared]")), by="test"))
    assert [(item.id, item.mask is not None) for item in log.view.items] == [("1.0", False), ("4.0", False), ("5.0", True)]


@pytest.mark.parametrize(
    "edit",
    [Unmask(("3.0",)), Mask(("3.0",), "shown again"), Unmask(("2.0",))],
)
def test_a_call_or_result_of_a_hidden_pair_is_not_shown_alone(edit: Mask | Unmask) -> None:
    log = new_log()
    log.append(user_message("go"))
    paired(log)
    log.append(ViewEdited((Mask(("2.0", "3.0")),), by="test"))
    with pytest.raises(BadEdit, match="separated from its call or result"):
        log.append(ViewEdited((edit,), by="test"))


def test_a_result_is_not_restored_without_its_call() -> None:
    log = new_log()
    log.append(user_message("go"))
    paired(log)
    log.append(ViewEdited((Fold("2.0", "3.0"),), by="test"))
    for contents in ((Keep("3.0"),), (Keep("3.0"), Keep("2.0"))):
        with pytest.raises(BadEdit, match="separated from its call or result"):
            log.append(ViewEdited((Insert(contents),), by="test"))


def test_a_part_of_an_edit_is_not_undone_if_that_separates_a_pair() -> None:
    log = new_log()
    log.append(user_message("go"))
    paired(log)
    seq = log.append(ViewEdited((Mask(("2.0",)), Mask(("3.0",))), by="test")).seq
    with pytest.raises(BadInput, match=r"item 2\.0 would be unpaired; undo all of it"):
        undo(log, seq, (0,))
    undo(log, seq)
    assert [item.hidden for item in log.view.items] == [False, False, False]


def test_a_call_that_was_never_answered_can_be_folded_unfolded_and_restored() -> None:
    log = new_log()
    log.append(ModelReplied((ToolCall("lost", "read", "{}"),)))
    log.append(user_message("never mind"))
    seq = log.append(ViewEdited((Fold("1.0", "2.0", (Put("summary", Text("s")),)),), by="test")).seq
    restore(log, "1.0")
    assert log.view.ids == (f"{seq}.0.0", "1.0")
    undo(log, seq)
    assert log.view.ids == ("1.0", "2.0")


def test_an_item_of_another_branch_cannot_be_restored() -> None:
    log = new_log()
    log.append(user_message("one"))
    log.append(user_message("two"))
    rewind(log, 1)
    with pytest.raises(BadInput, match=r"there is no item 2\.0 on this branch"):
        restore(log, "2.0")


@every_case("name", ["01.0", "+1.0", " 1.0", "1.-1", "1.0.0.9", "1", "", ".", "1.", "١.0", "abc", "1.2.3.4"])
def test_only_the_canonical_form_of_an_id_is_accepted(name: str) -> None:
    log = new_log()
    log.append(user_message("one"))
    log.append(ViewEdited((Fold("1.0", "1.0"),), by="test"))
    with pytest.raises(PalimpsestError):
        restore(log, name)
    with pytest.raises(BadInput, match="there is no item"):
        log.item(name)


def test_edits_of_one_event_that_depend_on_each_other_are_undone_together() -> None:
    log = new_log()
    log.append(user_message("one"))
    log.append(user_message("two"))
    seq = log.append(ViewEdited((Fold("1.0", "1.0", (Put("summary", Text("s")),)), Fold("3.0.0", "2.0")), by="test")).seq
    body = undo(log, seq, (0,))[0].body
    assert isinstance(body, EditUndone)
    assert (body.edits, log.view.ids) == ((), ("1.0", "2.0"))


def test_a_restored_part_returns_between_its_neighbours() -> None:
    log = new_log()
    log.append(UserSaid((Text("a"), Text("b"), Text("c"))))
    log.append(ViewEdited((Fold("1.1", "1.1"),), by="test"))
    restore(log, "1.1")
    assert log.view.ids == ("1.0", "1.1", "1.2")


def test_queued_input_survives_a_rewind_and_is_not_inherited_by_a_fork() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(user_message("one"))
    typed = log.append(UserTyped((Text("do not lose me"),))).seq
    fork = log.fork(store, "f")
    rewind(log, 1)
    log.close()
    assert (reopened(store).inbox, fork.inbox) == ((typed,), ())


def test_a_log_in_another_file_is_known_by_the_name_of_that_file() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(user_message("one"))
    log.close()
    lines = store.open("s")
    store.replace("copy", lines.read(0, lines.size))
    with Log.open(store, "copy", FixedClock(1, 1), write=True) as copy:
        copy.append(user_message("only here"))
        copy.fork(store, "f").close()
    assert reopened(store, "f").view.ids == ("1.0", "2.0")


def test_an_undo_of_an_event_that_is_no_edit_is_refused_by_the_log_itself() -> None:
    log = new_log()
    log.append(user_message("one"))
    for number in (1, 99, -4):
        with pytest.raises(BadInput):
            log.append(EditUndone(number))
