"""Settings by which a wrapped program goes past its gateway, found before it is started."""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

# Variables by which Claude Code sends its requests elsewhere, whatever the address of Anthropic's API is.
_OTHER_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_ADDRESS: Final = "ANTHROPIC_BASE_URL"
_OFF: Final = ("", "0", "false", "no", "off")
_OWN_PROVIDER: Final = "openai"


def bypasses(agent: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return what keeps a program from its gateway, one line each: the setting, and where it stands."""
    return list(_of_claude(arguments, environment, folder) if agent == "claude" else _of_codex(arguments, environment, folder))


def _of_claude(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    yield from (f"{name} is set in the environment" for name in _OTHER_CLOUDS if environment.get(name, "").lower() not in _OFF)
    for place, text in (*_read(_claude_files(environment, folder)), *_given_settings(arguments)):
        try:
            settings = json.loads(text)
        except ValueError:
            continue
        variables = settings.get("env") if isinstance(settings, dict) else None
        if not isinstance(variables, dict):
            continue
        if variables.get(_ADDRESS):
            yield f"{place} sets env.{_ADDRESS}"
        yield from (f"{place} sets env.{name}" for name in _OTHER_CLOUDS if str(variables.get(name, "")).lower() not in _OFF)


def _claude_files(environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The settings of Claude Code: the user's, those of the project and its folders, and those of the administrator."""
    yield _home(environment, "CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    for place in (folder, *folder.parents):
        yield place / ".claude" / "settings.json"
        yield place / ".claude" / "settings.local.json"
    managed = Path("/Library/Application Support/ClaudeCode") if sys.platform == "darwin" else Path("/etc/claude-code")
    yield managed / "managed-settings.json"
    yield from sorted((managed / "managed-settings.d").glob("*.json"))


def _given_settings(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The settings that the command line names or contains."""
    for word in _values_of(arguments, "--settings"):
        yield from [("--settings", word)] if word.lstrip().startswith("{") else _read([Path(word)])


def _of_codex(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    if "--oss" in arguments:
        yield "--oss uses a model of this machine"
    chosen = [*_values_of(arguments, "-p"), *_values_of(arguments, "--profile")]
    home = _home(environment, "CODEX_HOME", ".codex")
    files = (
        home / "config.toml",
        *(place / ".codex" / "config.toml" for place in (folder, *folder.parents)),
        Path("/etc/codex/config.toml"),
    )
    for place, text in _read(files):
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            continue
        profiles = settings.get("profiles")
        names = chosen or [settings.get("profile", "")]
        used = [settings, *(profiles[name] for name in names if isinstance(profiles, dict) and isinstance(profiles.get(name), dict))]
        yield from (f"{place} sets model_provider = {provider!r}" for part in used if (provider := _provider(part)))
    for setting in (*_values_of(arguments, "-c"), *_values_of(arguments, "--config")):
        key, _, value = setting.partition("=")
        name = value.strip().strip("\"'")
        if key.strip() == "model_provider" and name != _OWN_PROVIDER:
            yield f"-c sets model_provider = {name!r}"


def _provider(settings: Mapping[str, Any]) -> str:
    """The provider that settings name; empty if it is Codex's own, whose address is given to it."""
    found = settings.get("model_provider")
    return found if isinstance(found, str) and found != _OWN_PROVIDER else ""


def _values_of(arguments: Sequence[str], option: str) -> list[str]:
    following = [after for word, after in pairwise(arguments) if word == option]
    return following + [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]


def _home(environment: Mapping[str, str], variable: str, name: str) -> Path:
    return Path(environment[variable]) if environment.get(variable) else Path(environment.get("HOME") or Path.home()) / name


def _read(paths: "Iterator[Path] | Sequence[Path]") -> Iterator[tuple[str, str]]:
    for path in dict.fromkeys(paths):
        try:
            yield str(path), path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            continue
