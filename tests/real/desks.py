"""Users of Claude Code and Codex, each with a project, a home, and a scripted model."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npm_programs import pal_command, run_pal, user_variables
from scripted_api import ScriptedApi

MODEL = "claude-sonnet-4-6"
_CODEX_CONFIGURATION = """model = "gpt-5.5"
model_provider = "scripted"
model_auto_compact_token_limit = 5000

[model_providers.scripted] # on the loopback
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


def run_agent(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run an agent to its end; it must not fail."""
    nothing = subprocess.DEVNULL
    done = subprocess.run(command, cwd=folder, env=variables, stdin=nothing, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


class ClaudeDesk:
    """A user of Claude Code."""

    def __init__(self, program: Path, folder: Path, api: ScriptedApi) -> None:
        self.program, self.api = program, api
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        self.home.mkdir()
        variables = user_variables(self.home, folder / "pal")
        self.variables = variables | {
            "PATH": f"{program.parent}{os.pathsep}{variables['PATH']}",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def pal(self, *words: str) -> str:
        """Run a command of pal in the project, and return what it printed."""
        return run_pal(self.project, self.variables, *words)

    def claude(self, *words: str) -> list[dict[str, Any]]:
        """Run a prompt to its end, and return the requests that the model got."""
        before = len(self.api.requests)
        run_agent([str(self.program), *self.options, *words], self.project, self.variables)
        return self.api.requests[before:]

    def wrapped(self, mode: str, *words: str) -> list[str]:
        """The command that runs a prompt behind a gateway of its own."""
        return [*pal_command(), "wrap", "claude", "--mode", mode, "--", *self.options, *words]

    @property
    def options(self) -> list[str]:
        """The options of every prompt."""
        return ["-p", "--model", MODEL, "--permission-mode", "bypassPermissions"]


class CodexDesk:
    """A user of Codex."""

    def __init__(self, program: Path, folder: Path, api: ScriptedApi) -> None:
        self.program, self.api = program, api
        self.project, self.config = folder / "project", folder / "home" / ".codex" / "config.toml"
        self.project.mkdir()
        self.config.parent.mkdir(parents=True)
        self.config.write_text(_CODEX_CONFIGURATION.format(url=api.url))
        variables = user_variables(folder / "home", folder / "pal")
        self.variables = variables | {"PATH": f"{program.parent}{os.pathsep}{variables['PATH']}", "SCRIPTED_KEY": "scripted"}

    def pal(self, *words: str) -> str:
        """Run a command of pal in the project, and return what it printed."""
        return run_pal(self.project, self.variables, *words)

    def codex(self, *words: str, trust: bool = True) -> list[dict[str, Any]]:
        """Run a prompt to its end, and return the requests that the model got; with `trust` as if the user had accepted the hooks."""
        before = len(self.api.requests)
        trusted = ["--dangerously-bypass-hook-trust"] if trust else []
        run_agent([str(self.program), *self.options, *trusted, *words], self.project, self.variables)
        return self.api.requests[before:]

    @property
    def options(self) -> list[str]:
        """The command and the options of every prompt."""
        return ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
