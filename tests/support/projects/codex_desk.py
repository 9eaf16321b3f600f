"""A home with finished sessions, in which the real agent runs under a profile of Codex, its model on the loopback."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from wire_server import Said, wire_server

from palimpsest.core.events import Body, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock

HOUR = 3_600_000
MODEL = "gpt-5.2-codex"
SESSION = "20260501-090000-aaaa"
WORK: tuple[Body, ...] = (
    UserSaid((Text("fix the parser, and use tabs"),)),
    ModelReplied((Text("I run the tests.", "assistant"), ToolCall("c1", "bash", '{"command":"pytest -q"}'))),
    ToolReturned(ToolResult("c1", (Text("E  IndentationError: line 7\nAPI_TOKEN=sk-abcdefghijklmnopqrstuvwx"),)), "bash", exit=1),
    ModelReplied((Text("It is fixed.", "assistant"),)),
)
RAW = (
    "---\ndescription: parser\ntask: fix\ntask_group: parser\ntask_outcome: success\nkeywords: parser, tabs\n---\n"
    "### Task 1: parser\n- use tabs"
)
SUMMARY = "# Fixed the parser\n\n## Task 1: parser\nOutcome: success\n1. `pytest -q`: IndentationError: line 7"
HANDBOOK = """# Task Group: parser
scope: the parser of this project

## Task 1: fix the parser, success

### rollout_summary_files

- rollout_summaries/{file} (cwd=/p, updated_at=2026-05-01T09:00:00Z, thread_id=20260501-090000-aaaa)

### keywords

- parser, tabs

### learnings

- run pytest first

## General Tips

- tabs everywhere [Task 1]
"""
PAGE = "## User Profile\n- uses tabs\n\n## General Tips\n- run pytest\n\n## What's in Memory\n### 2026-05-01\n- parser: parser, tabs\n"


class CodexDesk:
    """One home and project; each turn is a process. `asked` are the bodies of all requests so far, in order."""

    def __init__(self, folder: Path, profile: str = "codex", config: str = '[memory]\njobs = "auto"\n') -> None:
        self.project, self.home = folder / "project", folder / "home"
        self._folder, self._profile = folder, profile
        self.project.mkdir()
        self.home.mkdir()
        (self.home / "config.toml").write_text(config)
        self.asked: list[Any] = []
        self.told = ""

    def finished(self, session: str = SESSION, bodies: Iterable[Body] = WORK, *, hours: float = 24.0) -> None:
        """Write a session whose last event was some hours ago."""
        home = FolderHome(self.home, FixedClock(int(time.time() * 1_000 - hours * HOUR)))
        with Log.create(home.store, SessionOpened(session, cwd=str(self.project)), home.clock) as log:
            for body in bodies:
                log.append(body)

    def turn(self, prompt: str, answer: Callable[[Any], Said], *words: str, code: int = 0) -> list[Any]:
        """Run `pal -p` on a prompt, and return the bodies of its requests."""
        with wire_server(Said("unused"), answer=answer) as server:
            done = self.run("--profile", self._profile, "--model", MODEL, "--mode", "auto", *words, "-p", prompt, url=server.url)
        assert done.returncode == code, done.stderr
        self.told = done.stderr
        requests = [body for _, body in server.requests]
        self.asked += requests
        return requests

    def run(self, *words: str, url: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command line in the project."""
        own = {"HOME": str(self._folder), "PAL_HOME": str(self.home), "PAL_SANDBOX": "off", "PAL_RETRIES": "0"}
        model = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "key", "PAL_OFFLINE": ""} if url else {}
        return subprocess.run(
            [sys.executable, "-m", "pal.cli", *words],
            check=False,
            cwd=self.project,
            env={**os.environ, **own, **model},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def file(self, path: str, root: str = "memories") -> str:
        """A file of memory; empty if there is none."""
        place = self.home / "memory" / root / path
        return place.read_text() if place.is_file() else ""

    def files(self, root: str = "memories") -> list[str]:
        """The paths of all files of memory."""
        folder = self.home / "memory" / root
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def phase_of(body: Any) -> str:
    """Which request this is: `one` and `two` of memory, or a `turn`."""
    text = json.dumps(body)
    if "You read one finished session" in text:
        return "one"
    return "two" if "You keep the memory folder of a coding agent" in text else "turn"


def remembered(raw: str = RAW, summary: str = SUMMARY, slug: str | None = "fix parser") -> Said:
    """A reply of stage one."""
    return Said(json.dumps({"rollout_summary": summary, "rollout_slug": slug, "raw_memory": raw}))


def results_of(body: Any) -> list[str]:
    """The outputs of tool calls in a request."""
    return [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
