"""MCP servers in the files of clients, read as they are: Claude Code, Claude Desktop, Cursor, VS Code, Codex and OpenCode."""

import json
import time
from pathlib import Path

import pytest

from palimpsest.core.redaction import Credential
from palimpsest.stores.home import FolderHome
from palimpsest.stores.project import McpServer, configured_servers, project_command, project_servers
from palimpsest.stores.trust import ProjectTrust

CLAUDE_CODE = """{
  "mcpServers": {
    "github": {
      "type": "http",
      "url": "${GITHUB_MCP:-https://api.githubcopilot.com}/mcp/",
      "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}
    },
    "db": {
      "command": "${CLAUDE_PROJECT_DIR}/tools/db-server",
      "args": ["--dsn", "${DSN:-postgres://localhost/dev}", "$HOME"],
      "env": {"CACHE_DIR": "/var/cache", "LEVEL": "${UNSET_LEVEL}"},
      "timeout": 600000
    }
  }
}"""
CLAUDE_OWN = """{
  "numStartups": 12,
  "mcpServers": {"notes": {"type": "stdio", "command": "notes-mcp", "args": [], "env": {}}},
  "projects": {
    "THIS FOLDER": {"allowedTools": [], "mcpServers": {"local": {"command": "local-mcp"}}},
    "/other": {"mcpServers": {"far": {"command": "x"}}}
  }
}"""
CLAUDE_DESKTOP = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop"]},
    "search": {"command": "uvx", "args": ["mcp-search"], "env": {"SEARCH_API_KEY": "abc"}}
  }
}"""
CURSOR = """{
  // servers of the team
  "mcpServers": {
    "linear": {"url": "https://mcp.linear.app/sse", "type": "sse"},
    "docs": {"command": "node", "args": ["${workspaceFolder}/docs.js", "${userHome}"], "env": {"KEY": "${env:DOCS_KEY}"}, "disabled": true},
  }
}"""
VS_CODE = """{
  "inputs": [{"type": "promptString", "id": "key", "description": "Key", "password": true}],
  "servers": {
    "playwright": {"command": "npx", "args": ["-y", "@microsoft/mcp-server-playwright"], "envFile": "${workspaceFolder}/.env"},
    "keyed": {"type": "stdio", "command": "keyed", "env": {"API_KEY": "${input:key}"}},
    "remote": {"type": "http", "url": "https://example.com/mcp"}
  }
}"""
CODEX = """
model = "gpt-5"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
env_vars = ["HOME_TOKEN", "NOT_SET"]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
enabled_tools = ["search"]

[mcp_servers.context7.env]
MODE = "${not expanded}"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "FIGMA_KEY" }
disabled_tools = ["delete"]

[mcp_servers.off]
command = "off"
enabled = false
"""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "local": {"type": "local", "command": ["bun", "x", "thing"], "environment": {"A": "1"}, "enabled": true},
    "remote": {"type": "remote", "url": "https://example.com/mcp", "headers": {"X": "y"}}
  }
}"""
VARIABLES = {"GITHUB_TOKEN": "t0ken", "HOME_TOKEN": "h", "FIGMA_TOKEN": "f", "FIGMA_KEY": "k", "DOCS_KEY": "d"}


def read(folder: Path, text: str, name: str = "servers.json") -> tuple[dict[str, McpServer], list[str]]:
    file = folder / name
    file.write_text(text.replace("THIS FOLDER", str(folder / "project")))
    (folder / "project").mkdir(exist_ok=True)
    found = configured_servers(folder / "project", VARIABLES, files=(file,), home=folder / "user")
    return {server.name: server for server in found.servers}, [str(problem).replace(str(file), "FILE") for problem in found.problems]


def revealed(values: object) -> object:
    match values:
        case Credential():
            return values.reveal()
        case dict():
            return {name: revealed(value) for name, value in values.items()}
        case tuple():
            return [revealed(value) for value in values]
        case _:
            return values


def test_a_file_of_claude_code_with_variables_and_defaults(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, CLAUDE_CODE)
    github, db = servers["github"], servers["db"]
    assert (github.transport, revealed(github.url)) == ("http", "https://api.githubcopilot.com/mcp/")
    assert revealed(github.headers) == {"Authorization": "Bearer t0ken"}
    assert (db.transport, db.command) == ("stdio", str(tmp_path / "project/tools/db-server"))
    assert revealed(db.args) == ["--dsn", "postgres://localhost/dev", "$HOME"]
    assert revealed(db.env) == {"CACHE_DIR": "/var/cache", "LEVEL": "${UNSET_LEVEL}"}
    assert db.call_seconds == 600.0
    assert problems == ["FILE: mcpServers.db: the variable UNSET_LEVEL is not set"]
    assert "t0ken" not in repr(github)


