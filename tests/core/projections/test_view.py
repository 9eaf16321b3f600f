from histories import Step, new_log, steps, tell
from hypothesis import given

from palimpsest.core.events import ContextStated, ModelReplied, ModelSwitched, Pinned, Statement, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Cover, Fold, Insert, Item, Keep, Mask, Put, Text, ToolCall, ToolResult, Unmask
from palimpsest.core.log import Log
from palimpsest.core.undo import undo
from palimpsest.core.view import Fact, Reported
from palimpsest.core.view_projection import ViewReplay, project
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def conversation() -> Log:
    log = new_log()
    log.append(UserSaid((Text("why is it red?"),)))
    log.append(ModelReplied((Text("looking", "assistant"), ToolCall("c1", "bash", '{"command":"pytest"}'))))
    log.append(ToolReturned(ToolResult("c1", (Text("1 failed"),))))
    log.append(ModelReplied((Text("a test fails", "assistant"),), usage=Usage(input=90, output=10)))
    return log


def edit(log: Log, *edits: Mask | Unmask | Fold | Insert) -> int:
    return log.append(ViewEdited(edits, by="test")).seq


def test_items_are_numbered_by_event_and_part() -> None:
    assert [(item.id, item.kind) for item in conversation().view.items] == [
        ("1.0", "user"),
        ("2.0", "assistant"),
        ("2.1", "call"),
        ("3.0", "result"),
        ("4.0", "assistant"),
    ]


def test_a_mask_covers_an_item_and_unmask_removes_it() -> None:
    log = conversation()
    before = log.view.items
    edit(log, Mask(("3.0",), "[cleared]"))
    assert log.view["3.0"] == Item("3.0", "result", ToolResult("c1", (Text("1 failed"),)), mask=Cover("[cleared]"))
    edit(log, Unmask(("3.0",)))
    assert log.view.items == before


def test_a_mask_without_text_hides() -> None:
    log = conversation()
    edit(log, Mask(("4.0",)))
    assert [item.id for item in log.view.items if item.hidden] == ["4.0"]


def test_a_fold_replaces_a_range_and_moves_the_items_that_it_keeps() -> None:
    log = conversation()
    seq = edit(log, Fold("1.0", "3.0", (Put("summary", Text("one test fails")), Keep("1.0"))))
    assert log.view.ids == (f"{seq}.0.0", "1.0", "4.0")
    assert log.view[f"{seq}.0.0"] == Item(f"{seq}.0.0", "summary", Text("one test fails"))


def stated() -> Log:
    """A source speaks twice: `day` in event 1, `mode` in event 2."""
    log = new_log()
    log.append(ContextStated((Statement("day", "It is Monday."),)))
    log.append(ContextStated((Statement("mode", "The mode is build.", value="build"),)))
    return log


DAY, MODE = Fact("It is Monday.", "1.0"), Fact("build", "2.0")


def test_a_masked_or_hidden_context_item_does_not_count_as_stated_and_does_again_when_it_is_unmasked() -> None:
    for text in ("", "[gone]"):
        log = stated()
        edit(log, Mask(("1.0",), text))
        assert log.view.facts == {"mode": MODE}
        edit(log, Unmask(("1.0",)))
        assert log.view.facts == {"day": DAY, "mode": MODE}


def test_a_hidden_context_item_counts_as_stated_again_when_the_mask_is_undone() -> None:
    log = stated()
    undo(log, edit(log, Mask(("1.0",))))
    assert log.view.facts == {"day": DAY, "mode": MODE}


def test_a_context_item_that_only_the_cache_drops_still_counts_as_stated() -> None:
    log = stated()
    edit(log, Mask(("1.0",), "", "cached"))
    assert log.view.facts == {"day": DAY, "mode": MODE}


def test_a_new_statement_counts_while_the_older_item_stays_hidden() -> None:
    log = stated()
    edit(log, Mask(("1.0",)))
    log.append(ContextStated((Statement("day", "It is Tuesday."),)))
    assert log.view.facts == {"day": Fact("It is Tuesday.", "4.0"), "mode": MODE}
    edit(log, Unmask(("1.0",)))
    assert log.view.facts == {"day": Fact("It is Tuesday.", "4.0"), "mode": MODE}


