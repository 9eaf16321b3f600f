"""MCP servers as files define them: the usual `mcpServers`, the `servers` of VS Code, the tables of Codex, the `mcp` of OpenCode."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from palimpsest.core.redaction import Credential

TransportKind: TypeAlias = Literal["stdio", "http", "sse"]
_TRANSPORTS: Final[Mapping[str, TransportKind]] = {
    "stdio": "stdio",
    "local": "stdio",
    "sse": "sse",
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http", "remote"), "http"),
}
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSUITED: Final = re.compile(r"[^A-Za-z0-9-]+")
_LONGEST_NAME: Final = 100
_LONGEST_LABEL: Final = 24
# Clients count `timeout` in milliseconds or in seconds; a server that may take less than a second is of no use.
_LEAST_MS: Final = 1_000
_LONGEST_S: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A configured server. `definition` is its entry as the file has it, as canonical JSON; the other fields have variables replaced.

    `label` names it in tool names. `only` are the tools that the entry enables, `None` for all; `without` are those that it disables.
    """

    name: str
    origin: Path
    definition: bytes = field(repr=False)
    project: bool = False
    disabled: bool = False
    transport: TransportKind = "stdio"
    command: str = ""
    args: tuple[Credential, ...] = ()
    env: Mapping[str, Credential] = field(default_factory=dict)
    cwd: str = ""
    url: Credential | None = None
    headers: Mapping[str, Credential] = field(default_factory=dict)
    start_seconds: float | None = None
    call_seconds: float | None = None
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """The name as a part of tool names: letters, digits, hyphens and single underscores, at most 24 characters."""
        return _UNSUITED.sub("_", self.name).strip("_")[:_LONGEST_LABEL].strip("_") or "server"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the texts of an entry can refer to: variables of the environment, the project folder and the user's folder."""

    variables: Mapping[str, str]
    folder: Path
    home: Path
    read_file: Callable[[Path], str]

    def value(self, name: str) -> str | None:
        """The value of a name between `${` and `}`; `None` if it has none."""
        known = {"workspaceFolder": str(self.folder), "cwd": str(self.folder), "CLAUDE_PROJECT_DIR": str(self.folder)}
        known |= {"userHome": str(self.home), "workspaceFolderBasename": self.folder.name, "pathSeparator": "/", "/": "/"}
        found = self.variables.get(name.removeprefix("env:"))
        return known.get(name) if found is None else found


class BadEntry(ValueError):
    """An entry that defines no server; `key` is the field that is wrong."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Expansion:
    """Replaces `${NAME}`, `${NAME:-default}` and `${env:NAME}` in texts. A name without a value stays as it is, and is in `unset`."""

    def __init__(self, around: Surroundings, *, active: bool) -> None:
        self._around = around
        self._active = active
        self.unset: list[str] = []

    def __call__(self, text: str) -> str:
        """The text with its variables replaced. Raises `BadEntry` if it wants an input of the user."""
        return _VARIABLE.sub(self._replace, text) if self._active else text

    def _replace(self, found: re.Match[str]) -> str:
        name, has_default, default = found[1].partition(":-")
        if name.startswith(("input:", "command:")):
            raise BadEntry("inputs", f"{found[0]} asks for an input, which cannot be given here; use a variable of the environment")
        value = self._around.value(name)
        if value:
            return value
        if has_default:
            return default
        if _NAME.fullmatch(name.removeprefix("env:")) is not None and value is None:
            self.unset.append(name.removeprefix("env:"))
            return found[0]
        return value if value is not None else found[0]


def server_of(name: str, entry: object, origin: Path, around: Surroundings, *, project: bool = False) -> tuple[McpServer, tuple[str, ...]]:
    """The server that an entry defines, and the variables that it names and that are not set. Raises `BadEntry` if it defines none.

    Unknown fields are ignored. Codex replaces no variables in its TOML files, so neither does this.
    """
    if not isinstance(entry, dict):
        raise BadEntry("", "it must be a table")
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise BadEntry("", f"the name of a server has 1 to {_LONGEST_NAME} printable characters")
    expand = Expansion(around, active=origin.suffix != ".toml")
    words = _words(entry.get("command"), "command") if isinstance(entry.get("command"), list) else ()
    command = words[0] if words else _text(entry, "command")
    url = next((found for key in ("url", "httpUrl", "serverUrl") if (found := _text(entry, key))), "")
    transport = _transport(entry, command, url)
    server = McpServer(
        name=name,
        origin=origin,
        definition=msgspec.json.encode(entry, order="sorted", enc_hook=str),
        project=project,
        disabled=entry.get("disabled") is True or entry.get("enabled") is False,
        transport=transport,
        command=expand(command) if transport == "stdio" else "",
        args=tuple(Credential(expand(word)) for word in (*words[1:], *_words(entry.get("args"), "args"))),
        env=_environment(entry, around, expand),
        cwd=expand(_text(entry, "cwd")),
        url=Credential(expand(url)) if transport != "stdio" else None,
        headers=_headers(entry, around, expand),
        start_seconds=_seconds(entry, "startup_timeout_sec", "startup_timeout_ms"),
        call_seconds=_seconds(entry, "tool_timeout_sec", "timeout"),
        only=_names(entry, "enabled_tools", "includeTools"),
        without=_names(entry, "disabled_tools", "excludeTools") or frozenset(),
    )
    return server, tuple(dict.fromkeys(expand.unset))


def _transport(entry: Mapping[str, Any], command: str, url: str) -> TransportKind:
    kind = entry.get("type", entry.get("transport", ""))
    if kind and (not isinstance(kind, str) or kind not in _TRANSPORTS):
        raise BadEntry("type", f"it must be one of stdio, http, sse and streamable-http, not {str(kind)[:40]!r}")
    found: TransportKind = _TRANSPORTS[kind] if kind else "stdio" if command else "http"
    if found == "stdio" and not command:
        raise BadEntry("command", "a server of the kind stdio needs a command")
    if found != "stdio" and not url.startswith(("http://", "https://", "${")):
        raise BadEntry("url", "a server needs a command, or a URL that begins with http:// or https://")
    return found


def _environment(entry: Mapping[str, Any], around: Surroundings, expand: Expansion) -> dict[str, Credential]:
    """The variables of the server itself: of its file, of its table, and those of ours that Codex names to be passed on."""
    found: dict[str, str] = {}
    file = _text(entry, "envFile")
    if file:
        try:
            found |= _variables_in(around.read_file(around.folder / Path(expand(file)).expanduser()))
        except (OSError, ValueError) as error:
            raise BadEntry("envFile", f"the file cannot be read ({error})") from error
    for key in ("env", "environment"):
        found |= {name: expand(text) for name, text in _texts(entry, key).items()}
    passed = entry.get("env_vars")
    for each in passed if isinstance(passed, list) else ():
        name = each.get("name") if isinstance(each, dict) else each
        if isinstance(name, str) and name in around.variables:
            found[name] = around.variables[name]
    return {name: Credential(text) for name, text in found.items()}


def _variables_in(text: str) -> dict[str, str]:
    """The variables of a file with lines `NAME=value`; values may stand in quotes."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, is_set, value = line.strip().removeprefix("export ").partition("=")
        if is_set and _NAME.fullmatch(name.strip()) is not None:
            bare = value.strip()
            quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\""
            found[name.strip()] = bare[1:-1] if quoted else bare
    return found


