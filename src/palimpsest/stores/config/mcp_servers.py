"""Reads the files that name MCP servers: the user's own, those of other clients that the user names, and the project's `.mcp.json`."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from palimpsest.stores.config.mcp_entries import BadEntry, McpServer, Surroundings, entries_in, server_of
from palimpsest.stores.config.reading import ConfigProblem, read_text
from palimpsest.stores.config.settings import git_root
from palimpsest.stores.permissions.trust import ProjectCommand

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
        table = _decoded(path, None if project else _MOST_BYTES)
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


def _decoded(path: Path, most_bytes: int | None) -> dict[str, Any]:
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
