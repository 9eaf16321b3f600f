"""The business state of a task for people who use `pal`: declared in the settings, moved by an option, by hooks and by the model."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_server import Model, model_saying

CONFIG = """
[states]
names = { clarify = "Ask until the wish is clear; change nothing.", build = "The change is being made.", review = "Only comment." }
moves = { clarify = ["build"], build = ["review"], review = ["build"] }
"""
HOOK = """
[[hooks]]
moment = "user_prompt"
name = "state"
command = "grep -q done && echo '{\\"state\\": \\"review\\"}' || true"
"""
CLARIFY, BUILD, REVIEW = (
    f"<business_state>{text}</business_state>"
    for text in (
        "clarify — Ask until the wish is clear; change nothing.",
        "build — The change is being made.",
        "review — Only comment.",
    )
)


class Project:
    """`pal -p` in a project, with a model on the loopback."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root = folder / "home", folder / "project"
        self.home.mkdir()
        self.root.mkdir()

    def __call__(self, model: Model, *words: str) -> subprocess.CompletedProcess[str]:
        own = {"PAL_HOME": str(self.home), "PAL_RETRIES": "0", "PAL_SANDBOX": "off", **model.environment}
        return subprocess.run(
            [sys.executable, "-m", "pal.cli", *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            check=False,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def stated(request: Any) -> list[str]:
    """The statements of the state in a request, in order."""
    texts = [block["text"] for message in request["messages"] for block in message["content"] if block["type"] == "text"]
    return [line for text in texts for line in text.splitlines() if "<business_state>" in line]


@pytest.mark.states("SG-68")
def test_the_state_of_the_settings_is_stated_once_and_again_when_an_option_or_a_hook_moves_it(project: Project) -> None:
    (project.home / "config.toml").write_text(CONFIG)
    with model_saying("ok") as model:
        assert project(model, "-p", "hello").returncode == 0
        assert project(model, "-p", "go on", "--continue").returncode == 0
        assert project(model, "-p", "make it", "--continue", "--state", "build").returncode == 0
        assert [stated(request) for request in model.asked] == [[CLARIFY], [CLARIFY], [CLARIFY, BUILD]]
        (project.home / "config.toml").write_text(CONFIG + HOOK)
        for prompt in ("not yet", "I am done"):
            assert project(model, "-p", prompt, "--continue").returncode == 0
        assert [stated(request) for request in model.asked[3:]] == [[CLARIFY, BUILD], [CLARIFY, BUILD, REVIEW]]
        wrong = HOOK.replace("review", "shipped")
        (project.home / "config.toml").write_text(CONFIG + wrong)
        done = project(model, "-p", "done again", "--continue")
        assert (done.returncode, stated(model.asked[-1])) == (0, [CLARIFY, BUILD, REVIEW])
        assert "the hook state (user_prompt) cannot move the task: there is no state 'shipped'" in done.stderr


@pytest.mark.states("SG-68")
def test_the_model_gets_the_tool_only_if_the_settings_say_so(project: Project) -> None:
    with model_saying("ok") as model:
        for more in ("", "by_model = true\n"):
            (project.home / "config.toml").write_text(CONFIG + more)
            assert project(model, "-p", "hello").returncode == 0
        offered = [[tool for tool in request["tools"] if tool["name"] == "set_state"] for request in model.asked]
    assert offered[0] == []
    ((tool,),) = offered[1:]
    assert tool["input_schema"]["properties"]["state"]["enum"] == ["clarify", "build", "review"]


@pytest.mark.states("SG-68")
@pytest.mark.parametrize(
    ("config", "words", "why"),
    [
        (CONFIG, ("--state", "review"), "'clarify' cannot become 'review'; it can become build"),
        (CONFIG, ("--state", "shipped"), "there is no state 'shipped'; declared are clarify, build, review"),
        (CONFIG, ("--profile", "codex"), "the profile 'codex' does not state the business state; use palimpsest or classroom"),
        (CONFIG + 'start = "ready"\n', (), "there is no state 'ready'; declared are clarify, build, review"),
        ('[states]\nstart = "ready"\n', (), "without states.names the other keys of [states] mean nothing"),
        ("", ("--state", "build"), "there are no states; declare them as states.names in the settings"),
        ('[states]\nnames = "build"\n', (), "names must be a table of at most 50 texts, each a line of at most 300 characters"),
    ],
)
def test_a_state_that_cannot_be_is_refused_before_anything_is_sent(project: Project, config: str, words: tuple[str, ...], why: str) -> None:
    (project.home / "config.toml").write_text(config)
    with model_saying("ok") as model:
        done = project(model, "-p", "hello", *words)
        assert (done.returncode, model.asked) == (2, [])
    assert why in done.stderr
    assert list(project.home.glob("sessions/*.jsonl")) == []
