"""`pal -p` as a process under a profile of Codex, its model on the loopback with OpenAI Responses; every request is kept whole."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from started_pal import run_pal
from wire_server import Said, wire_server

CARDS = """\
[cards.big]
like = "gpt-5.2-codex"
provider = "lab"
window = 272_000

[cards.small]
like = "gpt-5.2-codex"
provider = "lab"
window = 200_000

[cards.wordy]
like = "gpt-5.2-codex"
provider = "lab"
wire = "chat"
"""


class LiveCodex:
    """One session of the real agent in a project of its own, in a fresh home; each turn is a process that resumes it."""

    def __init__(self, folder: Path, profile: str, *, model: str = "big", config: str = "", **environment: str) -> None:
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        self.home.mkdir()
        (self.home / "cards.toml").write_text(CARDS)
        self._config = config
        self._folder = folder
        self._profile = profile
        self._environment = environment
        self._model = model
        self._started = False
        self.errors = ""
        self.output = ""
        self.paths: list[str] = []

    def turn(
        self,
        prompt: str,
        *replies: Said,
        words: tuple[str, ...] = (),
        mode: str = "auto",
        code: int = 0,
        model: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Work on a prompt, and return the bodies of the requests. The model is named again only if it is another one."""
        self._environment = {**self._environment, **(environment or {})}
        with wire_server(*replies) as server:
            reached = "".join(f'[providers.{name}]\nbase_url = "{server.url}/v1"\napi_key_env = "KEY"\n' for name in ("lab", "openai"))
            (self.home / "config.toml").write_text(f"{self._config}\n{reached}")
            named = ["--model", model or self._model] if model or not self._started else []
            first = [] if self._started else ["--profile", self._profile]
            goes_on = ["-c"] if self._started else []
            done = self.pal(*first, *named, "--mode", mode, *goes_on, *words, "-p", prompt)
        self.output, self.errors = done.stdout, done.stderr
        assert done.returncode == code, done.stderr
        self._started = True
        self.paths = [path for path, _ in server.requests]
        return [body for _, body in server.requests]

    def pal(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `pal` with these words in the project."""
        own = {
            "HOME": str(self._folder),
            "PAL_HOME": str(self.home),
            "PAL_SANDBOX": "off",
            "KEY": "key",
            "PAL_OFFLINE": "",
            "PAL_RETRIES": "0",
        }
        return run_pal(words, cwd=self.project, env={**os.environ, **own, **self._environment})


def using(tool: str, *, prompt: int = 1_000, **args: Any) -> Said:
    """A reply that calls a function, and reports that its request had so many tokens."""
    return Said(calls=((tool, json.dumps(args)),), prompt=prompt)


def custom(tool: str, text: str, *, prompt: int = 1_000) -> Said:
    """A reply that calls a free-form tool with a text."""
    return Said(items=({"type": "custom_tool_call", "name": tool, "input": text},), prompt=prompt)


def messages(request: Any) -> list[tuple[str, str]]:
    """Role and text of each text part of the messages of a request, in order."""
    found = [item for item in request["input"] if item["type"] == "message"]
    return [(item["role"], part["text"]) for item in found for part in item["content"] if "text" in part]


def outputs(request: Any) -> list[Any]:
    """The outputs of calls in a request, in order."""
    return [item["output"] for item in request["input"] if item["type"].endswith("_call_output")]
