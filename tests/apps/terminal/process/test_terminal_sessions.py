"""Sessions of terminals on real processes: found, resumed, followed by a second terminal, and taken over."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from terminal_room import Room, say

READ_ONLY = "read-only: another terminal has this session"


def sessions(here: Room) -> list[str]:
    return sorted(path.stem for path in (here.home / "sessions").glob("*.jsonl"))


def test_a_second_terminal_follows_read_only_and_goes_on_when_the_first_ends(room: Callable[..., Room]) -> None:
    here = room(("first answer",), ("second answer",), ("third answer",))
    with here.terminal() as first:
        say(first, "one")
        first.wait_for("first answer")
        with here.terminal("--continue", ready=READ_ONLY) as second:
            second.wait_for("first answer")
            say(second, "from the second")
            second.wait_for("another terminal has this session; /takeover asks for it")
            second.wait_for(lambda: second.lines()[-2] == "❯ from the second")
            say(first, "two")
            second.wait_for("second answer")
            second.wait_until_quiet()
            assert [line for line in second.scrollback() if line in ("❯ one", "first answer", "❯ two", "second answer")] == [
                *("❯ one", "first answer"),
                *("❯ two", "second answer"),
            ]
            first.press("ctrl-d")
            assert first.wait_for_end() == 0
            second.wait_for("the other terminal has ended")
            second.press("enter")
            second.wait_for("third answer")
            assert "from the second" in str(here.model.asked[2]["messages"])
            assert second.text().count("second answer") == 1


def test_a_followed_session_goes_on_in_a_copy_and_the_first_terminal_keeps_its_own(room: Callable[..., Room]) -> None:
    here = room(("first answer",), ("answer in the copy",), ("second answer",))
    with here.terminal() as first:
        say(first, "one")
        first.wait_for("first answer")
        with here.terminal("--continue", ready=READ_ONLY) as second:
            second.wait_for("first answer")
            say(second, "/cost")
            second.wait_for("/takeover asks for it, /fork goes on in a")
            say(second, "/fork")
            second.wait_for(", a copy of")
            say(second, "in the copy")
            second.wait_for("answer in the copy")
            # What was followed stands on the screen once.
            assert second.text().count("first answer") == 1
            say(first, "in the first")
            first.wait_for("second answer")
        said = [[message["content"] for message in asked["messages"] if message["role"] == "user"] for asked in here.model.asked]
        assert ("in the copy" in str(said[1]), "in the copy" in str(said[2]), "one" in str(said[1])) == (True, False, True)


def test_a_session_is_asked_for_refused_and_then_given_away(room: Callable[..., Room]) -> None:
    here = room(("first answer",), ("answer in the second",))
    with here.terminal() as first:
        say(first, "one")
        first.wait_for("first answer")
        with here.terminal("--continue", ready=READ_ONLY) as second:
            say(second, "/takeover")
            first.wait_for("Another terminal asks for this session.")
            first.press("enter")
            second.wait_for("the other terminal keeps the session")
            first.wait_for(lambda: "keep it here" not in first.text())
            say(second, "/takeover")
            first.wait_for("❯ no, keep it here")
            first.press("down", "enter")
            second.wait_for(lambda: "of 200k" in second.lines()[-1])
            first.wait_for(READ_ONLY)
            say(second, "here now")
            second.wait_for("answer in the second")
            first.wait_for("answer in the second")


def test_the_list_of_sessions_has_titles_without_a_model_previews_and_a_search_in_texts(room: Callable[..., Room]) -> None:
    here = room(("the walrus answers",), ("the other answers",))
    for message in ("Where is the parser?", "Another topic."):
        with here.terminal() as screen:
            say(screen, message)
            screen.wait_for("answers")
            screen.press("ctrl-d")
            assert screen.wait_for_end() == 0
    with here.terminal() as screen:
        say(screen, "/resume")
        screen.wait_for("Which session?")
        screen.wait_for("❯ Another topic.")
        screen.wait_for("· the other answers")
        screen.type("walrus")
        screen.wait_for("· the walrus answers")
        screen.press("enter")
        screen.wait_for(lambda: "the walrus answers" in screen.scrollback() and "Which session?" not in screen.text())
        assert [line for line in screen.scrollback() if "Where is the parser?" in line][-1] == "❯ Where is the parser?"


@pytest.mark.long
def test_a_session_of_thousands_of_turns_is_open_within_a_second(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from palimpsest.core.events import ModelReplied, TurnEnded, UserSaid\nfrom palimpsest.core.items import Text\n"
        "from palimpsest.stores.home import Home\n"
        "log = FolderHome(Path(sys.argv[1])).new(sys.argv[2], 'claude-sonnet-4-6')\n"
        "for number in range(3000):\n"
        "    log.append(UserSaid((Text(f'question {number} ' + 'word ' * 50),)))\n"
        "    log.append(ModelReplied((Text(f'answer {number}'),), stop='done'), foreign=True)\n"
        "    log.append(TurnEnded('done'))\n"
        "log.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(here.home), str(here.project)], check=True, timeout=120)
    with here.terminal("--continue") as screen:
        screen.press("ctrl-d")
        assert screen.wait_for_end(60) == 0

    def seconds_until(shown: str, *options: str) -> float:
        begun = time.monotonic()
        with here.terminal(*options, ready=shown) as screen:
            took = time.monotonic() - begun
            assert "answer 2000" not in screen.text()
            screen.press("ctrl-d")
            screen.wait_for_end()
        return took

    resumed = min(seconds_until("answer 2999", "--continue") for _ in range(3))
    fresh = min(seconds_until("of 200k") for _ in range(3))
    assert resumed - fresh < 1.0


def test_the_footer_shows_what_every_command_says_that_the_session_cost(room: Callable[..., Room]) -> None:
    here = room(("first answer",), ("second answer",))
    with here.terminal(columns=140) as screen:
        for text, answer in (("one", "first answer"), ("two", "second answer")):
            say(screen, text)
            screen.wait_for(answer)
        screen.wait_until_quiet()
        (footer,) = re.findall(r"\$[0-9.]+", screen.lines()[-1])
        (session,) = sessions(here)

        said = {}
        for name in ("sessions", "agents"):
            command = [sys.executable, "-m", "pal.cli", name, *([session] if name == "agents" else []), "--json"]
            printed = subprocess.run(command, env=here.environment(), cwd=here.project, capture_output=True, check=True).stdout
            (row,) = json.loads(printed)
            said[name] = row["cost_usd"]
        # Two calls of 1,000 tokens and 50 of reply each.
        assert (footer, said) == ("$0.0075", dict.fromkeys(said, pytest.approx(2 * (1_000 * 3 + 50 * 15) / 1e6)))
