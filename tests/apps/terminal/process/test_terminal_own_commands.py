"""Commands of files, the script of the status line, and notifications, on the real process."""

import json
from collections.abc import Callable

from streaming_model import Call
from terminal_room import Room, say


def test_commands_of_all_programs_are_listed_completed_and_sent_with_their_arguments(room: Callable[..., Room]) -> None:
    here = room(("done",))
    files = {
        here.home / "commands/mine.md": "---\ndescription: my own\nargument-hint: WHAT\n---\nExplain $1 and $2, all: $ARGUMENTS\n",
        here.home / ".claude/commands/git/review.md": "Review it.\n",
        here.home / ".codex/prompts/plan.md": "Plan $ARGUMENTS.\n",
        here.home / ".config/opencode/command/open.md": "Open.\n",
        here.project / ".palimpsest/commands/ours.md": "Ours.\n",
        here.project / ".claude/commands/theirs.md": "Theirs.\n",
        here.project / ".opencode/command/third.md": "Third.\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with here.terminal(rows=60) as screen:
        say(screen, "/help")
        screen.wait_for("y, a, n: ")
        shown = [line for line in screen.scrollback() if line.endswith(("(user)", "(project)"))]
        assert shown == [
            "· /mine WHAT: my own (user)",
            "· /git:review: Review it. (user)",
            "· /plan [arguments]: Plan $ARGUMENTS. (user)",
            "· /open: Open. (user)",
            "· /ours: Ours. (project)",
            "· /theirs: Theirs. (project)",
            "· /third: Third. (project)",
        ]
        screen.type("/git:")
        screen.wait_for("/git:review  Review it.")
        screen.press("ctrl-c")
        say(screen, '/mine "the parser" tests')
        screen.wait_for("done")
        assert 'Explain the parser and tests, all: \\"the parser\\" tests' in json.dumps(here.model.asked[0]["messages"])


def test_commands_inside_of_a_text_run_for_the_users_own_files_only(room: Callable[..., Room]) -> None:
    here = room(("one answer",), ("another answer",))
    for folder in (here.home / "commands", here.project / ".palimpsest/commands"):
        folder.mkdir(parents=True)
    (here.home / "commands/own.md").write_text("State: !`echo of the user; touch made-by-user`\n")
    (here.project / ".palimpsest/commands/theirs.md").write_text("State: !`touch made-by-project`\n")
    with here.terminal() as screen:
        say(screen, "/own")
        screen.wait_for("one answer")
        say(screen, "/theirs")
        screen.wait_for("another answer")
    assert (here.project / "made-by-user").exists()
    assert not (here.project / "made-by-project").exists()
    assert "State: of the user" in str(here.model.asked[0]["messages"])
    assert "State: (run `touch made-by-project` with bash and use its output)" in str(here.model.asked[1]["messages"])


def test_the_status_line_is_that_of_the_users_script_and_changes_after_a_turn(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    script = "cat > given.json; echo 'turns:' $(ls *.turn 2>/dev/null | wc -l); echo second line"
    (here.home / "config.toml").write_text(f'[memory]\njobs = "off"\n[terminal]\nstatus_command = {json.dumps(script)}\n')
    with here.terminal(ready="turns: 0") as screen:
        screen.wait_for(lambda: screen.lines()[-1:] == ["turns: 0"])
        (here.project / "one.turn").write_text("")
        say(screen, "go")
        screen.wait_for("turns: 1")
        given = json.loads((here.project / "given.json").read_text())
        assert given["model"] == {"id": "claude-sonnet-4-6", "display_name": "claude-sonnet-4-6"}
        assert given["workspace"] == {"current_dir": str(here.project), "project_dir": str(here.project)}
        assert given["cost"]["total_cost_usd"] > 0


def test_a_script_that_hangs_ends_in_time_and_is_said(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    (here.home / "config.toml").write_text('[terminal]\nstatus_command = "cat /dev/zero"\nstatus_seconds = 0.3\n')
    with here.terminal(ready="status_command: it took more than 0.3 seconds") as screen:
        say(screen, "go")
        screen.wait_for("answer")


def test_a_user_who_is_away_is_notified_of_questions_and_ends_in_every_way(room: Callable[..., Room]) -> None:
    asks = (Call("bash", {"command": "touch made"}),)
    here = room(("no news",), asks, ("first end",), asks, ("second end",))
    ways = '[terminal]\nnotify = "terminal"\nnotify_seconds = 3600\nnotify_command = "cat >> notified.jsonl; echo >> notified.jsonl"\n'
    (here.home / "config.toml").write_text(f'[memory]\njobs = "off"\n{ways}')

    def notified() -> list[tuple[str, str, str]]:
        path = here.project / "notified.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []
        return [(each["event"], each["message"], each["cwd"]) for each in found]

    expected = [("question", "bash needs your permission", str(here.project)), ("turn_ended", "the agent is done", str(here.project))]
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("no news")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert (notified(), b"\x1b]9;" in screen.raw) == ([], False)
        say(screen, "/config terminal.notify_seconds 0.001")
        screen.wait_for("it holds now")
        say(screen, "ask me")
        screen.wait_for(lambda: b"\x1b]9;bash needs your permission\x07" in screen.raw)
        screen.wait_for("y  yes, once")
        screen.wait_for(lambda: notified() == expected[:1])
        screen.type("y")
        screen.wait_for(lambda: b"\x1b]9;the agent is done\x07" in screen.raw)
        screen.wait_for(lambda: notified() == expected)
        assert screen.raw.count(b"\x07") == 2
        say(screen, "/config terminal.notify bell")
        screen.wait_for('terminal.notify = "bell"')
        say(screen, "ask me again")
        screen.wait_for(lambda: screen.raw.count(b"\x07") == 3)
        assert screen.raw.count(b"\x1b]9;") == 2
        screen.wait_for(lambda: notified() == [*expected, expected[0]])
