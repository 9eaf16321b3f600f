"""What the user gives to the profiles of Codex beside words: skills, pictures, shell lines, and a plan that is asked for."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from live_codex import CARDS, LiveCodex, messages
from pty_screen import PtyScreen
from terminal_room import PAL
from wire_server import Said, wire_server

BOTH = ("codex", "codex-0.166")
SKILL = "---\nname: deploy\ndescription: Ship it.\n---\nRun make ship.\n"
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PLAN = "I looked.\n<proposed_plan>\n1. Write it.\n2. Test it.\n</proposed_plan>"


def parts(request: Any, text: str) -> list[str]:
    """What stands in the message that begins with a text, image data left out."""
    message = next(item for item in request["input"] if item["type"] == "message" and item["content"][0].get("text") == text)
    return [part.get("text", part["type"]) for part in message["content"]]


@pytest.mark.states("SG-30")
@pytest.mark.parametrize("profile", BOTH)
def test_a_skill_that_is_mentioned_stands_whole_behind_the_message_for_that_turn(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    path = agent.project / ".codex/skills/deploy/SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(SKILL)
    body = f"<skill>\n<name>deploy</name>\n<path>{path}</path>\n{SKILL}\n</skill>"
    [first] = agent.turn("use $deploy now", Said("done"))
    assert messages(first)[-2:] == [("user", "use $deploy now"), ("user", body)]
    [second] = agent.turn("use @deploy now", Said("done"))
    documented = profile == "codex"
    assert messages(second)[-1] == ("user", body if documented else "use @deploy now")
    assert second["input"][: len(first["input"])] == first["input"]
    (tmp_path / "note.txt").write_text("$deploy")
    [third] = agent.turn("read this", Said("done"), words=("--file", str(tmp_path / "note.txt")))
    assert not messages(third)[-1][1].startswith("<skill>")


@pytest.mark.states("SG-30")
@pytest.mark.parametrize("profile", BOTH)
def test_a_picture_stands_between_tags_with_its_number(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    for name in ("a.png", "b.png"):
        (agent.project / name).write_bytes(PNG)
    [first] = agent.turn("look", Said("done"), words=("--file", "a.png", "--file", "b.png"))
    tags = ['<image name="[Image #1]">', '<image name="[Image #2]">']
    if profile == "codex-0.166":
        tags = ['<image name=[Image #1] path="a.png">', '<image name=[Image #2] path="b.png">']
    assert parts(first, "look") == ["look", tags[0], "input_image", "</image>", tags[1], "input_image", "</image>"]
    [second] = agent.turn("on", Said("ok"))
    assert second["input"][: len(first["input"])] == first["input"]
    ours = LiveCodex(tmp_path / "ours", "palimpsest")
    (ours.project / "a.png").write_bytes(PNG)
    [plain] = ours.turn("look", Said("done"), words=("--file", "a.png"))
    assert parts(plain, "look") == ["look", "input_image"]


@pytest.mark.states("SG-30")
@pytest.mark.parametrize("profile", BOTH)
def test_a_plan_is_read_from_its_tag_and_shown_without_it(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    [first] = agent.turn("plan it", Said(PLAN), mode="plan", words=("--json",))
    assert any("<proposed_plan>" in text for role, text in messages(first) if role == "developer")
    assert json.loads(agent.output)["plan"] == "1. Write it.\n2. Test it."
    agent.turn("once more", Said(PLAN), mode="plan")
    assert agent.output == "I looked.\n1. Write it.\n2. Test it.\n"
    agent.turn("thanks", Said("fine"), words=("--json",))
    assert json.loads(agent.output)["plan"] is None


@pytest.mark.states("SG-30")
@pytest.mark.parametrize("profile", BOTH)
def test_a_shell_line_of_the_user_reaches_the_model_with_its_output_and_so_does_another_way_of_working(
    profile: str, tmp_path: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "cards.toml").write_text(CARDS)
    with wire_server(Said("seen"), Said("all right")) as server:
        (home / "config.toml").write_text(f'[providers.lab]\nbase_url = "{server.url}/v1"\napi_key_env = "KEY"\n')
        own = {"PAL_HOME": str(home), "HOME": str(home), "PAL_SANDBOX": "off", "KEY": "key", "PAL_OFFLINE": "", "SHELL": "/bin/sh"}
        environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", **own}
        with PtyScreen([*PAL, "--profile", profile, "--model", "big"], cwd=project, env=environment, columns=100, rows=30) as screen:
            screen.wait_for("of 272k")
            screen.type("!printf 'one\\ntwo\\n'; exit 3")
            screen.press("enter")
            screen.wait_for("ended with 3")
            screen.type("what was that?")
            screen.press("enter")
            screen.wait_for("seen")
            screen.type("/mode execute")
            screen.press("enter")
            screen.type("go on")
            screen.press("enter")
            screen.wait_for("all right")
    first, second = (body for _, body in server.requests)
    [stated] = [text for _, text in messages(first) if text.startswith("<user_shell_command>")]
    seconds = stated.partition("Duration: ")[2].partition(" ")[0]
    assert stated == (
        "<user_shell_command>\n<command>\nprintf 'one\\ntwo\\n'; exit 3\n</command>\n<result>\nExit code: 3\n"
        f"Duration: {seconds} seconds\nOutput:\none\ntwo\n\n</result>\n</user_shell_command>"
    )
    assert [role for role, text in messages(first)].count("user") >= 3
    assert second["input"][: len(first["input"])] == first["input"]
    assert any("<collaboration_mode>" in text for _, text in messages(second)[len(messages(first)) :])


@pytest.mark.states("SG-30")
@pytest.mark.parametrize("profile", BOTH)
def test_a_review_that_the_user_asks_for_is_made_apart_and_its_findings_are_stated_once(profile: str, tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "cards.toml").write_text(CARDS)
    with wire_server(Said("hello"), Said("a.py:1 is wrong"), Said("mended"), Said("done")) as server:
        (home / "config.toml").write_text(f'[providers.lab]\nbase_url = "{server.url}/v1"\napi_key_env = "KEY"\n')
        own = {"PAL_HOME": str(home), "HOME": str(home), "PAL_SANDBOX": "off", "KEY": "key", "PAL_OFFLINE": "", "SHELL": "/bin/sh"}
        environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", **own}
        with PtyScreen([*PAL, "--profile", profile, "--model", "big"], cwd=project, env=environment, columns=100, rows=30) as screen:
            screen.wait_for("of 272k")
            for typed, answered in (("hi", "hello"), ("/review the parser", "a.py:1 is wrong"), ("mend it", "mended"), ("go on", "done")):
                screen.type(typed)
                screen.press("enter")
                screen.wait_for(answered)
    first, reviewing, second, third = (body for _, body in server.requests)
    assert messages(reviewing)[-1][1].endswith("Review the parser.")
    context = "The user had the work reviewed: the parser. The results follow; act on them only if the user asks for it."
    inner = f"<context>\n{context}\n</context>\n<action>\nreview\n</action>\n<results>\na.py:1 is wrong\n</results>"
    stated = ("user", f"<user_action>\n{inner}\n</user_action>")
    assert messages(second)[len(messages(first)) :] == [("assistant", "hello"), stated, ("user", "mend it")]
    assert messages(third)[len(messages(second)) :] == [("assistant", "mended"), ("user", "go on")]
