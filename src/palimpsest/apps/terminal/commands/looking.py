"""Commands that show something or write it to a file: hooks, servers, settings, exports and instructions."""

import os
import tomllib
from collections.abc import Iterable
from typing import Final

import msgspec

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, NotOpen, SlashCommand, agent_of, table
from palimpsest.apps.terminal.screen.tool_titles import one_line
from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent
from palimpsest.stores.config.changing import change_key
from palimpsest.stores.config.reading import nearest_key
from palimpsest.stores.config.schema import KEYS, key_of
from palimpsest.stores.config.settings import FILE_NAME, Settings, resolve

_RUNS: Final = "runs"
_CONNECT, _TOOLS = "connect", "tools"
# Settings that an open session uses as soon as they are changed.
_HOLD_NOW: Final = ("terminal.", "providers.")
# Forms of an export, and the end of their file names.
_SUFFIXES: Final = {
    "html": ".html",
    "markdown": ".md",
    "claude": ".claude.jsonl",
    "codex": ".codex.jsonl",
    "messages": ".messages.json",
    "responses": ".responses.json",
    "chat": ".chat.json",
}
_INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md")
DRAFT: Final = """\
Write AGENTS.md in the root of this project: what an agent that works here for the first time has to know and cannot see at a glance. \
Look at the code, its manifests, its CI and its documents first. Say how to build, test, lint and run one test, with commands that \
you have found or tried; how the code is laid out and why; rules that the code or its documents state; and traps. Leave out what any \
engineer would guess and what a listing of the folder shows. Keep it below 80 lines, and state nothing that you have not seen."""
IMPROVE: Final = """\
Read {name} and compare it with this project: its code, manifests, CI and documents. Correct what no longer holds, add what an agent that \
works here for the first time has to know and cannot see at a glance (building, testing, running one test, layout, rules, traps), and \
take out what any engineer would guess. Keep its structure where it is good, and state nothing that you have not seen."""


async def _hooks(room: CommandRoom, argument: str) -> None:
    """List the hooks of this folder, or their runs in this session."""
    if argument not in ("", _RUNS):
        raise BadInput(f"/hooks takes {_RUNS}, or nothing for the hooks of this folder")
    await room.pal("hooks", *([room.session_id] if argument and room.session_id else []))


async def _mcp(room: CommandRoom, argument: str) -> None:
    """List the configured servers, what a trial connection finds, or the tools that this session has of them."""
    if argument == _TOOLS:
        tools = [tool for tool in agent_of(room).toolbox.tools.values() if tool.name.startswith("mcp__")]
        for tool in tools:
            room.notice(f"{tool.name}: {one_line(plain(tool.declaration.description), 200)}")
        if not tools:
            room.notice("this session has no tools of MCP servers yet; they come with the first turn")
    elif argument in ("", _CONNECT):
        await room.pal("mcp-servers", *(["--connect"] if argument else []))
    else:
        raise BadInput(f"/mcp takes {_CONNECT} or {_TOOLS}, or nothing for the configured servers")


async def _config(room: CommandRoom, argument: str) -> None:
    """Walk the settings, show one, or set one in the user's file; its value is checked first."""
    name, _, text = argument.partition(" ")
    if not name:
        await _walk_settings(room)
        return
    key = key_of(tuple(name.split(".")))
    if key is None:
        raise BadInput(nearest_key(name), where="/config")
    if not text.strip():
        room.notice(f"{_setting_line(name, _settings(room))}  ({key.description})")
        return
    if key.is_secret:
        raise BadInput(f"{name} is a secret, which must not be shown or kept in the history; /start key asks for one")
    if room.folder is None:
        raise BadInput("a home in memory has no configuration file")
    path = room.folder / FILE_NAME
    change_key(path, name, _typed_value(text.strip()))
    room.renew_settings()
    settings = _settings(room)
    if not settings.source(name).startswith(str(path)):
        room.notice(f"{name} is written to {path}, but {settings.source(name)} wins: {_setting_line(name, settings)}", "warning")
        return
    when = "now" if name.startswith(_HOLD_NOW) else "for sessions that are opened from now on"
    room.notice(f"{_setting_line(name, settings)}; it holds {when}")


