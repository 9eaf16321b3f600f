"""What the user types, in a real terminal: history, editor, vi keys, images, files, shell lines and the queue."""

import base64
from collections.abc import Callable
from pathlib import Path

from streaming_model import Gate
from terminal_room import Room, say

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def program(folder: Path, name: str, text: str) -> Path:
    """A shell script in a folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def contents(room: Room, request: int) -> list[object]:
    """The parts of the last user message of a request, without the words of the program."""
    return [part for part in room.model.asked[request]["messages"][-1]["content"] if isinstance(part, dict)]


def test_the_history_is_that_of_all_sessions_and_can_be_searched(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal() as screen:
        say(screen, "the first message")
        screen.wait_for("answer")
        say(screen, "another one")
        screen.wait_until_quiet()
    with here.terminal() as screen:
        screen.press("up")
        screen.wait_for("❯ another one")
        screen.press("up")
        screen.wait_for("❯ the first message")
        screen.press("ctrl-c")
        screen.wait_for(lambda: "❯ the first message" not in screen.text())
        screen.press("ctrl-r")
        screen.type("firs")
        screen.wait_for("❯ the first message")
        screen.press("enter")
        screen.wait_until_quiet()
        screen.press("enter")
        screen.wait_for("answer")
        assert "the first message" in str(contents(here, 2))


def test_a_message_is_written_in_the_editor_while_the_agent_works(room: Callable[..., Room], tmp_path: Path) -> None:
    gate = Gate()
    here = room(("before the gate", gate, "\n\nbehind the gate\n\nend"), ("second",))
    (tmp_path / "wait").mkdir()
    editor = program(
        tmp_path / "bin", "editor", f'echo IN THE EDITOR; read _; echo "$(cat "$1") and more" > "$1"; touch {tmp_path}/wait/over'
    )
    with here.terminal(EDITOR=str(editor)) as screen:
        say(screen, "go")
        screen.wait_for("before the gate")
        screen.type("my text")
        screen.wait_for("❯ my text")
        screen.press("ctrl-g")
        screen.wait_for("IN THE EDITOR")
        gate.opened.set()
        screen.wait_until_quiet()
        assert "behind the gate" not in screen.text()
        screen.press("enter")
        screen.wait_for("❯ my text and more")
        screen.wait_for("behind the gate")
        screen.press("enter")
        screen.wait_for("second")
        assert "my text and more" in str(contents(here, 1))


def test_vi_keys_edit_the_line(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal("--vi") as screen:
        screen.type("one two three")
        screen.wait_for("❯ one two three")
        screen.press("esc")
        screen.wait_until_quiet()
        screen.type("0Dinew text")
        screen.wait_for("❯ new text")
        screen.press("enter")
        screen.wait_for("answer")
        assert "new text" in str(contents(here, 0))


def test_an_image_is_attached_by_its_path_and_from_the_clipboard(room: Callable[..., Room], tmp_path: Path) -> None:
    here = room(("seen",))
    image = here.project / "a picture.png"
    image.write_bytes(PNG)
    program(tmp_path / "bin", "wl-paste", f"cat '{image}'")
    with here.terminal(PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin") as screen:
        screen.paste(f"'{image}'")
        screen.wait_for("❯ [image #1]")
        screen.type(" and ")
        screen.press("ctrl-v")
        screen.wait_for("[image #2]")
        screen.press("enter")
        screen.wait_for("seen")
        encoded = base64.b64encode(PNG).decode()
        images = [part["source"]["data"] for part in contents(here, 0) if part["type"] == "image"]  # type: ignore[index]
        assert images == [encoded, encoded]
        assert "[image image/png]" in screen.text()


def test_a_clipboard_without_an_image_is_one_line(room: Callable[..., Room]) -> None:
    here = room(("seen",))
    with here.terminal(PATH="/nowhere") as screen:
        screen.press("ctrl-v")
        screen.wait_for("the clipboard has no image")


def test_a_file_is_completed_behind_an_at_sign(room: Callable[..., Room]) -> None:
    here = room(("read",))
    (here.project / "source").mkdir()
    (here.project / "source" / "parser.py").write_text("x = 1\n")
    (here.project / "other.txt").write_text("")
    (here.project / "parsed\u202e.py").write_text("")
    with here.terminal() as screen:
        screen.type("look at @pars")
        screen.wait_for("  @source/parser.py")
        assert "parsed" not in screen.text()
        screen.press("tab")
        screen.wait_for("❯ look at @source/parser.py")
        screen.press("enter")
        screen.wait_until_quiet()
        screen.press("enter")
        screen.wait_for("read")
        assert "look at @source/parser.py" in str(contents(here, 0))
        assert "other.txt" not in screen.text()


def test_a_shell_line_has_the_terminal(room: Callable[..., Room]) -> None:
    here = room(("unused",))
    (here.project / "of_the_project").write_text("")
    with here.terminal() as screen:
        say(screen, "!echo your name; read n; echo hello $n; test -t 1 && echo tty; ls; exit 3")
        screen.wait_for(lambda: "your name" in screen.lines())
        screen.type("you\r")
        screen.wait_for("hello you")
        screen.wait_for("with 3")
        screen.wait_until_quiet()
        assert "tty" in screen.lines()
        assert "of_the_project" in screen.lines()
        assert here.model.asked == []
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯"])


def test_ctrl_c_ends_a_shell_line_and_not_the_terminal(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal() as screen:
        say(screen, "!echo begun; exec tail -f /dev/null")
        screen.wait_for(lambda: "begun" in screen.lines())
        screen.press("ctrl-c")
        screen.wait_for("was ended by signal 2")
        say(screen, "go on")
        screen.wait_for("answer")


def test_a_stream_goes_on_behind_a_shell_line_and_is_shown_after_it(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("before\n\n", gate, "behind the gate\n\nend"))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("before")
        say(screen, "!echo mine; read _")
        screen.wait_for(lambda: "mine" in screen.lines())
        gate.opened.set()
        screen.wait_until_quiet()
        assert "behind the gate" not in screen.text()
        screen.press("enter")
        screen.wait_for("behind the gate")


def test_of_several_queued_messages_the_newest_is_taken_back_first(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("begun", gate, " on it"), ("steered",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("begun")
        for text in ("first", "second", "third"):
            say(screen, text)
            screen.wait_for(f"queued: {text}")
        screen.press("up")
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯ third"])
        gate.opened.set()
        screen.wait_for("steered")
        sent = str(here.model.asked[1]["messages"])
        assert [text in sent for text in ("first", "second", "third")] == [True, True, False]
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯ third"])


def test_a_message_of_several_lines_is_sent_as_it_is(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal() as screen:
        screen.type("one\\")
        screen.press("enter")
        screen.type("two")
        screen.press("alt-enter")
        screen.type("three")
        screen.press("ctrl-j")
        screen.type("four")
        screen.wait_for("four")
        screen.press("enter")
        screen.wait_for("answer")
        assert "one\\ntwo\\nthree\\nfour" in str(contents(here, 0))


def test_an_enter_while_a_command_prints_is_an_enter(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "/context grid")
        # The input is away, and the command has not ended.
        screen.wait_for(lambda: screen.lines()[-1] == "❯ /context grid" or "Autocompact buffer" in screen.text())
        screen.type("the question\r")
        screen.wait_for("the answer")
        assert [line for line in screen.scrollback() if line.startswith("❯ ")] == ["❯ /context grid", "❯ the question"]
