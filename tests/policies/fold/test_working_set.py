"""What stays of the work in a fold: files as they are now, results in use, and the newest calls."""

from dataclasses import replace

import pytest
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, text_of
from palimpsest.policies.fold import FoldFromLog
from palimpsest.policies.fold_parts import Bounds
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile

BOUNDS = Bounds(tail=1_000, results=4_000, calls=1_000)


def at_work(bounds: Bounds = BOUNDS, *, in_use: int = 0) -> Session:
    fold = FoldFromLog(bounds=bounds, cover=0.0, in_use=in_use)
    session = work(Profile("ours", (fold,), profile("palimpsest").budget, strictness="full"))
    say(session, "change the parser")
    return session


def look_around(session: Session, count: int, name: str = "other") -> None:
    """Read files that nothing names again."""
    for number in range(count):
        use(session, f"{name}{number}", "Read", f'{{"file_path":"{name}_{number}.py"}}', f"{name}_value_{number} = 1\n" * 200)


def fold(session: Session) -> tuple[Item, ...]:
    assert offline(session, run_policies(session, "asked")).folded
    return session.log.view.items


def texts(items: tuple[Item, ...]) -> str:
    return "\n".join(text_of(item.content) if item.mask is None else item.mask.text for item in items)


@pytest.mark.states("PA-27")
def test_an_edited_file_shows_once_as_it_is_after_its_last_edit_also_after_more_folds() -> None:
    session = at_work()
    use(session, "r", "Read", '{"file_path":"src/parser.py"}', "     1\tdef parse_it():\n     2\t    return old_tree\n" * 1)
    use(session, "e", "Edit", '{"file_path":"src/parser.py","old_string":"old_tree","new_string":"new_tree"}', "done")
    look_around(session, 40)
    items = fold(session)
    shown = [item for item in items if item.source == "file src/parser.py"]
    assert [text_of(item.content) for item in shown] == [
        "[src/parser.py after its last recorded edit]\ndef parse_it():\n    return new_tree",
    ]
    assert "return old_tree" not in texts(items)
    look_around(session, 40, "more")
    assert [item for item in fold(session) if item.source == "file src/parser.py"] == shown
    use(session, "e2", "Edit", '{"file_path":"src/parser.py","old_string":"new_tree","new_string":"last_tree"}', "done")
    look_around(session, 40, "again")
    items = fold(session)
    shown = [item for item in items if item.source == "file src/parser.py"]
    assert [text_of(item.content).splitlines()[-1] for item in shown] == ["    return last_tree"]
    assert "return new_tree" not in texts(items)


@pytest.mark.states("PA-27")
def test_a_file_whose_text_is_not_known_any_more_does_not_show() -> None:
    session = at_work()
    use(session, "r", "Read", '{"file_path":"src/parser.py"}', "def parse_it(): return old_tree\n" * 20)
    use(session, "e", "Edit", '{"file_path":"src/parser.py","old_string":"not in it","new_string":"new_tree"}', "done")
    look_around(session, 10)
    assert "return old_tree" not in texts(fold(session))


def with_files(session: Session, files: dict[str, str]) -> None:
    """The session can read these files as they are now."""
    session.environment = replace(session.environment, look=lambda want: files.get(want.name))


@pytest.mark.states("PA-27")
def test_a_file_whose_text_is_not_known_shows_as_it_is_now_where_it_can_be_read() -> None:
    session = at_work()
    with_files(session, {"src/parser.py": "def parse_it(): return new_tree\n"})
    use(session, "r", "Read", '{"file_path":"src/parser.py"}', "def parse_it(): return old_tree\n" * 20)
    use(session, "e", "Edit", '{"file_path":"src/parser.py","old_string":"not in it","new_string":"new_tree"}', "done")
    look_around(session, 10)
    items = fold(session)
    assert [text_of(item.content) for item in items if item.source == "file src/parser.py"] == [
        "[src/parser.py as it is now]\ndef parse_it(): return new_tree\n"
    ]
    assert "return old_tree" not in texts(items)