def _headers(entry: Mapping[str, Any], around: Surroundings, expand: Expansion) -> dict[str, Credential]:
    found = {name: expand(text) for key in ("headers", "http_headers") for name, text in _texts(entry, key).items()}
    for name, variable in _texts(entry, "env_http_headers").items():
        if variable in around.variables:
            found[name] = around.variables[variable]
    token = _text(entry, "bearer_token_env_var")
    if token and token in around.variables:
        found["Authorization"] = f"Bearer {around.variables[token]}"
    return {name: Credential(text) for name, text in found.items()}


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key) or ""
    if not isinstance(value, str) or "\0" in value:
        raise BadEntry(key, "it must be a text")
    return value


def _words(value: object, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str | int | float) and "\0" not in str(word) for word in value):
        raise BadEntry(key, "it must be a list of texts")
    return tuple(str(word) for word in value)


def _texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str | int | float) and "\0" not in str(text) for text in value.values()):
        raise BadEntry(key, "it must be a table of texts")
    return {str(name): _written(text) for name, text in value.items() if "\0" not in str(name) and "=" not in str(name)}


def _written(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(entry: Mapping[str, Any], *keys: str) -> frozenset[str] | None:
    found = [entry[key] for key in keys if isinstance(entry.get(key), list)]
    return frozenset(name for names in found for name in names if isinstance(name, str)) if found else None


def _seconds(entry: Mapping[str, Any], *keys: str) -> float | None:
    """The first of some time limits in seconds, at most an hour; those named `timeout` or `…_ms` may be milliseconds."""
    for key in keys:
        value = entry.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            in_ms = key.endswith("_ms") or (key == "timeout" and value >= _LEAST_MS)
            return min(_LONGEST_S, value / 1_000 if in_ms else float(value))
    return None


def entries_in(table: Mapping[str, Any], folder: Path) -> Iterable[tuple[str, str, object]]:
    """Yield place, name and entry of each server in a decoded file; those of the project folder in Claude Code's own file come first."""
    projects = table.get("projects")
    own = projects.get(str(folder)) if isinstance(projects, dict) else None
    if isinstance(own, dict) and isinstance(own.get("mcpServers"), dict):
        yield from ((f"projects.{folder}.mcpServers", name, entry) for name, entry in own["mcpServers"].items())
    inner = table.get("mcp")
    nested = inner.get("servers") if isinstance(inner, dict) else None
    places: dict[str, object] = {key: table.get(key) for key in ("mcpServers", "mcp_servers", "servers")}
    places["mcp.servers" if nested is not None else "mcp"] = nested if nested is not None else inner
    for place, servers in places.items():
        if isinstance(servers, dict):
            yield from ((place, str(name), entry) for name, entry in servers.items())
