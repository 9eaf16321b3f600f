"""The system prompt of Claude Code: guidance for the session, language, output style and scratchpad, fed by settings."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_agent import LiveAgent, results, using

CONFIG = '[context]\nlanguage = "Deutsch"\noutput_style = "terse"\nscratchpad = true\n[memory]\njobs = "off"\n'


def prepared(folder: Path, profile: str, config: str = CONFIG) -> LiveAgent:
    """An agent with settings and a style of the user."""
    agent = LiveAgent(folder, profile)
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(config)
    styles = folder / ".claude" / "output-styles"
    styles.mkdir(parents=True)
    (styles / "terse.md").write_text("---\nname: terse\ndescription: short\n---\n\nUse five words.\n")
    return agent


def sections(request: Any, *titles: str) -> list[str]:
    """The blocks of the system prompt that begin with these titles, in their order."""
    return [block["text"] for block in request["system"] if block["text"].startswith(titles)]


@pytest.mark.states("SG-13")
@pytest.mark.parametrize("profile", ["claude-code", "claude-code-2.1.325"])
def test_language_style_and_scratchpad_are_in_the_system_prompt_over_turns_and_a_resume(tmp_path: Path, profile: str) -> None:
    agent = prepared(tmp_path, profile)
    asked = agent.turn("go", using("write", path="x.txt", content="1"), ("ok",))
    language, style, scratch = sections(asked[0], "# Language", "# Output style", "# Scratchpad")
    assert language == (
        "# Language\nAnswer in Deutsch, also in explanations and questions. Code, commands, paths and identifiers stay as they are."
    )
    assert style == "# Output style: terse\nUse five words."
    path = Path(next(word.rstrip(",") for word in scratch.split() if word.endswith("scratchpad,")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    later = agent.turn("on", using("write", path=str(path / "try.py"), content="print(1)"), ("done",))
    assert (path / "try.py").read_text() == "print(1)"
    assert "try.py" in results(later[-1])[-1]
    assert [request["system"] for request in (*asked, *later)] == [asked[0]["system"]] * 4


@pytest.mark.states("SG-13")
def test_guidance_names_the_tools_that_the_session_has_and_without_settings_nothing_else_is_added(tmp_path: Path) -> None:
    asked = LiveAgent(tmp_path, "claude-code").turn("go", ("ok",))
    (guidance,) = sections(asked[0], "# Session-specific guidance", "# Language", "# Output style", "# Scratchpad")
    assert [line.count("`") > 0 for line in guidance.splitlines()[1:]] == [True] * 4
    measured = LiveAgent(tmp_path / "measured", "claude-code-2.1.325").turn("go", ("ok",))
    assert sections(measured[0], "# Session-specific guidance", "# Language", "# Output style", "# Scratchpad") == []


@pytest.mark.states("SG-13")
@pytest.mark.parametrize(
    ("profile", "config", "message"),
    [
        (
            "claude-code",
            'output_style = "nonesuch"',
            "there is no output style 'nonesuch': it can be default, explanatory, learning, or a file",
        ),
        ("claude-code", 'output_style = "../x"', "PAL_OUTPUT_STYLE is '../x'; give the name of a style, not a path"),
        ("palimpsest", 'language = "Deutsch"', "context.language means nothing under the profile palimpsest"),
        ("codex", "scratchpad = true", "context.scratchpad means nothing under the profile codex"),
    ],
)
def test_a_setting_that_can_mean_nothing_is_refused_at_the_start(tmp_path: Path, profile: str, config: str, message: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f"[context]\n{config}\n")
    (tmp_path / "script").write_text('"hi"\n')
    own = {"HOME": str(tmp_path), "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(tmp_path / "script")}
    command = [sys.executable, "-m", "pal.cli", "-p", "go", "--profile", profile]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, message in done.stderr, done.stdout) == (2, True, ""), done.stderr
