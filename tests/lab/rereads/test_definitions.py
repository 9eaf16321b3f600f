import pytest
from hypothesis import given
from hypothesis import strategies as st

from pal.replay.rereads import DEFINITIONS, OFFICIAL, DefinitionName, Required, line_finder, plain_name, strings_in
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall

EDIT = ToolCall(
    "c2",
    "Edit",
    '{"file_path": "/repo/src/orders/merge_window.py", "old_string": "def lift_ledger():\\n    pass", "new_string": "def drop_basket():"}',
)


def test_a_path_is_compared_by_its_last_two_parts_and_a_name_as_it_is() -> None:
    assert [plain_name(name) for name in ("/a/b/c.py", "b/c.py", "c.py", "lift_ledger", "/a/b/")] == [
        "b/c.py",
        "b/c.py",
        "c.py",
        "lift_ledger",
        "a/b",
    ]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        # The second line of the old text is shorter than 8 characters.
        ("text", Required(("def lift_ledger():",))),
        ("strings", Required(("orders/merge_window.py",))),
        ("names", Required(("orders/merge_window.py", "lift_ledger", "drop_basket"), ("orders/merge_window.py",))),
    ],
)
def test_an_edit_needs_its_old_text_or_its_strings_or_its_names(name: DefinitionName, needed: Required) -> None:
    assert DEFINITIONS[name].required(ModelReplied((EDIT,))) == needed


def test_a_call_that_edits_nothing_needs_no_text() -> None:
    assert (
        DEFINITIONS["text"].required(ModelReplied((ToolCall("c", "Bash", '{"command": "cat src/orders/merge_window.py"}'),))) == Required()
    )


def test_a_string_that_sessions_of_several_projects_have_is_needed_by_no_call() -> None:
    call = ToolCall("c", "Bash", '{"command": "git commit -m Co-Authored-By merge_window_of_orders"}')

    assert DEFINITIONS["strings"].required(ModelReplied((call,))) == Required(("merge_window_of_orders",))


def test_lines_are_found_without_indentation_behind_what_programs_print_before_them_and_within_longer_lines() -> None:
    lines = {"return settle_basket(one)", "raise NoBasket(two)", "third = cursor()", "lift_ledger", "drop_basket(three)"}
    printed = "    12→    return settle_basket(one)\nsrc/a.py:7:    raise NoBasket(two)\n+    third = cursor()\nx = old_lift_ledgers[0]\n"

    assert line_finder(lines)(printed) == lines - {"drop_basket(three)"}


@given(st.lists(st.text("ab_. (\n", min_size=1, max_size=12), min_size=1), st.text("ab_. (\n", max_size=200))
def test_a_line_is_found_wherever_it_occurs(lines: list[str], text: str) -> None:
    assert line_finder(set(lines))(text) == {line for line in lines if line in text}


def test_strings_have_twelve_characters_and_more() -> None:
    assert strings_in("a lift_ledger settle_basket(cursor) /repo/src/part/file_0.py") == {"settle_basket", "part/file_0.py"}


def test_the_official_definition_is_one_of_the_three() -> None:
    assert OFFICIAL in DEFINITIONS
