"""Commands of the terminal on the real process: edits, items, notes, exports, instructions and colours."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pty_screen import PtyScreen
from streaming_model import Call, Part
from terminal_room import Room, say

READS: tuple[tuple[Part, ...], ...] = tuple(
    reply for number in range(4) for reply in ((Call("read", {"path": f"file{number}.txt"}),), (f"read number {number}",))
)


@contextmanager
def folded(room: Callable[..., Room]) -> Iterator[tuple[Room, PtyScreen, str]]:
    """A session of four turns that was folded once, and the number of the edit."""
    here = room(*READS, ("after the fold",))
    for number in range(4):
        (here.project / f"file{number}.txt").write_text("".join(f"{number}: line {line} of the file\n" for line in range(1_500)))
    with here.terminal(rows=40) as screen:
        for number in range(4):
            say(screen, f"read file {number}")
            screen.wait_for(f"read number {number}")
            screen.wait_for(lambda: "working" not in screen.lines()[-1])
        say(screen, "/compact")
        screen.wait_for(lambda: re.search(r"^▾ fold \d+:", screen.text(), re.MULTILINE) is not None)
        edit = re.findall(r"^▾ fold (\d+):", screen.text(), re.MULTILINE)[-1]
        screen.wait_until_quiet()
        yield here, screen, edit


def test_a_fold_is_one_line_with_its_saving_and_the_key_that_shows_it(room: Callable[..., Room]) -> None:
    with folded(room) as (_, screen, edit):
        lines = [line for line in screen.scrollback() if line.startswith("▾")]
        assert len(lines) == 1
        assert re.fullmatch(rf"▾ fold {edit}: \d+k? → \d+k? tokens, saves \$[\d.]+ a call, \$[\d.]+ at once \(Ctrl-T\)", lines[0])
        screen.press("ctrl-t")
        screen.wait_for(f"❯ fold {edit}:")
        screen.press("esc")
        screen.wait_for(lambda: "(type to filter" not in screen.text())
        say(screen, "/undo")
        screen.wait_for(f"edit {edit} was undone")


def test_audit_walks_the_edits_and_u_undoes_one(room: Callable[..., Room]) -> None:
    with folded(room) as (here, screen, edit):
        say(screen, "/audit")
        screen.wait_for("(type to filter, Enter takes, u undoes, Esc leaves)")
        screen.wait_for(lambda: re.search(rf"❯ fold {edit}: \d+k? → \d+k? tokens, hid \d+ items", screen.text()) is not None)
        screen.wait_for("a call")
        screen.press("enter")
        screen.wait_for(f"Items that edit {edit} hid")
        screen.wait_for("r restores")
        screen.press("esc")
        screen.wait_for(lambda: f"Items that edit {edit} hid" not in "\n".join(screen.lines()))
        screen.type("u")
        screen.wait_for("(undone)")
        screen.press("esc")
        screen.wait_for(f"edit {edit} was undone")
        say(screen, "go on")
        screen.wait_for("after the fold")
        assert "1: line 700 of the file" in str(here.model.asked[-1]["messages"])


def test_restore_brings_an_item_back_into_the_next_request(room: Callable[..., Room]) -> None:
    with folded(room) as (here, screen, _):
        say(screen, "/restore")
        screen.wait_for("Hidden items, newest first")
        screen.type("0: line")
        screen.wait_for(lambda: re.search(r"❯ \d+\.\d+ result", screen.text()) is not None)
        item = re.findall(r"❯ (\d+\.\d+) result", screen.text())[-1]
        screen.press("esc")
        screen.wait_for(lambda: "Hidden items" not in "\n".join(screen.lines()))
        say(screen, f"/restore {item}")
        screen.wait_for(lambda: len([line for line in screen.scrollback() if line.startswith("▾")]) == 2)
        say(screen, "go on")
        screen.wait_for("after the fold")
        assert "0: line 700 of the file" in str(here.model.asked[-1]["messages"])
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        say(screen, f"/restore {item}")
        screen.wait_for(f"item {item} is visible already")


def test_context_walks_the_items_of_the_window_and_p_pins_one(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the answer")
        say(screen, "/context")
        screen.wait_for("/context items walks them one by one")
        assert "Free space" in screen.text()
        say(screen, "/context items")
        screen.wait_for("What fills the window")
        screen.type("tokens the question")
        screen.wait_for("tokens the question\nclaude")
        screen.press("down", "down", "down")
        screen.wait_for(lambda: re.search(r"❯ \d+\.\d+ user 9 tokens the question", screen.text()) is not None)
        item = re.findall(r"❯ (\d+\.\d+) user", screen.text())[-1]
        # The letter is the key of the list and not a part of the filter.
        screen.type("p")
        screen.press("esc")
        screen.wait_for(f"pinned {item}")


def test_memory_is_added_walked_and_forgotten_inside_of_the_session(room: Callable[..., Room]) -> None:
    here = room(("unused",))
    with here.terminal() as screen:
        say(screen, "/memory add The tests need a database on port 5433.")
        screen.wait_for(lambda: re.search(r"added: (project_\w+)", screen.text()) is not None)
        name = re.findall(r"added: (project_\w+)", screen.text())[-1]
        # The terminal takes its keys back once the command has printed.
        screen.wait_until_quiet()
        say(screen, "/memory search database")
        screen.wait_for(lambda: screen.text().count("5433") >= 3)
        say(screen, "/memory")
        screen.wait_for(f"❯ {name} project The tests")
        screen.type("f")
        screen.wait_for(f"Delete {name} for good?")
        screen.press("down", "enter")
        screen.wait_for(f"note {name} is forgotten")
        screen.wait_for("there are no notes")
        assert "5433" not in "".join(path.read_text() for path in here.home.rglob("*.md"))


def test_export_writes_a_page_into_the_project_without_options(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the answer")
        say(screen, "/export")
        screen.wait_for(lambda: list(here.project.glob("session-*.html")) != [])
        say(screen, "/export markdown")
        screen.wait_for(lambda: list(here.project.glob("session-*.md")) != [])
    assert "the question" in next(here.project.glob("session-*.html")).read_text()
    assert "the answer" in next(here.project.glob("session-*.md")).read_text()


@pytest.mark.parametrize(("present", "said"), [("", "Write AGENTS.md in the root"), ("CLAUDE.md", "Read CLAUDE.md and compare it")])
def test_init_lets_the_agent_draft_or_improve_the_instructions(room: Callable[..., Room], present: str, said: str) -> None:
    here = room(("it is written",))
    if present:
        (here.project / present).write_text("Use tabs.\n")
    with here.terminal() as screen:
        say(screen, "/init")
        screen.wait_for("it is written")
        assert said in str(here.model.asked[0]["messages"])


def test_a_theme_is_kept_in_the_configuration(room: Callable[..., Room]) -> None:
    here = room(("unused",))
    with here.terminal() as screen:
        say(screen, "/theme light")
        screen.wait_for(lambda: 'theme = "light"' in (here.home / "config.toml").read_text())
        say(screen, "/theme pink")
        screen.wait_for("/theme takes dark or light")
    assert (here.home / "config.toml").read_text() == '[memory]\njobs = "off"\n\n[terminal]\ntheme = "light"\n'


def test_tasks_and_processes_show_details(room: Callable[..., Room]) -> None:
    here = room(
        (Call("task_create", {"subject": "Write the parser", "description": "by hand"}),),
        (Call("bash", {"command": "cat < never", "background": True}),),
        ("started",),
    )
    with here.terminal("--allow", "bash(cat:*)") as screen:
        (here.project / "never").write_text("")
        say(screen, "go")
        screen.wait_for("started")
        say(screen, "/processes")
        screen.wait_for(lambda: re.search(r"ended with 0|runs \d+ s, pid \d+ cat < never", screen.text()) is not None)
        say(screen, "/tasks")
        screen.wait_for("Write the parser")
        screen.wait_for("(type to filter")
        screen.press("enter")
        screen.wait_for("by hand")
