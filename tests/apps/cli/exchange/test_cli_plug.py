"""`pal plug` and `pal unplug`: what they change in made-up configurations, and that all of it can be taken back."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pal.cli.main import cli

CLAUDE, CODEX_HOOKS, CODEX, OPENCODE = ".claude/settings.json", ".codex/hooks.json", ".codex/config.toml", ".config/opencode/opencode.json"
OPENCODE_C = ".config/opencode/opencode.jsonc"
# The agent, and the files that its user has.
CONFIGURATIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("claude", {}),
    ("claude", {CLAUDE: "{}"}),
    ("claude", {CLAUDE: "{ }\n"}),
    ("claude", {CLAUDE: '{\n  "model": "opus"\n}'}),
    ("claude", {CLAUDE: '{"model":"opus","permissions":{"allow":["Bash(ls:*)"]}}\n'}),
    ("claude", {CLAUDE: '{\n\t"enabledPlugins": {\n\t\t"other@market": true\n\t},\n\t"hooks": {"Stop": []}\n}\n'}),
    ("claude", {CLAUDE: '{\r\n  "enabledPlugins": {},\r\n  "extraKnownMarketplaces": {}\r\n}\r\n'}),
    ("claude", {CLAUDE: '// mine\n{\n  // a comment\n  "env": {"A": "{\\"}"}, /* more */\n}\n'}),
    ("claude", {CLAUDE: '{\n    "extraKnownMarketplaces": {\n        "team": {"source": {"source": "github", "repo": "a/b"}}\n    }\n}\n'}),
    ("codex", {}),
    ("codex", {CODEX: 'model = "gpt-5.5"\n'}),
    ("codex", {CODEX: '# mine\nmodel = "gpt-5.5" # why\n\n[mcp_servers.docs]\ncommand = "docs"'}),
    ("codex", {CODEX: "", CODEX_HOOKS: "{}"}),
    ("codex", {CODEX_HOOKS: '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}'}),
    ("codex", {CODEX_HOOKS: '{\n  "hooks": {\n    "SessionStart": [],\n    "PreToolUse": []\n  },\n  "unknown": 1\n}\n'}),
    ("codex", {CODEX: '[projects."/a b"]\ntrust_level = "trusted"\n\n\n# end\n', CODEX_HOOKS: '{"hooks":{}}\n'}),
    ("opencode", {}),
    ("opencode", {OPENCODE: '{"$schema": "https://opencode.ai/config.json"}'}),
    (
        "opencode",
        {OPENCODE_C: '{\n  "model": "a/b", // why\n  "mcp": {\n    "x": {"type": "local"}, // theirs\n  },\n}\n'},
    ),
    ("opencode", {OPENCODE_C: "{\n  /* nothing yet */\n}\n", OPENCODE: '{"theme": "dark"}\n'}),
)


class User:
    """A user with a home folder and files in it."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder = folder / "user"
        self.pal = folder / "pal"
        self.folder.mkdir()
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())

    def run(self, *words: str) -> Result:
        names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "OPENCODE_CONFIG_DIR")
        variables = {"PAL_HOME": str(self.pal), "HOME": str(self.folder), **dict.fromkeys(names, "")}
        return CliRunner().invoke(cli, list(words), env=variables, catch_exceptions=False)

    def files(self) -> dict[str, bytes]:
        found = (path for folder in (self.folder, self.pal) for path in folder.rglob("*"))
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}

    def text(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def change(self, name: str, old: str, new: str) -> None:
        assert old in self.text(name)
        (self.folder / name).write_bytes(self.text(name).replace(old, new).encode())


@pytest.mark.parametrize(("agent", "files"), CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
@pytest.mark.states("MI-13")
def test_plugging_in_twice_changes_nothing_more_and_unplugging_restores_every_byte(
    agent: str, files: dict[str, str], tmp_path: Path
) -> None:
    user = User(tmp_path, files)
    before = user.files()
    shown = user.run("plug", agent, "--dry-run")
    assert user.files() == before
    assert shown.exit_code == 0
    done = user.run("plug", agent, "--yes")
    plugged = user.files()
    again = user.run("plug", agent, "--yes")

    assert (done.exit_code, again.exit_code) == (0, 0)
    assert done.stdout.startswith(shown.stdout)
    assert again.stdout.startswith("nothing is to be changed\n")
    assert user.files() == plugged
    changed = {name for name in plugged if plugged[name] != before.get(name, b"") and not name.startswith(str(user.pal))}
    assert all(f"+++ {name}\n" in shown.stdout for name in changed)
    assert user.run("unplug", agent, "--yes").exit_code == 0
    assert user.files() == before


def test_claude_code_finds_the_plugin_in_its_settings_and_the_plugin_starts_this_installation(tmp_path: Path) -> None:
    user = User(tmp_path, {CLAUDE: '{\n  "model": "opus"\n}\n'})
    user.run("plug", "claude", "--yes")
    folder = user.pal / "plugins" / "claude"
    shim = user.pal / "bin" / "pal"

    assert json.loads(user.text(CLAUDE)) == {
        "enabledPlugins": {"pal@palimpsest": True},
        "extraKnownMarketplaces": {"palimpsest": {"source": {"source": "directory", "path": str(folder)}}},
        "model": "opus",
    }
    hooks: dict[str, Any] = json.loads((folder / "pal" / "hooks" / "hooks.json").read_text())["hooks"]
    assert list(hooks) == ["SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "SessionEnd"]
    assert hooks["Stop"] == [{"hooks": [{"type": "command", "command": f"{shim} hook Stop --for claude", "timeout": 4}]}]
    assert json.loads((folder / "pal" / ".mcp.json").read_text()) == {"mcpServers": {"pal": {"command": str(shim), "args": ["mcp"]}}}
    said = subprocess.run([shim, "--version"], capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "PAL_HOME": ""})
    assert said.stdout.startswith("pal ")


def test_codex_gets_hooks_and_a_server_and_status_says_that_the_user_must_trust_them(tmp_path: Path) -> None:
    user = User(tmp_path, {CODEX: 'model = "gpt-5.5"\n'})
    user.run("plug", "codex", "--yes", "--write")
    shim = str(user.pal / "bin" / "pal")
    states = {state["agent"]: state for state in json.loads(user.run("plug", "status", "--json").stdout)}

    assert tomllib.loads(user.text(CODEX)) == {"model": "gpt-5.5", "mcp_servers": {"pal": {"command": shim, "args": ["mcp", "--write"]}}}
    assert (states["codex"]["installed"], states["codex"]["trusted"]) == (True, False)
    assert "open /hooks" in states["codex"]["problem"]
    file = user.folder / CODEX_HOOKS
    events = ("session_start", "user_prompt_submit", "pre_compact", "stop", "session_end")
    trust = "".join(f'[hooks.state."{file}:{event}:0:0"]\ntrusted_hash = "sha256:1"\n' for event in events)
    (user.folder / CODEX).write_text(user.text(CODEX) + trust)
    states = {state["agent"]: state for state in json.loads(user.run("plug", "status", "--json").stdout)}
    assert states["codex"] == {
        "agent": "codex",
        "installed": True,
        "trusted": True,
        "hooks": ["SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "SessionEnd"],
        "mcp": True,
        "path": str(file),
        "problem": "",
    }
    assert states["claude"]["installed"] is False


def test_what_the_user_and_the_agent_changed_since_stays_when_pal_is_unplugged(tmp_path: Path) -> None:
    user = User(tmp_path, {CLAUDE: '{\n  "model": "opus"\n}\n', CODEX: "a = 1\n"})
    for agent in ("claude", "codex"):
        user.run("plug", agent, "--yes")
    # The agent writes the whole file anew, the user adds a plugin beside ours, and Codex notes its trust.
    values = json.loads(user.text(CLAUDE))
    values["enabledPlugins"] = {"mine@market": True, **values["enabledPlugins"]}
    values["theme"] = "dark"
    (user.folder / CLAUDE).write_text(json.dumps(values, indent=4))
    user.change(CODEX, "a = 1\n", "a = 2 # changed\n")
    user.change(CODEX, 'args = ["mcp"]\n', 'args = ["mcp"]\nenabled = true\n\n[tui]\nb = 3\n')
    user.run("unplug", "claude", "--yes")
    user.run("unplug", "codex", "--yes")

    assert json.loads(user.text(CLAUDE)) == {"enabledPlugins": {"mine@market": True}, "model": "opus", "theme": "dark"}
    assert user.text(CODEX) == "a = 2 # changed\n\n\n[tui]\nb = 3\n"
    assert not (user.folder / CODEX_HOOKS).exists()


@pytest.mark.parametrize(
    ("agent", "name", "text", "words"),
    [
        ("claude", CLAUDE, "{broken", "this is no JSON"),
        ("claude", CLAUDE, '{"enabledPlugins": {"pal@palimpsest": false}}', "that pal did not write"),
        ("claude", CLAUDE, '{"enabledPlugins": []}', "something else"),
        ("codex", CODEX, '[mcp_servers.pal]\ncommand = "mine"\n', "that pal did not write"),
        ("codex", CODEX, "[broken", "this is no TOML"),
        ("opencode", OPENCODE, '{"mcp": {"pal": {"type": "remote"}}}', "that pal did not write"),
        ("opencode", ".config/opencode/plugin/pal.js", "// mine", "that pal did not write"),
    ],
)
def test_a_file_that_cannot_take_it_is_left_alone_and_named(agent: str, name: str, text: str, words: str, tmp_path: Path) -> None:
    user = User(tmp_path, {name: text})
    before = user.files()
    done = user.run("plug", agent, "--yes")

    assert done.exit_code == 2
    assert words in done.stderr
    assert str(user.folder / name) in done.stderr
    assert user.files() == before


def test_without_yes_and_without_a_terminal_nothing_is_changed(tmp_path: Path) -> None:
    user = User(tmp_path, {})
    done = user.run("plug", "claude")

    assert done.exit_code == 2
    assert "use --yes to confirm" in done.stderr
    assert user.files() == {}


def test_a_link_to_settings_elsewhere_stays_a_link_and_modes_stay(tmp_path: Path) -> None:
    user = User(tmp_path, {"dotfiles/claude.json": "{}\n"})
    (user.folder / ".claude").mkdir()
    link, target = user.folder / CLAUDE, user.folder / "dotfiles/claude.json"
    link.symlink_to(target)
    target.chmod(0o640)
    user.run("plug", "claude", "--yes")

    assert link.is_symlink()
    assert "pal@palimpsest" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    user.run("unplug", "claude", "--yes")
    assert target.read_bytes() == b"{}\n"


def test_the_plugin_folder_alone_can_be_written_for_plugin_dir(tmp_path: Path) -> None:
    user = User(tmp_path, {})
    done = user.run("plug", "claude", "--into", str(tmp_path / "made"))

    assert done.stdout == f"written; claude --plugin-dir {tmp_path / 'made' / 'pal'}\n"
    assert (tmp_path / "made" / "pal" / ".claude-plugin" / "plugin.json").exists()
    assert not (user.folder / ".claude").exists()


def test_unplugging_what_is_not_plugged_in_is_an_error(tmp_path: Path) -> None:
    done = User(tmp_path, {}).run("unplug", "codex")

    assert done.exit_code == 2
    assert "pal is not plugged into codex" in done.stderr


def started(shim: Path, program: str, *words: str) -> tuple[int, str]:
    """The exit code and the output of the script, if it started another program instead of Python."""
    script = shim.with_name("other")
    script.write_text(shim.read_text().replace(sys.executable, program))
    script.chmod(0o755)
    variables = {"PATH": os.environ["PATH"], "PAL_HOME": str(shim.parent.parent)}
    done = subprocess.run([script, *words], check=False, timeout=120, env=variables, cwd="/", capture_output=True, text=True)
    assert done.stderr == "" or words[0] != "hook"
    return done.returncode, done.stdout


def test_a_prompt_without_notes_does_not_start_python(tmp_path: Path) -> None:
    user = User(tmp_path, {})
    user.run("plug", "claude", "--yes")
    shim = user.pal / "bin" / "pal"
    prompt = ("hook", "UserPromptSubmit")

    assert started(shim, "/bin/echo", *prompt) == (0, "")
    assert started(shim, "/bin/echo", "hook", "Stop") == (0, "-P -m pal.cli hook Stop\n")
    (user.pal / "memory").mkdir()
    assert started(shim, "/bin/echo", *prompt) == (0, "-P -m pal.cli hook UserPromptSubmit\n")


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program", sys.executable])
@pytest.mark.states("MI-12")
def test_no_hook_ends_with_a_code_that_blocks_whatever_pal_is_installed(program: str, tmp_path: Path) -> None:
    user = User(tmp_path, {})
    user.run("plug", "claude", "--yes")

    assert started(user.pal / "bin" / "pal", program, "hook", "PreCompact", "--for", "an agent of later", "--new-option") == (0, "")


def test_all_else_that_is_started_by_the_script_has_its_own_exit_code(tmp_path: Path) -> None:
    user = User(tmp_path, {})
    user.run("plug", "claude", "--yes")

    assert started(user.pal / "bin" / "pal", "/bin/false", "mcp") == (1, "")


def test_what_opencode_adds_before_ours_is_left_without_a_trailing_comma(tmp_path: Path) -> None:
    user = User(tmp_path, {OPENCODE: "{}"})
    assert user.run("plug", "opencode", "--yes").exit_code == 0
    config = user.folder / OPENCODE
    # OpenCode writes its schema as the first member, in the text of the file.
    config.write_text(config.read_text().replace("{", '{\n  "$schema": "https://opencode.ai/config.json",', 1))
    assert user.run("unplug", "opencode", "--yes").exit_code == 0

    assert json.loads(config.read_text()) == {"$schema": "https://opencode.ai/config.json"}
