"""Commands of the terminal on the real process: edits, items, notes, exports, instructions and colours."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pty_screen import PtyScreen
from streaming_model import Call, Gate, Part
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


def leave_list(screen: PtyScreen) -> None:
    """Close the list that is open; right after a choice it may not be there yet."""
    screen.wait_for("(type to filter")
    # A line that is shown above takes the list off the screen for a moment.
    screen.wait_until_quiet()
    title = next(line for line in reversed(screen.lines()) if "(type to filter" in line)
    screen.press("esc")
    screen.wait_for(lambda: title not in screen.lines())


def test_a_fold_is_one_line_with_its_saving_and_audit_walks_the_edits_and_undoes_one(room: Callable[..., Room]) -> None:
    with folded(room) as (here, screen, edit):
        lines = [line for line in screen.scrollback() if line.startswith("▾")]
        assert len(lines) == 1
        assert re.fullmatch(rf"▾ fold {edit}: \d+k? → \d+k? tokens, saves \$[\d.]+ a call, saves \$[\d.]+ at once \(Ctrl-T\)", lines[0])
        screen.press("ctrl-t")
        screen.wait_for(f"❯ fold {edit}:")
        leave_list(screen)
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
        leave_list(screen)
        screen.wait_for(f"edit {edit} was undone")
        say(screen, "/cost")
        screen.wait_for("· together $")
        # An edit that was undone saves nothing.
        assert "edits of the context" not in screen.text()
        say(screen, "go on")
        screen.wait_for("after the fold")
        assert "1: line 700 of the file" in str(here.model.asked[-1]["messages"])


def test_a_list_of_nothing_is_one_line_that_says_so(room: Callable[..., Room]) -> None:
    with room().terminal(rows=40) as screen:
        lines = {
            "/cost turns": "· there are no turns yet",
            "/audit": "· there are no edits: the model sees the whole conversation",
            "/processes": "· no process has run in the background",
            "/agents": "· this session has no sub-agents",
            "/tasks": "· there are no tasks",
            "/memory": "· there are no notes; /memory add TEXT adds one",
        }
        for line, answer in lines.items():
            say(screen, line)
            screen.wait_for(answer)
            assert "(type to filter" not in screen.text()


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
        say(screen, "/cost")
        screen.wait_for(
            lambda: re.search(r"2 edits of the context: saved \$[\d.]+ at once, saved about \$0\.\d+ so", screen.text()) is not None
        )


def test_context_walks_the_items_of_the_window_and_p_pins_one(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the answer")
        say(screen, "/context")
        screen.wait_for("Free space")
        screen.wait_for("What fills the window; Enter opens a kind")
        screen.type("user")
        screen.wait_for(lambda: re.search(r"❯ user 9 tokens 0.0% of the window 1 item", screen.text()) is not None)
        screen.press("enter")
        screen.wait_for("Items of the kind user, largest first")
        screen.press("enter")
        screen.wait_for(
            lambda: re.search(r"^\d+\.\d+  user  9 tokens  the question\nthe question$", screen.text(), re.MULTILINE) is not None
        )
        leave_list(screen)
        leave_list(screen)
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
        screen.wait_for("  The tests need a database on port 5433.")
        screen.wait_until_quiet()
        say(screen, "/memory")
        screen.wait_for(f"❯ {name} project The tests")
        screen.type("f")
        screen.wait_for(f"Delete {name} for good?")
        screen.press("down", "enter")
        screen.wait_for(f"note {name} is forgotten")
        screen.wait_for("there are no notes")
        assert "5433" not in "".join(path.read_text() for path in here.home.rglob("*.md"))


def test_export_writes_every_form_into_the_project(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the answer")
        for form in ("", "markdown", "claude", "codex", "messages", "responses", "chat"):
            say(screen, f"/export {form}".strip())
            screen.wait_for(f"· {form or 'html'} is in")
        say(screen, "/export pdf")
        screen.wait_for("/export takes html, markdown, claude, codex, messages, responses, chat")
        (here.project / "mine.md").write_text("mine")
        say(screen, "/export markdown mine.md")
        screen.wait_for("exists")
    written = {re.sub(r"^session-[^.]+", "", path.name): path.read_text() for path in here.project.glob("session-*")}
    assert sorted(written) == [".chat.json", ".claude.jsonl", ".codex.jsonl", ".html", ".md", ".messages.json", ".responses.json"]
    assert [name for name, text in written.items() if "the question" not in text or "the answer" not in text] == []
    assert (here.project / "mine.md").read_text() == "mine"


@pytest.mark.parametrize(("present", "said"), [("", "Write AGENTS.md in the root"), ("CLAUDE.md", "Read CLAUDE.md and compare it")])
def test_init_lets_the_agent_draft_or_improve_the_instructions(room: Callable[..., Room], present: str, said: str) -> None:
    here = room(("it is written",))
    if present:
        (here.project / present).write_text("Use tabs.\n")
    with here.terminal() as screen:
        say(screen, "/init")
        screen.wait_for("it is written")
        assert said in str(here.model.asked[0]["messages"])


def test_settings_are_shown_checked_and_set(room: Callable[..., Room]) -> None:
    here = room(("unused",))
    with here.terminal(PAL_RETRIES="2") as screen:
        say(screen, "/theme light")
        screen.wait_for("the theme is light, also for later sessions")
        say(screen, "/theme pink")
        screen.wait_for("/theme takes dark or light")
        say(screen, "/config")
        screen.wait_for("Settings  (type to filter")
        screen.type("notify_seconds")
        screen.wait_for("❯ terminal.notify_seconds = 10.0 default")
        screen.press("enter")
        screen.wait_for("❯ /config terminal.notify_seconds")
        screen.type("3.5")
        screen.press("enter")
        screen.wait_for("terminal.notify_seconds = 3.5 from")
        say(screen, "/config terminal.notify loud")
        screen.wait_for("terminal.notify must be one of off, bell,")
        say(screen, "/config modle x")
        screen.wait_for("the key 'modle' is not known; the nearest known is mode or model")
        say(screen, "/config retries 5")
        screen.wait_for("but PAL_RETRIES wins: retries = 2")
        say(screen, "/config providers.anthropic.api_key sk-ant-1")
        screen.wait_for("providers.anthropic.api_key is a secret")
        # Commands that print may run an event loop of their own.
        say(screen, "/mcp connect")
        screen.wait_for("no MCP servers are configured")
        screen.wait_for(lambda: "of 200k" in screen.lines()[-1])
        say(screen, "/hooks runs")
        screen.wait_for("no hook has run in this session")
        screen.wait_for(lambda: "of 200k" in screen.lines()[-1])
        # The command has ended, and the input is there again.
        screen.wait_until_quiet()
        screen.type("/config terminal.theme d")
        screen.wait_for(lambda: "  dark" in screen.lines())
    assert (here.home / "config.toml").read_text() == (
        'retries = 5\n[memory]\njobs = "off"\n\n[terminal]\nnotify_seconds = 3.5\ntheme = "light"\n'
    )


def test_another_model_is_chosen_by_its_price_and_holds_after_the_turn_that_runs(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room((gate, "from the first"), ("from the second",))
    with here.terminal(rows=40) as screen:
        say(screen, "go")
        screen.wait_for(gate.reached.is_set)
        say(screen, "/model claude-none")
        screen.wait_for("no card is known for the model 'claude-none'; did you mean claude-")
        say(screen, "/model")
        screen.wait_for("❯ claude-sonnet-4-6 200k $3 in, $15 out a million tokens (now)")
        screen.type("opus-4-1")
        screen.wait_for("❯ claude-opus-4-1 200k $15 in, $75 out a million tokens")
        screen.wait_for("tokens into another cache: about $")
        screen.press("enter")
        screen.wait_for("it holds from the end of this turn on")
        gate.opened.set()
        screen.wait_for("model claude-opus-4-1, was claude-sonnet-4-6")
        say(screen, "go on")
        screen.wait_for("from the second")
        assert [asked["model"] for asked in here.model.asked] == ["claude-sonnet-4-6", "claude-opus-4-1"]
        say(screen, "/profile codex")
        screen.wait_for("profile codex, was palimpsest")
        say(screen, "/profile codex")
        screen.wait_for("the profile is codex already")
        say(screen, "/mode sometimes")
        screen.wait_for("sometimes")
        say(screen, "/mode plan")
        screen.wait_for("mode plan, was ask")
        say(screen, "/cost")
        screen.wait_for("· claude-opus-4-1 turn: 1 call, 1000 in (0% from the cache), 50 out, $0.02")
        screen.wait_for("· together $0.02")
        screen.wait_for("· $0.02 1 call go on")


def test_tasks_processes_and_changed_files_show_details_and_a_process_is_stopped(room: Callable[..., Room]) -> None:
    here = room(
        (Call("task_create", {"subject": "Write the parser", "description": "by hand"}),),
        (Call("write", {"path": "a.txt", "content": "one\ntwo\n"}), Call("bash", {"command": "echo begun; cat never", "background": True})),
        ("started",),
        (Call("edit", {"path": "a.txt", "old": "two", "new": "2"}),),
        ("changed",),
    )
    os.mkfifo(here.project / "never")
    with here.terminal("--mode", "edits", "--allow", "bash(echo:*)", "--allow", "bash(cat:*)", rows=40) as screen:
        for message, answer in (("go", "started"), ("go on", "changed")):
            say(screen, message)
            screen.wait_for(answer)
            screen.wait_for(lambda: "working" not in screen.lines()[-1])
        screen.wait_for(lambda: screen.lines()[-1].endswith(" · 1 process"))
        say(screen, "/processes")
        screen.wait_for(lambda: re.search(r"❯ p1 runs \d+ s, pid \d+ echo begun; cat never\n  begun", screen.text()) is not None)
        pid = int(re.findall(r"pid (\d+)", screen.text())[-1])
        screen.press("enter")
        screen.wait_for(lambda: "begun" in screen.scrollback()[: -len(screen.lines())] + screen.lines()[:-6])
        screen.type("s")
        screen.wait_for("❯ p1 ended with -15: stopped by the user")
        assert not Path("/proc", str(pid)).exists()
        leave_list(screen)
        screen.wait_for("· process p1 ended with -15: stopped by the user")
        say(screen, "/processes p9")
        screen.wait_for("there is no process 'p9' of this run")
        say(screen, "/diff")
        screen.wait_for("❯ turn 2 a.txt changed +1 -1")
        screen.wait_for("  turn 1 a.txt created +2 -0")
        screen.press("enter")
        screen.wait_for("● a.txt (+1 -1)\n  1   one\n  2 - two\n  2 + 2\n")
        leave_list(screen)
        say(screen, "/diff 7")
        screen.wait_for("there is no turn 7; this session has 2")
        say(screen, "/tasks")
        screen.wait_for("Write the parser")
        screen.wait_for("Tasks  (type")
        screen.press("enter")
        screen.wait_for("by hand")


def test_a_command_that_is_typed_before_the_session_is_open_runs_once_it_is(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal(ready="❯") as screen:
        screen.type("/context")
        screen.press("enter")
        screen.wait_for("Free space: 160k tokens")
        assert "no session is open" not in screen.text()
