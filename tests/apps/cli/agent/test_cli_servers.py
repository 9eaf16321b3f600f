"""`pal mcp-servers` and `pal -p` with MCP servers, as processes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_server
import pytest

from palimpsest.stores.home import FolderHome
from palimpsest.stores.project import project_servers
from palimpsest.stores.trust import ProjectTrust

PAL = [sys.executable, "-m", "pal.cli"]


class Place:
    """A project, a user and a home of `pal`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()

    def configure(self, servers: Mapping[str, Any], file: str = "user/.config/palimpsest/mcp.json") -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mcpServers": servers}))

    def __call__(self, *words: str, replies: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
        script = self.folder / "script.jsonl"
        script.write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
        own = {"HOME": str(self.folder / "user"), "PAL_HOME": str(self.folder / "home"), "PAL_SCRIPT": str(script), "COLUMNS": "200"}
        return subprocess.run(
            [*PAL, *words],
            cwd=self.project,
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=120,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_servers_are_listed_with_their_state_and_without_secrets(place: Place) -> None:
    place.configure({"mine": {"command": "mine", "args": ["--token=s3cret"]}, "off": {"command": "x", "disabled": True}})
    place.configure({"web": {"url": "https://user:s3cret@example.com/mcp?key=s3cret"}}, "extra.json")
    place.configure({"theirs": {"command": "theirs"}, "bad": {"args": []}}, "project/.mcp.json")
    (place.folder / "home").mkdir()
    (place.folder / "home/config.toml").write_text(f'[mcp]\nfiles = ["{place.folder}/extra.json"]\n')
    done = place("mcp-servers", "--json")
    assert "s3cret" not in done.stdout + done.stderr
    value = json.loads(done.stdout)
    user, extra = f"{place.folder}/user/.config/palimpsest/mcp.json", f"{place.folder}/extra.json"
    shared = f"{place.project}/.mcp.json"

    def row(name: str, state: str, origin: str, *, transport: str = "stdio", runs: str = "x", project: bool = False) -> dict[str, object]:
        return {"name": name, "state": state, "transport": transport, "runs": runs, "origin": origin, "project": project}

    assert value["servers"] == [
        row("mine", "configured", user, runs="mine"),
        row("off", "disabled", user),
        row("web", "configured", extra, transport="http", runs="https://example.com"),
        row("theirs", "untrusted", shared, runs="theirs", project=True),
    ]
    assert value["problems"] == [
        f"{shared}: mcpServers.bad.url: a server needs a command, or a URL that begins with http:// or https://; the server is left out"
    ]
    assert done.returncode == 1


def test_a_trial_connection_shows_what_each_server_offers_or_why_it_fails(place: Place) -> None:
    place.configure({"normal": mcp_server.command("normal"), "exit": mcp_server.command("exit")})
    done = place("mcp-servers", "--connect", "--json")
    normal, failed = json.loads(done.stdout)["servers"]
    assert (normal["state"], normal["tools"][:2]) == ("ready", ["mcp__normal__add", "mcp__normal__pair"])
    assert normal["resources"] == ["note://one", "note://picture", "note://{name}/text"]
    assert (normal["prompts"], normal["instructions"]) == (["/mcp__normal__review"], "Use add for sums.")
    assert (failed["state"], failed["problem"]) == ("failed", "it ended with exit code 1 | cannot find its own settings")
    assert done.returncode == 1
    table = place("mcp-servers", "--connect")
    assert [line.split()[:3] for line in table.stdout.splitlines()[1:3]] == [["normal", "ready", "stdio"], ["exit", "failed", "stdio"]]
    assert "exit: it ended with exit code 1" in table.stdout


def test_no_servers_are_said_to_be_none(place: Place) -> None:
    done = place("mcp-servers")
    assert (done.returncode, done.stdout) == (0, "no MCP servers are configured; docs/mcp.md says where they are defined\n")


def test_a_prompt_runs_with_the_tools_of_a_trusted_project_and_one_that_needs_permission_names_its_rule(place: Place) -> None:
    place.configure({"theirs": mcp_server.command("normal")}, "project/.mcp.json")
    skipped = place("-p", "hello", replies=("hi",))
    assert "MCP servers of this project that you have not trusted are not started: theirs; see `pal trust`" in skipped.stderr
    trust = ProjectTrust(FolderHome(place.folder / "home"), place.project)
    for command in project_servers(place.project):
        trust.add(command)
    (place.folder / "home/config.toml").write_text("[mcp]\nstart_seconds = 60\n")
    call = {"calls": [{"tool": "mcp__theirs__add", "args": {"a": 20, "b": 3}}]}
    refused = place("-p", "add", replies=(call, "no"))
    assert "--allow 'mcp__theirs__add'" in refused.stderr
    done = place("-p", "add", "--allow", "mcp__theirs__*", "--json-stream", replies=(call, "it is 23"))
    assert done.returncode == 0
    assert '"text":"23"' in done.stdout


def test_a_prompt_of_a_server_is_inserted_by_name_and_an_unknown_one_starts_no_turn(place: Place) -> None:
    place.configure({"normal": mcp_server.command("normal")})
    (place.folder / "home").mkdir()
    (place.folder / "home/config.toml").write_text("[mcp]\nstart_seconds = 60\n")
    done = place("-p", "/mcp__normal__review a.py", "--json-stream", replies=("reviewed",))
    assert (done.returncode, "Review a.py for bugs." in done.stdout) == (0, True)
    unknown = place("-p", "/mcp__normal__nothing", replies=("never",))
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "there is no prompt /mcp__normal__nothing" in unknown.stderr
