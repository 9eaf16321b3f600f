"""Texts of files that follow from the calls of a session."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.visible import KnownText, known_texts, without_line_numbers
from palimpsest.core.items import Item, Text, ToolCall, ToolResult

READ = "     1\tone = 1\n     2\ttwo = 2\n\n<system-reminder>careful</system-reminder>"


def pair(number: int, tool: str, result: str = "ok", *, error: bool = False, **args: Any) -> tuple[Item, Item]:
    call = ToolCall(f"c{number}", tool, msgspec.json.encode(args).decode())
    answer = ToolResult(f"c{number}", (Text(result),), error=error)
    return Item(f"{number}.0", "call", call), Item(f"{number + 1}.0", "result", answer)


def read(number: int, result: str = READ) -> tuple[Item, Item]:
    return pair(number, "Read", result, file_path="a.py")


def edit(number: int, old: str, new: str, *, error: bool = False) -> tuple[Item, Item]:
    return pair(number, "Edit", file_path="a.py", old_string=old, new_string=new, error=error)


def test_a_read_shows_the_lines_of_a_file_without_what_the_program_printed_around_them() -> None:
    assert known_texts(read(1)) == {
        "a.py": KnownText("one = 1\ntwo = 2", ("1.0", "2.0"), is_shown=True, in_call=False, edits=0, touched="2.0")
    }
    assert without_line_numbers("10: no number before the next line\nplain") == "no number before the next line"
    assert without_line_numbers("plain\n2: x") == "plain\n2: x"


def test_recorded_edits_are_applied_and_the_items_no_longer_show_the_text() -> None:
    items = (*read(1), *edit(3, "two = 2", "two = 3"), *edit(5, "one", "three", error=True))
    assert known_texts(items) == {
        "a.py": KnownText("one = 1\ntwo = 3", ("1.0", "2.0"), is_shown=False, in_call=False, edits=1, touched="4.0")
    }


def test_what_a_call_wrote_stands_in_the_call() -> None:
    items = (*read(1), *pair(3, "Write", file_path="./a.py", content="new = 1\n"))
    assert known_texts(items) == {"a.py": KnownText("new = 1\n", ("3.0", "4.0"), is_shown=True, in_call=True, edits=1, touched="4.0")}


def test_a_file_is_not_known_after_an_edit_that_does_not_fit_or_a_command_that_changes_it() -> None:
    assert known_texts((*read(1), *edit(3, "not there", "x"))) == {}
    assert known_texts((*read(1), *pair(3, "Bash", command="sed -i s/one/two/ a.py"))) == {}
    assert known_texts((*read(1), *pair(3, "Bash", command="cat a.py")))["a.py"].text == "one = 1\ntwo = 2"


def test_a_text_that_an_earlier_fold_wrote_is_carried_on() -> None:
    earlier = Item("9.0.3", "summary", Text("[a.py after its last recorded edit]\none = 1"), "file a.py")
    assert known_texts((earlier,)) == {"a.py": KnownText("one = 1", ("9.0.3",), is_shown=True, in_call=False, edits=1, touched="9.0.3")}
    assert known_texts((earlier, *edit(10, "1", "2")))["a.py"].text == "one = 2"


LETTERS = st.text("abc\n", min_size=1, max_size=3)


@given(st.lists(st.one_of(LETTERS.map(lambda text: ("write", text, "")), st.tuples(st.just("edit"), LETTERS, LETTERS)), max_size=12))
@pytest.mark.states("PA-27")
def test_a_known_text_is_that_of_the_file(steps: list[tuple[str, str, str]]) -> None:
    items: list[Item] = []
    content: str | None = None
    for number, (how, old, new) in enumerate(steps):
        if how == "write":
            content = old
            items += pair(2 * number, "Write", file_path="a.py", content=old)
        else:
            fits = content is not None and old in content
            content = content.replace(old, new, 1) if content is not None and fits else content
            items += edit(2 * number, old, new, error=not fits)
    known = known_texts(items)
    assert {path: file.text for path, file in known.items()} == ({} if content is None else {"a.py": content})
