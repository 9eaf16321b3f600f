"""MCP servers from files of the user and the project, and the project's commands and hooks, which run only if trusted."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.redaction import Credential
from palimpsest.stores.config import HookConfig
from palimpsest.stores.config_files import ConfigProblem, find_project_file, git_root, read_config, read_text
from palimpsest.stores.home import Home
from palimpsest.stores.trust import ProjectCommand, ProjectTrust

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
    command = words[0] if words else _text_of_entry(entry, "command")
    url = next((found for key in ("url", "httpUrl", "serverUrl") if (found := _text_of_entry(entry, key))), "")
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
        cwd=expand(_text_of_entry(entry, "cwd")),
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
    file = _text_of_entry(entry, "envFile")
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
    token = _text_of_entry(entry, "bearer_token_env_var")
    if token and token in around.variables:
        found["Authorization"] = f"Bearer {around.variables[token]}"
    return {name: Credential(text) for name, text in found.items()}


def _text_of_entry(entry: Mapping[str, Any], key: str) -> str:
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


PROJECT_SERVERS: Final = ".mcp.json"
USER_SERVERS: Final = Path(".config/palimpsest/mcp.json")
MOST_SERVERS: Final = 100
# Claude Code keeps its servers in a file that has much else.
_MOST_BYTES: Final = 16 * 1024 * 1024
# Texts in quotes stay; comments go, and then commas before a closing bracket. What is not closed reaches to the end, so that no text is
# read more than once, however it was made.
_TEXT: Final = r'("[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z))'
_COMMENT: Final = re.compile(_TEXT + r"|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA: Final = re.compile(_TEXT + r"|,\s*(?=[}\]])", re.DOTALL)


class ConfiguredServers(Struct, frozen=True):
    """The servers of some files in the order of their precedence, and what is wrong with the files."""

    servers: tuple[McpServer, ...] = ()
    problems: tuple[ConfigProblem, ...] = ()


def configured_servers(
    root: Path, variables: Mapping[str, str], *, files: Iterable[Path] = (), home: Path | None = None
) -> ConfiguredServers:
    """Return the servers for work in a project: of the user's own file, of `files`, and of the project, the first of a name wins.

    A project so cannot replace a server of the user. Of the files of the project, from the folder up to its git root, the nearest wins.
    What is wrong with an entry is a problem, and the other entries stay.
    """
    user = Path.home() if home is None else home
    found: dict[str, McpServer] = {}
    problems: list[ConfigProblem] = []
    own, shared = user / USER_SERVERS, project_files(root)
    for path in dict.fromkeys((own, *(_expanded(file, user) for file in files), *shared)):
        folder = path.parent if path in shared else root.resolve()
        around = Surroundings(variables, folder, user, read_text)
        read = servers_in(path, around, project=path in shared, required=path not in (own, *shared))
        problems += read.problems
        for server in read.servers:
            known = found.setdefault(server.label, server)
            if known.definition != server.definition and not known.project:
                problems.append(ConfigProblem(f"{path}: {server.name}", f"it is left out: {known.origin} has a server of this name"))
    return ConfiguredServers(tuple(found.values())[:MOST_SERVERS], tuple(problems))


def servers_in(path: Path, around: Surroundings, *, project: bool = False, required: bool = False) -> ConfiguredServers:
    """Return the servers of one file. One that does not exist has none, which is a problem only if it is `required`."""
    try:
        table = _decoded_table(path, None if project else _MOST_BYTES)
    except FileNotFoundError:
        return ConfiguredServers(problems=(ConfigProblem(str(path), "there is no such file"),) if required else ())
    except OSError as error:
        return ConfiguredServers(problems=(ConfigProblem(str(path), f"the file cannot be read: {error.strerror or error}"),))
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        return ConfiguredServers(problems=(ConfigProblem(str(path), f"this is not valid {kind}: {error}"),))
    servers: dict[str, McpServer] = {}
    problems: list[ConfigProblem] = []
    for place, name, entry in entries_in(table, around.folder):
        where = f"{path}: {place}.{name}"
        try:
            server, unset = server_of(name, entry, path, around, project=project)
        except BadEntry as error:
            problems.append(ConfigProblem(f"{where}.{error.key}" if error.key else where, f"{error}; the server is left out"))
            continue
        if server.label not in servers and len(servers) < MOST_SERVERS:
            servers[server.label] = server
            problems += [ConfigProblem(where, f"the variable {name} is not set") for name in unset if not server.disabled]
        elif servers.get(server.label, server).definition != server.definition:
            problems.append(ConfigProblem(where, "the server is left out: another one in this file has this name"))
    return ConfiguredServers(tuple(servers.values()), tuple(problems))


def project_files(root: Path) -> tuple[Path, ...]:
    """Return where the project of a folder may name servers, the nearest first: up to its git root, or in the folder itself without one."""
    here, top = root.resolve(), git_root(root)
    return tuple(folder / PROJECT_SERVERS for folder in (here, *here.parents) if folder == top or top in folder.parents)


def project_servers(root: Path) -> tuple[ProjectCommand, ...]:
    """Return the servers that the project's own files want started, which need trust; a file that cannot be read has none."""
    found: dict[str, McpServer] = {}
    for path in project_files(root):
        around = Surroundings({}, path.parent, Path.home(), read_text)
        for server in servers_in(path, around, project=True).servers:
            found.setdefault(server.label, server)
    return tuple(project_command(server) for server in found.values() if not server.disabled)