@pytest.mark.states("PA-27")
def test_a_file_that_changed_since_its_last_recorded_edit_shows_as_it_is_now() -> None:
    session = at_work()
    with_files(session, {"src/parser.py": "def parse_it():\n    return tree_of_the_user\n"})
    use(session, "r", "Read", '{"file_path":"src/parser.py"}', "     1\tdef parse_it():\n     2\t    return old_tree\n")
    use(session, "e", "Edit", '{"file_path":"src/parser.py","old_string":"old_tree","new_string":"new_tree"}', "done")
    look_around(session, 40)
    items = fold(session)
    assert [text_of(item.content) for item in items if item.source == "file src/parser.py"] == [
        "[src/parser.py as it is now]\ndef parse_it():\n    return tree_of_the_user\n"
    ]
    assert "old_tree" not in texts(tuple(item for item in items if item.kind == "result"))


def test_a_part_of_a_file_that_is_as_it_was_stays_a_part() -> None:
    session = at_work()
    with_files(session, {"src/parser.py": "import re\n" * 50 + "def parse_it():\n    return new_tree\n"})
    use(session, "r", "Read", '{"file_path":"src/parser.py","offset":51}', "    51\tdef parse_it():\n    52\t    return old_tree\n")
    use(session, "e", "Edit", '{"file_path":"src/parser.py","old_string":"old_tree","new_string":"new_tree"}', "done")
    look_around(session, 40)
    assert [text_of(item.content) for item in fold(session) if item.source == "file src/parser.py"] == [
        "[src/parser.py after its last recorded edit]\ndef parse_it():\n    return new_tree"
    ]


def test_the_eight_files_that_were_changed_last_are_read_newest_first() -> None:
    session = at_work()
    asked: list[str] = []
    session.environment = replace(session.environment, look=lambda want: asked.append(want.name))
    for number in (*range(10), 3):
        use(session, f"e{number}{len(asked)}", "Edit", f'{{"file_path":"{number}.py","old_string":"a","new_string":"b"}}', "done")
    look_around(session, 40)
    fold(session)
    assert asked == ["3.py", "9.py", "8.py", "7.py", "6.py", "5.py", "4.py", "2.py"]


def test_a_file_that_a_call_wrote_stays_with_its_call() -> None:
    session = at_work()
    use(session, "w", "Write", '{"file_path":"plan.md","content":"' + "first the parser. " * 300 + '"}', "written")
    look_around(session, 40)
    kept = [item.content for item in fold(session) if isinstance(item.content, ToolCall) and item.content.call_id == "w"]
    assert len(kept) == 1


def test_results_that_just_arrived_stay_before_older_ones_while_there_is_room() -> None:
    session = at_work()
    look_around(session, 12)
    shown = [item for item in fold(session) if isinstance(item.content, ToolResult) and item.mask is None]
    assert {text_of(item.content).split(" ")[0] for item in shown} == {"other_value_9", "other_value_10", "other_value_11"}


def test_the_newest_other_calls_stay_with_stubs_in_place_of_their_results() -> None:
    session = at_work(Bounds(tail=1_000, results=0, calls=1_000))
    for number in range(60):
        use(session, f"b{number}", "Bash", f'{{"command":"make part_{number}"}}', f"part_{number} is built\n" * 100)
    items = fold(session)
    masked = [item for item in items if isinstance(item.content, ToolResult) and item.mask is not None]
    calls = [text_of(item.content) for item in items if isinstance(item.content, ToolCall)]
    assert 8 < len(masked) < 30
    assert all(item.mask is not None and item.mask.text.startswith("[Bash make part_") for item in masked)
    assert "make part_58" in calls[-2]
    assert not any("make part_20" in call for call in calls)
    assert sum(session.counter.item(item) for item in items if item.mask is not None) < 1_000


def test_a_fold_without_pressure_waits_while_more_is_in_use_than_it_may_hide() -> None:
    for in_use, folds in ((0, True), (20_000, False), (60_000, True)):
        session = at_work(in_use=in_use)
        look_around(session, 20)
        say(session, "think first")
        reply(session, Text("and on " * 35_000, "assistant"))
        say(session, "and now?")
        reply(session, Text("now " + " ".join(f"other_value_{number}" for number in range(20)), "assistant"))
        assert (in_use, offline(session, run_policies(session, "before_call")).folded) == (in_use, folds)


def test_a_large_file_that_no_result_has_shown_does_not_make_a_fold_wait() -> None:
    session = at_work(in_use=60_000)
    with_files(session, {"out.log": "a line of the log\n" * 14_000})
    use(session, "b", "Bash", '{"command":"make > out.log"}', "")
    look_around(session, 20)
    say(session, "think first")
    reply(session, Text("and on " * 35_000, "assistant"))
    say(session, "and now?")
    reply(session, Text("now", "assistant"))
    assert offline(session, run_policies(session, "before_call")).folded
