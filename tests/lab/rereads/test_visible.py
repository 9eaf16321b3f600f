import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded import ended, recorded, said, used

from pal.replay.rereads import (
    DEFINITION_NAMES,
    DEFINITIONS,
    EXCERPT_CHARACTERS,
    DefinitionName,
    KeyIndex,
    MissingContent,
    Required,
    VisibleKeys,
)
from palimpsest.audit.fold_texts import NAMES, SEEN
from palimpsest.core.items import Cover, Item, Text, ToolCall, ToolResult
from palimpsest.core.view import View

READ = ToolCall("c1", "Read", '{"file_path": "/repo/src/orders/merge_window.py"}')
SHOWN = ToolResult("c1", (Text("def lift_ledger(): ..."),))
EDIT = ToolCall("c2", "Edit", '{"file_path": "/repo/src/orders/merge_window.py", "old_string": "lift_ledger", "new_string": "drop_basket"}')
ITEMS = (Item("1.0", "user", Text("Please rename it.")), Item("2.0", "call", READ), Item("3.0", "result", SHOWN))
GONE = (*ITEMS[:2], replace(ITEMS[2], mask=Cover("[Read src/orders/merge_window.py, 12 tokens, 3.0]")))
NEED = Required(("orders/merge_window.py", "lift_ledger", "drop_basket"), ("orders/merge_window.py",))


def _keys(name: DefinitionName = "names") -> KeyIndex:
    steps = recorded(
        *said(1, "Please rename it."),
        *used(2, "c1", "Read", READ.args, "def lift_ledger(): ..."),
        *used(9, "c2", "Edit", EDIT.args, "ok"),
        *ended(20),
    ).steps
    return KeyIndex([step.reply for step in steps], DEFINITIONS[name])


def _sight(*views: View) -> VisibleKeys:
    visible_keys = VisibleKeys(_keys())
    for view in views:
        visible_keys.update(view)
    return visible_keys


def test_what_calls_name_and_edit_is_known_beforehand() -> None:
    assert [_keys().required[number] for number in (0, 1, 2)] == [Required(("orders/merge_window.py",), ()), NEED, Required()]


def test_what_shows_is_not_missing_and_what_never_showed_is_not_either() -> None:
    assert _sight(View(items=ITEMS)).missing(NEED) == []
    assert _sight(View(items=ITEMS[:1])).missing(NEED) == []


def test_a_masked_result_whose_name_is_used_again_is_fetched_with_its_own_call() -> None:
    missing = _sight(View(items=ITEMS), View(items=GONE)).missing(NEED)

    assert missing == [MissingContent(("orders/merge_window.py", "lift_ledger"), "3.0", READ, SHOWN)]


def test_a_stub_that_names_a_path_shows_the_name_but_not_the_content_that_an_edit_needs() -> None:
    need = Required(("orders/merge_window.py",), ("orders/merge_window.py",))
    missing = _sight(View(items=ITEMS), View(items=GONE)).missing(need)

    assert missing == [MissingContent(("orders/merge_window.py",), "3.0", READ, SHOWN)]


def test_a_name_that_another_item_still_shows_is_not_missing() -> None:
    reported = Item("4.0", "assistant", Text("It is lift_ledger.", "assistant"))
    visible_keys = _sight(View(items=(*ITEMS, reported)), View(items=(*GONE, reported)))

    assert visible_keys.missing(Required(("lift_ledger",))) == []


def test_what_was_brought_back_is_seen_again() -> None:
    visible_keys = _sight(View(items=ITEMS), View(items=GONE), View(items=ITEMS))

    assert visible_keys.missing(NEED) == []


def test_a_message_that_was_folded_away_is_looked_for_by_the_name() -> None:
    said_name = Item("1.0", "user", Text("Please rename lift_ledger."))
    visible_keys = _sight(View(items=(said_name,)), View(items=()))

    wanted = ToolCall("", "Grep", '{"pattern":"lift_ledger"}')
    found = ToolResult("", (Text("Please rename lift_ledger."),))
    assert visible_keys.missing(Required(("lift_ledger",))) == [MissingContent(("lift_ledger",), "1.0", wanted, found)]


def test_one_fetch_brings_all_the_names_of_a_result() -> None:
    both = ToolResult("c1", (Text("def lift_ledger(): drop_basket()"),))
    items = (*ITEMS[:2], replace(ITEMS[2], content=both))
    visible_keys = _sight(View(items=items), View(items=items[:2]))

    assert [each.keys for each in visible_keys.missing(NEED)] == [("orders/merge_window.py", "lift_ledger", "drop_basket")]