def test_a_hidden_context_item_counts_as_stated_again_when_a_fork_or_a_resumed_log_unmasks_it() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(ContextStated((Statement("day", "It is Monday."),)))
    edit(log, Mask(("1.0",)))
    fork = log.fork(store, "f")
    log.checkpoint()
    resumed = Log.open(store, "s", FixedClock(1, 1))
    assert (fork.view.facts, resumed.view.facts) == ({}, {})
    for one in (fork, log):
        edit(one, Unmask(("1.0",)))
        assert one.view.facts == {"day": DAY}
    resumed.follow()
    assert resumed.view.facts == {"day": DAY}


def test_an_insert_puts_contents_before_an_item_or_at_the_end() -> None:
    log = conversation()
    first = edit(log, Insert((Put("reminder", Text("a")),), "2.0"))
    second = edit(log, Insert((Put("reminder", Text("b")),)))
    assert log.view.ids == ("1.0", f"{first}.0.0", "2.0", "2.1", "3.0", "4.0", f"{second}.0.0")


def test_an_insert_restores_an_item_that_a_fold_removed() -> None:
    log = conversation()
    fold = edit(log, Fold("1.0", "4.0", (Put("summary", Text("s")),)))
    edit(log, Insert((Keep("1.0"),), f"{fold}.0.0"))
    assert log.view.ids == ("1.0", f"{fold}.0.0")
    assert log.view["1.0"].content == Text("why is it red?")


def test_several_edits_of_one_event_apply_in_order() -> None:
    log = conversation()
    seq = edit(log, Fold("1.0", "3.0", (Put("summary", Text("s")),)), Mask(("4.0",), "later"))
    assert [(item.id, item.mask) for item in log.view.items] == [(f"{seq}.0.0", None), ("4.0", Cover("later"))]


def test_usage_without_a_prompt_does_not_give_the_size_of_the_view() -> None:
    log = conversation()
    log.append(ModelReplied((Text("and on", "assistant"),), usage=Usage(output=9)))
    assert log.view.reported == Reported(100, 4)


def test_a_report_keeps_the_items_that_it_measured_when_the_view_is_edited_until_the_next_report_or_a_switch() -> None:
    log = conversation()
    seen, measured = [log.view.reported], log.view.items
    edit(log, Mask(("3.0",), "x"))
    seen.append(log.view.reported)
    log.append(ModelReplied((Text("more", "assistant"),), usage=Usage(input=50)))
    seen.append(log.view.reported)
    log.append(ModelSwitched("other"))
    seen.append(log.view.reported)
    assert (seen, log.view.model) == ([Reported(100, 4), Reported(100, 4, measured=measured), Reported(50, 6), None], "other")


def test_a_stated_fact_lasts_as_long_as_the_item_that_states_it() -> None:
    log = new_log()
    log.append(ContextStated((Statement("environment", "cwd is /a", value="/a"), Statement("git", "on main", value="main"))))
    assert log.view.facts == {"environment": Fact("/a", "1.0"), "git": Fact("main", "1.1")}
    edit(log, Fold("1.0", "1.0"))
    assert log.view.facts == {"git": Fact("main", "1.1")}


def test_a_stated_head_begins_an_epoch_and_stays_until_the_next() -> None:
    log = new_log()
    log.append(ContextStated(head=(Statement("base", "you are pal", "system"),), items=(Statement("date", "today"),)))
    first = log.view
    log.append(ContextStated((Statement("date", "tomorrow"),)))
    same = log.view
    log.append(ContextStated(head=(Statement("base", "you are pal 2", "system"),)))
    assert [view.epoch for view in (first, same, log.view)] == [1, 1, 2]
    assert same.head == first.head == (Item("1.0", "context", Text("you are pal", "system"), "base"),)
    assert log.view.head == (Item("3.0", "context", Text("you are pal 2", "system"), "base"),)
    assert [item.id for item in log.view.items] == ["1.1", "2.0"]


def test_pins_are_set_and_removed() -> None:
    log = conversation()
    log.append(Pinned(("1.0",), ("src/a.py",)))
    log.append(Pinned(("1.0",), on=False))
    assert log.view.pins == frozenset({"src/a.py"})


def test_items_since_an_event_are_those_at_the_end() -> None:
    assert [item.id for item in conversation().view.since(2)] == ["3.0", "4.0"]


@given(steps)
def test_a_replay_shows_each_view_without_the_undone_edits(history: list[Step]) -> None:
    log = tell(new_log(), history)
    replay = ViewReplay(log.reader, log.path)
    skip = log.reader.undone_edits(log.path)
    events = list(log.events())
    for number, event in enumerate(events, 1):
        expected = project(events[:number], skip=skip, find=log.reader.item)
        assert replay.view_at(event.seq) == expected
    assert replay.view_at(log.tip).items == log.view.items
