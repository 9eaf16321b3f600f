"""Finds the command files of the user and of a project, also those that are kept for Claude Code, Codex and OpenCode."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.apps.terminal.commands.own.template import CommandScope, OwnCommand, read_own_command
from palimpsest.stores.config.settings import git_root

_SUFFIX: Final = ".md"
_LARGEST: Final = 128 * 1024
_MOST_FILES: Final = 300
_MOST_LOOKED_AT: Final = 5_000
_DEEPEST: Final = 4


class CommandFolder(NamedTuple):
    """A folder with command files, and whose they are."""

    path: Path
    scope: CommandScope


def command_folders(home: Path | None, user: Path, root: Path, environment: Mapping[str, str]) -> tuple[CommandFolder, ...]:
    """Return the folders in which commands are looked for, those whose commands win first.

    `home` is the folder of the settings, `user` the user's home folder, and `root` the folder of the project.
    """
    codex = Path(environment.get("CODEX_HOME") or user / ".codex")
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or user / ".claude")
    config = Path(environment.get("XDG_CONFIG_HOME") or user / ".config")
    own = () if home is None else (home / "commands",)
    of_user = (*own, claude / "commands", codex / "prompts", config / "opencode" / "command", config / "opencode" / "commands")
    top = git_root(root)
    names = (".palimpsest/commands", ".claude/commands", ".opencode/command", ".opencode/commands")
    of_project = tuple(folder / name for folder in dict.fromkeys((root.resolve(), top)) for name in names)
    # A project that is the user's home folder must not make its files those of a project only.
    known = {folder.resolve() for folder in of_user}
    projects = (CommandFolder(folder, "project") for folder in of_project if folder.resolve() not in known)
    return (*(CommandFolder(folder, "user") for folder in of_user), *projects)


def find_own_commands(folders: Iterable[CommandFolder]) -> dict[str, OwnCommand]:
    """Return the commands of all folders by name, at most 300; the first of a name wins. A file in a folder below is `folder:name`."""
    found: dict[str, OwnCommand] = {}
    for folder in folders:
        for path in _files(folder.path):
            if len(found) >= _MOST_FILES:
                return found
            if folder.scope == "project" and not _is_inside(path, folder.path):
                # A link of a project could lead to any file of the user.
                continue
            name = ":".join(path.relative_to(folder.path).with_suffix("").parts)
            command = None if name in found else read_own_command(name, folder.scope, _text(path), str(path))
            if command is not None:
                found[name] = command
    return found


def _files(folder: Path) -> Iterator[Path]:
    looked_at = 0
    for here, below, files in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        below[:] = sorted(name for name in below if not name.startswith(".")) if depth < _DEEPEST else []
        for name in sorted(files):
            looked_at += 1
            if looked_at > _MOST_LOOKED_AT:
                return
            if name.endswith(_SUFFIX):
                yield Path(here) / name


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        # A pipe or a device would never end.
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