def test_of_a_result_that_was_never_shown_whole_only_the_place_is_fetched() -> None:
    whole = ToolResult("c1", (Text("x" * 50_000 + " lift_ledger " + "y" * 50_000),))
    visible_keys = VisibleKeys(_keys())
    visible_keys.update(View(items=ITEMS[:2]))
    visible_keys.add_truncated("3.0", whole)
    visible_keys.update(View(items=(*ITEMS[:2], replace(ITEMS[2], content=ToolResult("c1", (Text("x" * 100),))))))

    (missing,) = visible_keys.missing(Required(("lift_ledger",)))
    (part,) = missing.content.parts
    assert isinstance(part, Text)
    assert "lift_ledger" in part.text
    assert len(part.text) == 2 * EXCERPT_CHARACTERS
    assert missing.item == "3.0"


def test_a_summary_shows_the_names_that_were_drawn_for_it_whether_or_not_they_had_room() -> None:
    visible_keys = _sight(View(items=ITEMS))
    visible_keys.add_sampled("summary 1", frozenset({"lift_ledger"}))
    summary = Item("9.0.0", "summary", Text("What was done (summary 1)."))
    visible_keys.update(View(items=(summary,)))

    assert visible_keys.visible() == {"lift_ledger"}
    assert [each.keys for each in visible_keys.missing(NEED)] == [("orders/merge_window.py",)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), unique_by=lambda each: each[0]), max_size=5))
def test_what_is_seen_after_many_edits_is_what_is_seen_at_once(views: list[list[tuple[int, bool]]]) -> None:
    plain = (*ITEMS, Item("4.0", "call", EDIT), Item("5.0", "user", Text("drop_basket")), Item("6.0", "user", Text("lift_ledger")))
    masked = tuple(replace(item, mask=Cover("[orders/merge_window.py]")) for item in plain)
    shown = [View(items=tuple((masked if hidden else plain)[number] for number, hidden in view)) for view in views]
    followed = _sight(*shown)
    for need in (NEED, Required(("lift_ledger",)), Required(("drop_basket",))):
        last = _sight(*shown[-1:])
        assert followed.visible() == last.visible()
        missing = {name for each in followed.missing(need) for name in each.keys}
        assert missing.isdisjoint(name for name in last.visible() if name not in need.edited)


def test_what_was_fetched_without_being_added_counts_as_visible_until_the_newest_item_of_then_is_folded() -> None:
    newest = Item("4.0", "user", Text("And now?"))
    visible_keys = _sight(View(items=(*ITEMS, newest)), View(items=(*GONE, newest)))
    visible_keys.add_fetched(visible_keys.missing(NEED))
    later = Item("5.0", "user", Text("Go on."))
    found = []
    for items in ((*GONE, newest, later), (replace(newest, mask=Cover("[gone]")), later), (later,)):
        visible_keys.update(View(items=items))
        found.append([each.item for each in visible_keys.missing(NEED)])

    assert found == [[], [], ["3.0"]]


@pytest.mark.parametrize("source", [NAMES, SEEN])
@given(hidden=st.sets(st.integers(0, 3)), place=st.integers(0, 4))
@pytest.mark.states("PA-30")
def test_a_list_of_names_in_a_view_makes_nothing_known(source: str, hidden: set[int], place: int) -> None:
    items = (*ITEMS, Item("4.0", "assistant", Text("lift_ledger is in orders/merge_window.py", "assistant")))
    view = tuple(replace(item, mask=Cover("")) if number in hidden else item for number, item in enumerate(items))
    everything = Item("9.0.0", "summary", Text("orders/merge_window.py, lift_ledger, drop_basket\ndef lift_ledger(): ..."), source)
    for name in DEFINITION_NAMES:
        plain, listed = (VisibleKeys(_keys(name)) for _ in range(2))
        for each in (items, view):
            plain.update(View(items=each))
            listed.update(View(items=each))
        listed.update(View(items=(*view[:place], everything, *view[place:])))
        for required in _keys(name).required:
            assert listed.missing(required) == plain.missing(required)
        assert listed.visible() == plain.visible()


def test_the_text_that_an_edit_replaces_is_fetched_again_with_its_own_call() -> None:
    keys = _keys("text")
    visible_keys = VisibleKeys(keys)
    visible_keys.update(View(items=ITEMS))
    assert visible_keys.missing(keys.required[1]) == []
    visible_keys.update(View(items=GONE))

    assert visible_keys.missing(keys.required[1]) == [MissingContent(("lift_ledger",), "3.0", READ, SHOWN)]