def project_command(server: McpServer) -> ProjectCommand:
    """Return what the user trusts when a server of a project is trusted: its whole entry, before variables are replaced."""
    return ProjectCommand("mcp", server.name, server.definition)


def _decoded_table(path: Path, most_bytes: int | None) -> dict[str, Any]:
    """The table of a JSON or TOML file; JSON may have comments and commas at the end. Raises `OSError` or `ValueError`."""
    text = read_text(path) if most_bytes is None else read_text(path, most_bytes)
    if path.suffix == ".toml":
        return tomllib.loads(text)
    try:
        value = json.loads(text)
    except ValueError:
        plain = _COMMENT.sub(lambda found: found[1] or "", text)
        value = json.loads(_LAST_COMMA.sub(lambda found: found[1] or "", plain))
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - the caller gets one kind of error for all that is wrong with a file
    return value


def _expanded(path: Path, home: Path) -> Path:
    return home / Path(*path.parts[1:]) if path.parts[:1] == ("~",) else path


_HOOKS = "hooks"


class ProjectHook(NamedTuple):
    """A hook of a project's file, and the command that the user has to trust."""

    config: HookConfig
    command: ProjectCommand


def project_hooks(folder: Path, user_file: Path | None = None) -> tuple[ProjectHook, ...]:
    """The hooks of the project's `.palimpsest/config.toml`; none if it cannot be read.

    `user_file` is the user's own configuration, which is no file of a project.
    """
    path = find_project_file(folder, user_file)
    declared = () if path is None else read_config(path).values.get(_HOOKS, ())
    hooks = [hook for hook in declared if isinstance(hook, HookConfig)] if isinstance(declared, tuple) else []
    return tuple(ProjectHook(hook, ProjectCommand("hook", hook.called, _definition(hook))) for hook in hooks)


def trust_of(home: Home, folder: Path) -> ProjectTrust:
    """What the user trusts of the project of a folder: that of its git root, or of the folder itself outside of git."""
    return ProjectTrust(home, git_root(folder))


def _definition(hook: HookConfig) -> bytes:
    """All fields as JSON, also those at their default, so that another default in a later version is a change too."""
    return msgspec.json.encode(hook, order="deterministic")


def project_commands(folder: Path, user_file: Path | None = None) -> tuple[ProjectCommand, ...]:
    """All commands that the project of a folder wants started, in the order of its files.

    `user_file` is the user's own configuration, which is no file of a project. A file that cannot be read has none.
    """
    return (*(hook.command for hook in project_hooks(folder, user_file)), *project_servers(folder))
