"""Carries out plans on the disk: reads and writes the files of agents, and keeps the record of what was put into them."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from palimpsest.apps.plugin.install.agents import HOOK_EVENTS, wanted_for
from palimpsest.apps.plugin.install.changes import FileRecord, FileRewrite, Plan, plan_plug, plan_unplug
from palimpsest.apps.plugin.install.places import AgentPlaces
from palimpsest.apps.plugin.install.toml_tables import parsed as toml_value
from palimpsest.apps.plugin.install.wanted import AGENT_NAMES, AgentName
from palimpsest.core.errors import BadInput, PalimpsestError, StoreError
from palimpsest.stores.files import store_error, write_atomically, write_private

_LARGEST: Final = 8 * 1024 * 1024


class PlugRecord(Struct, frozen=True):
    """What was put into the files of an agent, the folders that were made for it, and whether its model may change notes."""

    agent: AgentName
    files: tuple[FileRecord, ...]
    folders: tuple[str, ...] = ()
    write: bool = False


class PlugState(Struct, frozen=True):
    """What `pal plug status` says of an agent. `trusted` is `None` where the agent does not ask; `problem` says what to do."""

    agent: AgentName
    installed: bool
    trusted: bool | None
    hooks: tuple[str, ...]
    mcp: bool
    path: str
    problem: str = ""


def record_of(places: AgentPlaces, agent: AgentName) -> PlugRecord | None:
    """Return the record of an agent; `None` if it is not plugged in. Raises `StoreError` if the file is damaged."""
    path = _record_path(places, agent)
    try:
        return msgspec.json.decode(path.read_bytes(), type=PlugRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(error, path, "read") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise StoreError(f"the record of what was plugged in is damaged: {error}", where=str(path)) from error


def planned_plug(places: AgentPlaces, agent: AgentName, version: str, *, write: bool) -> Plan:
    """Return the changes that plug an agent in; none if it is plugged in as it should be. Raises `BadInput` or `StoreError`."""
    known = record_of(places, agent)
    return plan_plug(wanted_for(agent, places, version, write=write), () if known is None else known.files, read_text)


def planned_unplug(places: AgentPlaces, agent: AgentName) -> Plan:
    """Return the changes that unplug an agent; the script stays as long as another agent is plugged in. Raises as `planned_plug`."""
    known = record_of(places, agent)
    others = any(record_of(places, other) is not None for other in AGENT_NAMES if other != agent)
    files = () if known is None else known.files
    return plan_unplug([file for file in files if not (others and file.path == str(places.shim))], read_text)


def plug(places: AgentPlaces, agent: AgentName, plan: Plan, *, write: bool) -> None:
    """Carry out a plan of `planned_plug`. The record is written first, so that an interrupted run can be taken back."""
    known = record_of(places, agent)
    folders = {str(folder): None for change in plan.changes for folder in _missing_folders(change.path)}
    made = tuple(dict.fromkeys((*(() if known is None else known.folders), *folders)))
    path = _record_path(places, agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, msgspec.json.encode(PlugRecord(agent, plan.records, made, write)))
    _carry_out(plan.changes)


def unplug(places: AgentPlaces, agent: AgentName, plan: Plan) -> None:
    """Carry out a plan of `planned_unplug`, and remove the folders that were made, if they are empty."""
    known = record_of(places, agent)
    _carry_out(plan.changes)
    _record_path(places, agent).unlink(missing_ok=True)
    folders = () if known is None else known.folders
    for folder in sorted((*folders, str(places.shim.parent), str(_record_path(places, agent).parent)), key=len, reverse=True):
        with suppress(OSError):
            Path(folder).rmdir()


def state_of(places: AgentPlaces, agent: AgentName, version: str) -> PlugState:
    """Return the state of an agent as its files are now."""
    where = {"claude": places.claude / "settings.json", "codex": places.codex / "hooks.json", "opencode": places.opencode}[agent]
    try:
        known = record_of(places, agent)
        if known is None:
            return PlugState(agent, installed=False, trusted=None, hooks=(), mcp=False, path=str(where))
        plan = planned_plug(places, agent, version, write=known.write)
        trusted = _codex_trusts(places) if agent == "codex" else None
    except PalimpsestError as error:
        return PlugState(agent, installed=False, trusted=None, hooks=(), mcp=False, path=str(where), problem=str(error))
    problem = missing_extra()
    if plan.changes:
        problem = f"{len(plan.changes)} of its files are not as they should be; `pal plug {agent}` shows and repairs them"
    elif trusted is False:
        problem = "Codex skips the hooks until you trust them: start codex in a terminal, open /hooks, and accept those of pal"
    hooks = () if agent == "opencode" else HOOK_EVENTS
    return PlugState(agent, not plan.changes, trusted, hooks, mcp=not plan.changes, path=str(where), problem=problem)


def missing_extra() -> str:
    """Return how to install what the MCP server needs; empty if it is there."""
    return "" if find_spec("mcp") is not None else "the MCP server cannot start: pip install 'palimpsest-agent[mcp]'"


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends as they are; `None` if there is none. Raises `BadInput` if it is no text."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise BadInput("the file is too large to be changed", where=str(path))
        return data.decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadInput("the file is not text in UTF-8, so it is not changed", where=str(path)) from error
    except OSError as error:
        raise store_error(error, path, "read") from error


def _carry_out(changes: Sequence[FileRewrite]) -> None:
    for change in changes:
        # A link to a file in a folder of dotfiles stays a link.
        path = Path(os.path.realpath(change.path))
        try:
            if read_text(path) != change.before:
                raise BadInput("the file was changed by another program meanwhile; run the command again", where=str(path))
            if change.after is None:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o755 if change.executable else stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
            write_atomically(path, (change.after.encode(),), replace=True, mode=mode)
        except OSError as error:
            raise store_error(error, path, "write") from error


def _missing_folders(path: Path) -> list[Path]:
    return [folder for folder in path.parents if not folder.exists()]


def _record_path(places: AgentPlaces, agent: AgentName) -> Path:
    return places.home / "plugins" / f"{agent}.json"


def _codex_trusts(places: AgentPlaces) -> bool:
    """Return whether the user has trusted each of our hooks in Codex, by what Codex itself wrote into its configuration."""
    text = read_text(places.codex / "config.toml")
    values: dict[str, Any] = toml_value(text or "")
    hooks = values.get("hooks", {})
    states = hooks.get("state", {}) if isinstance(hooks, dict) else {}
    file = str(places.codex / "hooks.json")
    trusted = [key for key, state in states.items() if key.startswith(f"{file}:") and isinstance(state, dict) and state.get("trusted_hash")]
    return len(trusted) >= len(HOOK_EVENTS)