async def _walk_settings(room: CommandRoom) -> None:
    """Let the user walk all settings; Enter begins a line that changes one."""
    settings = _settings(room)
    rows = [
        Row(key.name, _setting_line(key.name, settings), f"{key.description}\n{settings.source(key.name)}; it must be {key.wanted}")
        for key in KEYS.values()
        if "*" not in key.name
    ]
    chosen = await room.choose("Settings", rows)
    if chosen is not None:
        room.insert(f"/config {chosen.value} ")


def _settings(room: CommandRoom) -> Settings:
    user = None if room.folder is None else room.folder / FILE_NAME
    return resolve(user, agent_of(room).toolbox.workspace.root, os.environ)


def _setting_line(name: str, settings: Settings) -> str:
    """A setting with its value and whether it is the default; a secret is only set or not set."""
    found, key = settings.settings.get(name), key_of(tuple(name.split(".")))
    if key is not None and key.is_secret:
        return f"{name} is {'not set' if found is None else 'set'}"
    value = found.value if found is not None else None if key is None else key.default
    shown = "not set" if value in (None, "") else msgspec.json.encode(value).decode()
    return plain(f"{name} = {shown}  {'default' if found is None else 'from ' + found.source}")


def _typed_value(text: str) -> object:
    """A value as TOML has it, or a text without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _setting_words(_: Agent | None) -> Iterable[str]:
    for key in KEYS.values():
        if not key.is_secret and "*" not in key.name:
            yield key.name
            yield from (f"{key.name} {value}" for value in key.choices)


async def _export(room: CommandRoom, argument: str) -> None:
    """Export the session into the project's folder, by default as a page that is named after the session."""
    if not room.session_id:
        raise NotOpen
    form, _, name = (argument or "html").partition(" ")
    if form.startswith("-"):
        await room.pal("export", room.session_id, *argument.split())
        return
    if form not in _SUFFIXES:
        raise BadInput(f"/export takes {', '.join(_SUFFIXES)} and perhaps a file name, or options of `pal export ID`")
    out = room.root / (name.strip() or f"session-{room.session_id}{_SUFFIXES[form]}")
    # A file that the user names may hold something else.
    await room.pal("export", room.session_id, "--to", form, "--out", str(out), *([] if name.strip() else ["--force"]))
    if out.exists():
        room.notice(f"{form} is in {out}")


async def _init(room: CommandRoom, argument: str) -> None:
    """Let the agent write the instructions of the project, or write a configuration file."""
    if argument.startswith("config"):
        await room.pal("init", *argument.split()[1:])
        return
    if argument:
        raise BadInput("/init takes config and perhaps options of `pal init`, or nothing to let the agent write")
    root = agent_of(room).toolbox.workspace.root
    present = next((name for name in _INSTRUCTIONS if (root / name).is_file()), "")
    room.send(IMPROVE.format(name=present) if present else DRAFT)


LOOKING_COMMANDS: Final = table(
    SlashCommand("hooks", "hooks of this folder, or their runs in this session", _hooks, f"[{_RUNS}]", lambda _: (_RUNS,)),
    SlashCommand("mcp", "MCP servers, a trial connection, or their tools", _mcp, f"[{_CONNECT}, {_TOOLS}]", lambda _: (_CONNECT, _TOOLS)),
    SlashCommand("export", "export this session; by default as a page", _export, "[form] [file]", lambda _: tuple(_SUFFIXES)),
    SlashCommand("config", "settings: where each comes from, and set one", _config, "[key] [value]", _setting_words),
    SlashCommand("init", "let the agent draft AGENTS.md; `config`: write a configuration file", _init, "[config]", lambda _: ("config",)),
)