def test_the_own_file_of_claude_code_has_servers_of_the_user_and_of_this_project(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, CLAUDE_OWN)
    assert ({name: server.command for name, server in servers.items()}, problems) == ({"local": "local-mcp", "notes": "notes-mcp"}, [])


def test_a_file_of_claude_desktop(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, CLAUDE_DESKTOP)
    assert problems == []
    assert revealed(servers["filesystem"].args) == ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop"]
    assert revealed(servers["search"].env) == {"SEARCH_API_KEY": "abc"}


def test_a_file_of_cursor_with_comments_and_a_comma_too_many(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, CURSOR)
    assert problems == []
    assert (servers["linear"].transport, revealed(servers["linear"].url)) == ("sse", "https://mcp.linear.app/sse")
    assert servers["docs"].disabled
    assert revealed(servers["docs"].args) == [f"{tmp_path}/project/docs.js", f"{tmp_path}/user"]
    assert revealed(servers["docs"].env) == {"KEY": "d"}


def test_a_file_of_vs_code_with_a_file_of_variables_and_an_input_that_cannot_be_given(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.env").write_text("# comment\nexport A=1\nB='two words'\nnot a line\n")
    servers, problems = read(tmp_path, VS_CODE, "mcp.json")
    assert set(servers) == {"playwright", "remote"}
    assert revealed(servers["playwright"].env) == {"A": "1", "B": "two words"}
    (problem,) = problems
    assert problem == (
        "FILE: servers.keyed.inputs: ${input:key} asks for an input, which cannot be given here; use a variable of the environment; "
        "the server is left out"
    )


def test_a_file_of_codex(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, CODEX, "config.toml")
    context7, figma = servers["context7"], servers["figma"]
    assert problems == []
    assert revealed(context7.env) == {"MODE": "${not expanded}", "HOME_TOKEN": "h"}
    assert (context7.start_seconds, context7.call_seconds, context7.only) == (20.0, 45.5, frozenset({"search"}))
    assert revealed(figma.headers) == {"X-Region": "eu", "X-Key": "k", "Authorization": "Bearer f"}
    assert (figma.transport, figma.without) == ("http", frozenset({"delete"}))
    assert servers["off"].disabled


def test_a_file_of_opencode(tmp_path: Path) -> None:
    servers, problems = read(tmp_path, OPENCODE, "opencode.json")
    local, remote = servers["local"], servers["remote"]
    assert problems == []
    assert (local.command, revealed(local.args), revealed(local.env)) == ("bun", ["x", "thing"], {"A": "1"})
    assert (remote.transport, revealed(remote.headers)) == ("http", {"X": "y"})


def test_a_bad_entry_is_a_problem_with_its_place_and_the_others_stay(tmp_path: Path) -> None:
    entries = {
        "good": {"command": "good"},
        "none": {},
        "text": "npx",
        "kind": {"type": "carrier-pigeon", "command": "x"},
        "args": {"command": "x", "args": "-y"},
        "env": {"command": "x", "env": {"A": None}},
        "url": {"url": "file:///etc/passwd"},
        "zero": {"command": "x\0y"},
        "number": {"command": 7},
        "file": {"command": "x", "envFile": "no-such-file"},
    }
    servers, problems = read(tmp_path, json.dumps({"mcpServers": entries}))
    assert list(servers) == ["good"]
    assert [problem.partition(": ")[2].partition(": ")[0] for problem in problems] == [
        "mcpServers.none.url",
        "mcpServers.text",
        "mcpServers.kind.type",
        "mcpServers.args.args",
        "mcpServers.env.env",
        "mcpServers.url.url",
        "mcpServers.zero.command",
        "mcpServers.number.command",
        "mcpServers.file.envFile",
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mcpServers": ' + "[" * 100_000, "\xff"])
def test_a_file_that_cannot_be_read_is_one_problem(text: str, tmp_path: Path) -> None:
    servers, problems = read(tmp_path, text)
    assert servers == {}
    assert len(problems) == 1
    assert problems[0].startswith("FILE: this is not valid JSON")


@pytest.mark.parametrize("piece", ["/*", '"\\"', ", ", "//", ",/**/", '"', "/* */ ", "\n"])
def test_a_file_that_is_made_to_take_long_does_not(piece: str, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("{" + piece * (200_000 // len(piece)) + "\\")
    started = time.process_time()
    assert len(configured_servers(tmp_path, {}, home=tmp_path).problems) == 1
    assert time.process_time() - started < 5


def test_comments_and_commas_in_texts_stay(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"url": "https://x/y", /* no */ "headers": {"A": "/* b */, ]", "B": "\\",}"}, },},} // end'
    servers, problems = read(tmp_path, text)
    assert (revealed(servers["a"].url), revealed(servers["a"].headers), problems) == (
        "https://x/y",
        {"A": "/* b */, ]", "B": '",}'},
        [],
    )


def test_a_named_file_that_does_not_exist_is_a_problem_and_others_may_be_missing(tmp_path: Path) -> None:
    found = configured_servers(tmp_path, {}, files=(Path("~/gone.json"),), home=tmp_path)
    assert [str(problem) for problem in found.problems] == [f"{tmp_path}/gone.json: there is no such file"]


def test_the_users_own_servers_win_and_a_project_cannot_replace_them(tmp_path: Path) -> None:
    user, project = tmp_path / ".config/palimpsest/mcp.json", tmp_path / "project/.mcp.json"
    for file, entries in (
        (user, {"db": {"command": "mine"}, "same": {"command": "x"}}),
        (project, {"db": {"command": "theirs"}, "same": {"command": "x"}, "new": {"command": "y"}}),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"mcpServers": entries}))
    found = configured_servers(project.parent, {}, home=tmp_path)
    assert [(server.name, server.command, server.project) for server in found.servers] == [
        ("db", "mine", False),
        ("same", "x", False),
        ("new", "y", True),
    ]
    assert [str(problem) for problem in found.problems] == [f"{project}: db: it is left out: {user} has a server of this name"]


def test_files_of_a_project_are_read_up_to_its_git_root_and_the_nearest_wins(tmp_path: Path) -> None:
    top, inner = tmp_path / "project", tmp_path / "project/packages/one"
    inner.mkdir(parents=True)
    (top / ".git").mkdir()
    for folder, entries in (
        (tmp_path, {"outside": {"command": "x"}}),
        (top, {"db": {"command": "${workspaceFolder}/far"}, "all": {"command": "${workspaceFolder}/y"}, "off": {"command": "z"}}),
        (inner, {"db": {"command": "near"}, "off": {"command": "z", "disabled": True}}),
    ):
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    found = configured_servers(inner, {}, home=tmp_path / "user")
    assert [(server.name, server.command, server.origin.parent, server.disabled, server.project) for server in found.servers] == [
        ("db", "near", inner, False, True),
        ("off", "z", inner, True, True),
        ("all", f"{top}/y", top, False, True),
    ]
    assert found.problems == ()
    assert [(command.name, command.definition) for command in project_servers(inner)] == [
        ("db", b'{"command":"near"}'),
        ("all", b'{"command":"${workspaceFolder}/y"}'),
    ]
    assert [command.name for command in project_servers(top)] == ["db", "all", "off"]


def test_outside_of_git_only_the_folder_itself_names_servers(tmp_path: Path) -> None:
    inner = tmp_path / "project/inner"
    inner.mkdir(parents=True)
    (tmp_path / "project/.mcp.json").write_text('{"mcpServers": {"db": {"command": "db"}}}')
    assert (configured_servers(inner, {}, home=tmp_path).servers, project_servers(inner)) == ((), ())


def test_a_server_of_a_project_is_trusted_by_its_exact_entry(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"db": {"command": "db", "args": ["${SECRET}"]}, "off": {"command": "x", "disabled": true}}}')
    (command,) = project_servers(tmp_path)
    assert (command.kind, command.name, command.definition) == ("mcp", "db", b'{"args":["${SECRET}"],"command":"db"}')
    trust = ProjectTrust(FolderHome(tmp_path / "home"), tmp_path)
    trust.add(command)
    (server,) = (each for each in configured_servers(tmp_path, {"SECRET": "s"}, home=tmp_path).servers if not each.disabled)
    assert trust.trusts(project_command(server))
    file.write_text('{"mcpServers": {"db": {"command": "db", "args": ["${SECRET}", "--all"]}}}')
    (changed,) = project_servers(tmp_path)
    assert not trust.trusts(changed)


def test_labels_are_parts_of_tool_names(tmp_path: Path) -> None:
    entries = {name: {"command": "x"} for name in ("my server", "a__b", "Ünï", "x" * 80, "日本")}
    servers, _ = read(tmp_path, json.dumps({"mcpServers": entries}))
    assert [server.label for server in servers.values()] == ["my_server", "a_b", "n", "x" * 24, "server"]
