"""`pal -p` as processes, with tools that join and leave a session: a model that binds its thinking keeps all of it."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import mcp_server
import pytest
from left_out import needless
from live_agent import results
from sent_lists import what_moved

from palimpsest.testing.strict.answers import StrictRequest
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider, calls, says, thinks

SUM = "mcp__normal__add"


class Adder:
    """The strict double as a model that lists files, then adds with the tool of a server if it was told of it, and then says so."""

    def __init__(self, folder: Path) -> None:
        self.double = StrictProvider(self.answer, thinks=False)
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.step = 0
        self.told: list[list[str]] = []

    def answer(self, request: StrictRequest) -> StrictAnswer:
        """The next reply of the model: three to each prompt."""
        if not request.body.get("tools"):
            return "A title"
        self.step += 1
        thought = thinks(f"step {self.step}")
        match self.step % 3:
            case 1:
                return [thought, calls("bash", command=f"echo {self.step}")]
            case 2:
                return [thought, calls(SUM, a=1, b=self.step)]
            case _:
                return [thought, says("done")]

    def connect(self, *, server: bool) -> None:
        """Let the user have a server, or none, from the next process on."""
        file = self.folder / ".config/palimpsest/mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": {"normal": mcp_server.command("normal")} if server else {}}))

    def turn(self, *words: str) -> Any:
        """One process, and what it printed."""
        own = {"HOME": str(self.folder), "PAL_HOME": str(self.folder / "home"), "PAL_SANDBOX": "off", "PAL_RETRIES": "0"}
        asked = {"ANTHROPIC_BASE_URL": self.double.url, "ANTHROPIC_API_KEY": "key", "PAL_OFFLINE": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pal.cli", *words, "--allow", SUM, "--mode", "auto", "--json"],
            check=False,
            cwd=self.project,
            env={**os.environ, **own, **asked},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    @property
    def turns(self) -> list[Any]:
        """The bodies of the requests of the turns."""
        return [body for body in self.double.bodies if body.get("tools")]


def changes(body: Any) -> list[tuple[str, str]]:
    """What a request says of one tool of the server: each change of it, in order."""
    blocks = [block for message in body["messages"] if message["role"] == "system" for block in message["content"]]
    named = [(block["type"], block["tool"]["name"]) for block in blocks if block["type"] != "text"]
    return [(kind, name) for kind, name in named if name == SUM]


@pytest.mark.states("PV-63", "PV-13")
def test_a_server_that_joins_and_leaves_a_session_costs_no_thinking(tmp_path: Path) -> None:
    adder = Adder(tmp_path)
    with adder.double:
        adder.turn("-p", "work", "--model", "claude-opus-5-5")
        adder.connect(server=True)
        adder.turn("-c", "-p", "work with the server")
        adder.connect(server=False)
        adder.turn("-c", "-p", "work without it")
        adder.turn("--fork", "last", "-p", "work in a fork")
        adder.connect(server=True)
        adder.turn("-c", "-p", "work with it again")
    counts = adder.double.counts
    assert (dict(counts.refused), counts.thinking_dropped) == ({}, 0)
    assert needless(adder.double) == []
    turns = [record for record in adder.double.records if record.request.body.get("tools")]
    # Each request shows all the thinking before it.
    assert [record.thinking_sent for record in turns] == list(range(15))
    added, removed = ("tool_addition", SUM), ("tool_removal", SUM)
    assert [changes(body) for body in adder.turns[::3]] == [[], [added], [added, removed], [added, removed], [added, removed, added]]
    for older, newer in pairwise(adder.turns):
        assert what_moved(*(json.dumps(loaded(body)).encode() for body in (older, newer))) == ""
    # Only while the server is there its tool answers.
    missing = f"There is no tool '{SUM}'"
    assert [text.partition(".")[0] for text in results(adder.turns[-1])[1::2]] == [missing, "6", missing, missing, "15"]


def loaded(body: Any) -> Any:
    """A request with the tools that are loaded from its beginning."""
    return body | {"tools": [tool for tool in body["tools"] if not tool.get("defer_loading")]}
