"""OpenCode's reminders, reply reserve and pages of instructions, in `pal -p` and in a terminal."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from live_agent import LiveAgent, texts, using
from pal_runs import Pal
from streaming_model import Spent
from terminal_room import room_of, say

from palimpsest.agent.decision import Mode
from palimpsest.core.errors import BadInput
from palimpsest.peers.opencode import BUILD, BUILDING, PLAN
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.wire.models import card

BOTH = ("opencode", "opencode-1.18")
PLANS, BUILDS = ("user", prompt("opencode/plan")), ("user", prompt("opencode/build"))


def test_the_modes_in_which_files_are_changed_are_all_but_plan() -> None:
    assert {BUILD, *get_args(Mode)} - {PLAN} == BUILDING


@pytest.mark.states("SG-51")
@pytest.mark.parametrize("name", BOTH)
def test_the_reminder_of_build_stands_with_the_last_message_while_a_reply_of_plan_shows(tmp_path: Path, name: str) -> None:
    agent = LiveAgent(tmp_path, name)
    (agent.project / "a.txt").write_text("a\n")
    planned = agent.turn("think", using("read", path="a.txt"), ("a plan",), mode="plan")
    assert [texts(request)[:2] for request in planned] == [[("user", "think"), PLANS]] * 2
    built = agent.turn("do it", using("read", path="a.txt"), ("built",), mode="edits")
    asked = [("user", "think"), ("assistant", "a plan"), ("user", "do it"), BUILDS]
    assert [texts(request) for request in built] == [asked, asked]
    again = agent.turn("more", ("more",), mode="ask")[0]
    assert texts(again) == [*asked[:-1], ("assistant", "built"), ("user", "more"), BUILDS]
    back = agent.turn("think again", ("thought",), mode="plan")[0]
    assert texts(back)[-3:] == [("assistant", "more"), ("user", "think again"), PLANS]
    assert BUILDS not in texts(back)


@pytest.mark.states("SG-51")
def test_without_a_plan_nothing_is_said_of_build(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "opencode")
    assert texts(agent.turn("do it", ("done",), mode="auto")[0]) == [("user", "do it")]
    assert texts(agent.turn("on", ("done",), mode="edits")[0])[-1] == ("user", "on")


@pytest.mark.states("SG-51")
@pytest.mark.states("SG-52")
def test_shift_tab_from_plan_to_an_editing_mode_reminds_of_build_and_summarize_folds(tmp_path: Path) -> None:
    with room_of(tmp_path, ("A plan.",), ("Built.",), ("## Objective: all is well",)) as room:
        options = ("--profile", "opencode", "--mode", "plan", "--model", "claude-sonnet-4-5")
        with room.terminal(*options) as screen:
            say(screen, "think")
            screen.wait_for("A plan.")
            screen.wait_for(lambda: "mode plan" in screen.text() or "plan" in screen.lines()[-1])
            screen.wait_until_quiet()
            screen.press("shift-tab")
            screen.wait_for("mode auto, was plan")
            say(screen, "do it")
            screen.wait_for("Built.")
            screen.wait_until_quiet()
            say(screen, "/summarize")
            screen.wait_for(lambda: len(room.model.asked) == 3)
            screen.wait_until_quiet()
    first, second, summary = room.model.asked
    assert texts(first) == [("user", "think"), PLANS]
    assert texts(second) == [("user", "think"), ("assistant", "A plan."), ("user", "do it"), BUILDS]
    assert "tools" not in summary or not summary["tools"]
    assert texts(summary)[: len(texts(second))] == [*texts(second)]


@pytest.mark.states("SG-52")
@pytest.mark.parametrize("name", BOTH)
def test_requests_ask_for_the_reply_that_the_budget_leaves_room_for(tmp_path: Path, name: str) -> None:
    assert card("claude-sonnet-4-5").reply == 64_000
    levels = {"": (32_000, 168_000), "8000": (8_000, 192_000), "100000": (64_000, 136_000)}
    for number, (given, (reply, usable)) in enumerate(levels.items()):
        environment = {"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": given} if given else {}
        agent = LiveAgent(tmp_path / str(number), name, **environment)
        below = agent.turn("one", ("fine", Spent(new=usable - 51)))
        above = agent.turn("two", ("fine", Spent(new=usable - 49)), ("## Objective: go on",))
        assert [request["max_tokens"] for request in (*below, *above)] == [reply] * 3
        assert profile(name, environment).budget(card("claude-sonnet-4-5")).compact_at == usable + (name == "opencode")


@pytest.mark.states("SG-52")
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("wrong", ["0", "many", "-1"])
def test_a_reply_limit_that_cannot_mean_anything_is_refused(name: str, wrong: str) -> None:
    with pytest.raises(BadInput, match="OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX"):
        profile(name, {"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": wrong})


@pytest.mark.states("SG-52")
@pytest.mark.parametrize("profile_name", [*BOTH, "palimpsest"])
def test_instructions_of_an_address_that_cannot_be_fetched_are_named(tmp_path: Path, profile_name: str) -> None:
    pal, setting = Pal(tmp_path / "home"), "PAL_INSTRUCTIONS" if profile_name == "palimpsest" else "instructions"
    script = tmp_path / "script"
    script.write_text('"fine"\n"fine"\n')
    urls = ["http://127.0.0.1:9/rules.md", "http://[::1]:9/more.md"]
    said = pal("-p", "hi", "--profile", profile_name, PAL_SCRIPT=str(script), **{setting: json.dumps(urls)})
    assert said.exit_code == 0
    assert said.stdout == "fine\n"
    lines = [line for line in said.stderr.splitlines() if "instructions" in line]
    assert lines[0] == f"pal: instructions: {urls[0]} could not be fetched and is not among them: it lies in a private network"
    assert lines[1] == f"pal: instructions: {urls[1]} could not be fetched and is not among them: it lies in a private network"
    assert len(lines) == 2
    again = pal("-c", "-p", "on", "--profile", profile_name, "--json", PAL_SCRIPT=str(script), **{setting: json.dumps(urls)})
    assert [line for line in again.stderr.splitlines() if "instructions" in line] == lines


@pytest.mark.states("SG-53")
def test_a_session_goes_back_to_opencode_with_its_agents_its_work_and_without_reminders(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "opencode")
    (agent.project / "a.txt").write_text("one line\n")
    agent.turn("think", ("a plan",), mode="plan")
    agent.turn("do it", using("read", path="a.txt"), ("built",), mode="edits")
    agent.turn("think again", using("read", path="none.txt"), ("another plan",), mode="plan")
    pal, file = Pal(tmp_path / "home"), tmp_path / "session.json"
    assert pal("export", "last", "--to", "opencode", "--out", str(file)).exit_code == 0
    messages = json.loads(file.read_bytes())["messages"]
    assert [(each["info"]["role"], each["info"]["agent"], [_part(part) for part in each["parts"]]) for each in messages] == [
        ("user", "plan", ["think"]),
        ("assistant", "plan", ["a plan"]),
        ("user", "build", ["do it"]),
        ("assistant", "build", ["read completed"]),
        ("assistant", "build", ["built"]),
        ("user", "plan", ["think again"]),
        ("assistant", "plan", ["read error"]),
        ("assistant", "plan", ["another plan"]),
    ]
    assert pal("import", str(file)).exit_code == 0
    [imported] = [each for each in pal.json("sessions", "--all") if each["origin"] == "opencode"]
    request = json.loads(pal("export", imported["id"], "--to", "messages").stdout)
    assert [text for text in texts(request) if text not in (PLANS, BUILDS)] == [
        *[("user", "think"), ("assistant", "a plan"), ("user", "do it"), ("assistant", "built")],
        *[("user", "think again"), ("assistant", "another plan")],
    ]


def _part(part: dict[str, Any]) -> str:
    text: str = part["text"] if part["type"] == "text" else f"{part['tool']} {part['state']['status']}"
    return text
