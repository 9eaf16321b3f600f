"""What the plugin consists of for each agent: Claude Code, Codex and OpenCode."""

import json
import shlex
from pathlib import Path
from typing import Final

from palimpsest.apps.plugin.install.places import AgentPlaces, shim_text
from palimpsest.apps.plugin.install.texts import COMMAND_TEXT, DESCRIPTION, OPENCODE_PLUGIN, SKILL_TEXT
from palimpsest.apps.plugin.install.wanted import AgentName, JsonMember, OwnFile, TomlTable, Wanted

MARKETPLACE: Final = "palimpsest"
PLUGIN: Final = "pal"
HOOK_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop", "SessionEnd")
# Seconds that an agent waits for a hook, which ends by itself after two: those of a prompt and of the end of its turn add up. Codex allows
# three at the end of a session.
_HOOK_SECONDS: Final = 4
_LAST_SECONDS: Final = 3


def wanted_for(agent: AgentName, places: AgentPlaces, version: str, *, write: bool = False) -> tuple[Wanted, ...]:
    """Return all that the plugin wants for an agent; with `write` its model may change notes."""
    shim = OwnFile(places.shim, shim_text(places), executable=True)
    match agent:
        case "claude":
            folder = places.files(agent)
            return (shim, *claude_files(folder, places.shim, version, write=write), *_claude_settings(places.claude, folder))
        case "codex":
            return (shim, *_codex(places, write=write))
        case "opencode":
            return (shim, *_opencode(places, write=write))


def claude_files(folder: Path, shim: Path, version: str, *, write: bool) -> tuple[OwnFile, ...]:
    """Return a marketplace of one plugin as Claude Code reads it, below a folder."""
    plugin = folder / PLUGIN
    described = {"name": PLUGIN, "version": version, "description": DESCRIPTION}
    plugins = [{"name": PLUGIN, "source": f"./{PLUGIN}", "description": DESCRIPTION}]
    market = {"name": MARKETPLACE, "owner": {"name": "Palimpsest"}, "plugins": plugins}
    server = {"command": str(shim), "args": _server_words(write=write)}
    return (
        OwnFile(folder / ".claude-plugin" / "marketplace.json", _json(market)),
        OwnFile(plugin / ".claude-plugin" / "plugin.json", _json(described)),
        OwnFile(plugin / "hooks" / "hooks.json", _json({"hooks": {event: [_hook(shim, event, "claude")] for event in HOOK_EVENTS}})),
        OwnFile(plugin / ".mcp.json", _json({"mcpServers": {PLUGIN: server}})),
        OwnFile(plugin / "commands" / "pal.md", COMMAND_TEXT),
        OwnFile(plugin / "skills" / "pal" / "SKILL.md", SKILL_TEXT),
    )


def _claude_settings(claude: Path, folder: Path) -> tuple[JsonMember, ...]:
    settings = claude / "settings.json"
    return (
        JsonMember(settings, ("extraKnownMarketplaces", MARKETPLACE), {"source": {"source": "directory", "path": str(folder)}}),
        JsonMember(settings, ("enabledPlugins", f"{PLUGIN}@{MARKETPLACE}"), value=True),
    )


def _codex(places: AgentPlaces, *, write: bool) -> tuple[Wanted, ...]:
    lines = f"command = {json.dumps(str(places.shim))}\nargs = {json.dumps(_server_words(write=write))}\n"
    hooks = places.codex / "hooks.json"
    mark = json.dumps(str(places.shim))[1:-1]
    members = (JsonMember(hooks, ("hooks", event), _hook(places.shim, event, "codex"), mark) for event in HOOK_EVENTS)
    return (*members, TomlTable(places.codex / "config.toml", ("mcp_servers", PLUGIN), lines))


def _opencode(places: AgentPlaces, *, write: bool) -> tuple[Wanted, ...]:
    # OpenCode reads both; the one that is there is the one that the user edits.
    names = (places.opencode / name for name in ("opencode.jsonc", "opencode.json"))
    config = next((path for path in names if path.exists()), places.opencode / "opencode.json")
    server = {"type": "local", "command": [str(places.shim), *_server_words(write=write)], "enabled": True}
    return (
        OwnFile(places.opencode / "plugin" / "pal.js", OPENCODE_PLUGIN.replace('"PAL"', json.dumps(str(places.shim)))),
        JsonMember(config, ("mcp", PLUGIN), server),
    )


def _hook(shim: Path, event: str, agent: str) -> dict[str, object]:
    command = f"{shlex.quote(str(shim))} hook {event} --for {agent}"
    seconds = _LAST_SECONDS if event == "SessionEnd" else _HOOK_SECONDS
    return {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}


def _server_words(*, write: bool) -> list[str]:
    return ["mcp", "--write"] if write else ["mcp"]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
