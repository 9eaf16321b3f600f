"""Questions in a real terminal: what they show, and the ways to answer them."""

import re
from collections.abc import Callable

from streaming_model import Call, Gate
from terminal_room import Room, say

LINES = "".join(f"line {number}\n" for number in range(60))


def test_each_command_of_a_line_is_shown_with_what_decides_about_it(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "ls src | grep x && touch made; mkdir new > log"}),), ("done",))
    with here.terminal("--allow", "bash(touch:*)") as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.wait_until_quiet()
        shown = screen.lines()
        first = shown.index("Run this command?")
        assert shown[first : first + 6] == [
            "Run this command?",
            "ls src | grep x && touch made; mkdir new > log",
            "+ ls src  [read-only]",
            "+ grep x  [read-only]",
            "+ touch made  [allowed by the rule bash(touch:*)]",
            "? mkdir new > log  [`mkdir` may change something; it writes a file]",
        ]


def test_a_typed_reason_refuses_and_reaches_the_model(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "touch made"}),), ("I see",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        say(screen, "use yarn, not any other way")
        screen.wait_for("I see")
        assert not (here.project / "made").exists()
        assert "use yarn, not any other way" in str(here.model.asked[1]["messages"][-1])
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯"])


def test_words_that_were_being_typed_do_not_answer_a_question(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("soon", gate, Call("bash", {"command": "touch made"})), ("done",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("soon")
        screen.type("m")
        screen.wait_for("❯ m")
        gate.opened.set()
        screen.wait_for("y  yes, once")
        screen.type("any y")
        screen.wait_for("❯ many y")
        screen.press("tab")
        screen.wait_for(lambda: "many y" not in screen.text())
        screen.type("y")
        screen.wait_for("done")
        screen.wait_for("❯ many y")
        assert (here.project / "made").exists()


def test_ctrl_o_shows_the_whole_diff_of_the_edit_that_is_asked_about(room: Callable[..., Room]) -> None:
    here = room((Call("write", {"path": "a.txt", "content": LINES}),), ("done",))
    with here.terminal(rows=40) as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.wait_until_quiet()
        assert "line 50" not in screen.text()
        screen.press("ctrl-o")
        screen.wait_for("60 + line 59")
        screen.wait_until_quiet()
        added = [line for line in screen.scrollback() if line.strip().endswith("line 0")]
        assert added == ["   1 + line 0", "   1 + line 0"]
        screen.type("y")
        screen.wait_for("done")
        assert (here.project / "a.txt").read_text() == LINES


def test_an_unanswered_question_is_refused_in_time(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "touch made"}),), ("understood",))
    with here.terminal("--answer-seconds", "0.5") as screen:
        say(screen, "go")
        screen.wait_for("understood")
        assert "no answer came in time" in str(here.model.asked[1]["messages"][-1])
        assert not (here.project / "made").exists()


def test_one_rule_is_asked_about_once_and_another_call_again(room: Callable[..., Room]) -> None:
    here = room(
        # Two calls of one reply wait for the user at once.
        (Call("bash", {"command": "git add a"}), Call("bash", {"command": "git add b"})),
        (Call("bash", {"command": "git add c"}),),
        (Call("bash", {"command": "mkdir c"}),),
        (Call("bash", {"command": "mkdir d"}),),
        ("done",),
    )
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("a  always: allow bash(git add:*)")
        screen.type("a")
        screen.wait_for("Run this command?\nmkdir c")
        screen.wait_for("y  yes, once")
        assert len(here.model.asked) == 3
        # Once is for this call and not for what differs from it.
        screen.type("y")
        screen.wait_for("Run this command?\nmkdir d")
        screen.type("n")
        screen.wait_for("done")
        assert ((here.project / "c").is_dir(), (here.project / "d").exists()) == (True, False)


def test_the_question_of_a_sub_agent_names_it_and_its_session_is_shown_by_agents(room: Callable[..., Room]) -> None:
    here = room(
        (Call("spawn_agent", {"message": "The folder is your task.", "nickname": "Ada"}),),
        (Call("wait_agent", {"ids": ["Ada"]}),),
        ("all is done",),
        about={"The folder is your task.": [(Call("bash", {"command": "mkdir made"}),), ("I made the folder.",)]},
    )
    with here.terminal(rows=40) as screen:
        say(screen, "/agents")
        screen.wait_for("this session has no sub-agents")
        say(screen, "go")
        screen.wait_for("Sub-agent Ada asks: Run this command?\nmkdir made")
        screen.type("y")
        screen.wait_for("all is done")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert (here.project / "made").is_dir()
        say(screen, "/agents")
        screen.wait_for(lambda: re.search(r"❯ Ada default completed \$0\.0\d+", screen.text()) is not None)
        screen.press("enter")
        screen.wait_for("I made the folder.")
        screen.wait_for("Sub-agents  (type to filter")
        screen.press("esc")
        screen.wait_for(lambda: "Sub-agents  (type to filter" not in screen.text())
        say(screen, "/agents Bob")
        screen.wait_for("there is no sub-agent 'Bob'; there are Ada")
        say(screen, "/cost")
        screen.wait_for("· sub-agent Ada (default, completed): $0.0")
