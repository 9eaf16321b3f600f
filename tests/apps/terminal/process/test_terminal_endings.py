"""How a terminal ends or is in trouble: signals, a closed window, a lost connection, a home or a disk that cannot be written."""

import os
import resource
import shutil
import signal
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from streaming_model import Call, Gate
from terminal_room import NOTICE, PAL, Room, say


def drafts(room: Room) -> list[str]:
    """What was typed and not sent, of all sessions."""
    return [path.read_text() for path in (room.home / "drafts").glob("*.txt")]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_terminal_in_order(room: Callable[..., Room], how: signal.Signals) -> None:
    gate = Gate()
    here = room(("the beginning of an answer", gate, "rest"))
    with here.terminal() as screen:
        modes = termios.tcgetattr(screen.fileno())[3]
        say(screen, "the question")
        screen.wait_for("the beginning")
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        screen.process.send_signal(how)
        assert screen.wait_for_end() == 0
        assert modes & termios.ICANON == 0
        assert termios.tcgetattr(screen.fileno())[3] & termios.ICANON
    assert drafts(here) == ["half a thou"]
    with here.terminal("--continue") as screen:
        screen.wait_until_quiet()
        assert screen.lines()[:-1] == [
            "",
            "❯ the question",
            "",
            "the beginning of an answer",
            "",
            "· interrupted",
            *NOTICE,
            "",
            "❯ half a thou",
        ]


def test_a_closed_terminal_ends_the_process_and_its_command_and_keeps_the_draft(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "echo $$ > pid; cat < never"}),))
    os.mkfifo(here.project / "never")
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.type("y")
        screen.wait_for(lambda: (here.project / "pid").exists() and bool((here.project / "pid").read_text().strip()))
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        screen.close()
        screen.wait_for_end()
        assert drafts(here) == ["half a thou"]
        assert not Path("/proc", (here.project / "pid").read_text().strip()).exists()


def test_a_stopped_process_goes_on_with_its_screen(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("one\n\n", gate, "two"), ("second",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("one")
        os.kill(screen.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, screen.process.pid, os.WSTOPPED)
        # What a shell does to the terminal while the program is stopped.
        modes = termios.tcgetattr(screen.fileno())
        modes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(screen.fileno(), termios.TCSANOW, modes)
        os.kill(screen.process.pid, signal.SIGCONT)
        gate.opened.set()
        screen.wait_for("two")
        screen.wait_for(lambda: termios.tcgetattr(screen.fileno())[3] & termios.ICANON == 0)
        say(screen, "again")
        screen.wait_for("second")


def test_a_lost_connection_is_one_line_and_the_next_message_goes_on(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("what arrived before", gate, "never sent"), ("second",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("what arrived before")
        here.model.cut()
        screen.wait_for("the stream ended before the reply was whole")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert "what arrived before" in screen.text()
        say(screen, "again")
        screen.wait_for("second")


def test_on_a_full_disk_what_was_typed_stays(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    pasted = "\n".join(f"line {number}" for number in range(50))
    with here.terminal() as screen:
        say(screen, "first")
        screen.wait_for("answer")
        # No file may grow any more, as on a full disk.
        limits = resource.prlimit(screen.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        screen.paste(pasted)
        screen.type(" second")
        screen.wait_for("❯ [pasted #1, 50 lines] second")
        screen.press("enter")
        screen.wait_for("File too large")
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯ [pasted #1, 50 lines] second"])
        assert len(here.model.asked) == 1
        resource.prlimit(screen.process.pid, resource.RLIMIT_FSIZE, limits)
        screen.press("enter")
        screen.wait_for(lambda: len(here.model.asked) == 2)
        assert "line 48\\nline 49 second" in str(here.model.asked[1]["messages"])


def test_a_home_that_cannot_be_written_is_said_and_the_message_stays(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    # No permission that root would not have: the folder of sessions cannot be made.
    (here.home / "sessions").write_text("a file")
    with here.terminal(ready="no session is open") as screen:
        screen.type("my message")
        screen.wait_for("❯ my message")
        screen.press("enter")
        screen.wait_until_quiet()
        assert "my message" in screen.text()
        screen.press("ctrl-c", "ctrl-d")
        assert screen.wait_for_end() == 0


def test_ctrl_z_gives_the_shell_its_terminal_back(room: Callable[..., Room]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash, which has job control")
    here = room(("answer",))
    with here.terminal(ready="$", command=["bash", "--norc", "-i"], PS1="$ ") as screen:
        screen.type(" ".join(PAL) + "\r")
        screen.wait_for("of 200k")
        screen.type("some words")
        screen.wait_for("❯ some words")
        screen.press("ctrl-z")
        screen.wait_for("Stopped")
        screen.type("echo in the shell\r")
        screen.wait_for(lambda: "in the shell" in screen.lines())
        screen.type("fg\r")
        screen.wait_for(lambda: screen.lines()[-2] == "❯ some words")
        screen.wait_until_quiet()
        assert screen.text().count("❯ some words") == 1
        screen.press("enter")
        screen.wait_for("answer")
