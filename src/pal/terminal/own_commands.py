"""Command files of the user and of a project, also those that are kept for Claude Code, Codex and OpenCode."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from palimpsest.core.front_matter import read_front_matter
from palimpsest.stores.config_files import git_root

CommandScope: TypeAlias = Literal["user", "project"]
LONGEST_NAME: Final = 80
_LONGEST_HELP: Final = 120
_MOST_SHELL: Final = 10
_NAME: Final = re.compile(r"[\w][\w:.-]*")
_PLACE: Final = re.compile(r"\$(ARGUMENTS|[1-9][0-9]?)(?![0-9A-Za-z_])")
# A command in the middle of a text, as Claude Code and OpenCode write it.
_SHELL: Final = re.compile(r"!`([^`\n]+)`")


class OwnCommand(Struct, frozen=True):
    """A command of a file: its name, whose it is, its help, how its argument is written, its body, and the path of the file."""

    name: str
    scope: CommandScope
    help: str
    argument: str
    body: str
    path: str


def read_own_command(name: str, scope: CommandScope, text: str, path: str) -> OwnCommand | None:
    """Return the command of a file; `None` if its name cannot be typed or its body is empty."""
    front = read_front_matter(text)
    fields = {} if front is None else front.texts()
    body = (text if front is None else front.body).strip()
    if not body or len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        return None
    first = next(line for line in body.splitlines() if line.strip())
    help_ = " ".join((fields.get("description") or first.lstrip("# ")).split())[:_LONGEST_HELP]
    argument = " ".join(fields.get("argument-hint", "").split())[:_LONGEST_HELP]
    return OwnCommand(name, scope, help_, argument or ("[arguments]" if _PLACE.search(body) else ""), body, path)


def filled(command: OwnCommand, argument: str) -> str:
    """Return the body with the arguments in their places; without any place, what was typed follows the body."""
    if not _PLACE.search(command.body):
        return f"{command.body}\n\n{argument}" if argument else command.body
    words = _words(argument)

    def value(place: re.Match[str]) -> str:
        if place[1] == "ARGUMENTS":
            return argument
        number = int(place[1])
        return words[number - 1] if number <= len(words) else ""

    # One pass: what stands in an argument is never a place itself.
    return _PLACE.sub(value, command.body)


def shell_lines(text: str) -> tuple[str, ...]:
    """Return the commands that a text wants run before it is sent, each once, at most ten."""
    return tuple(dict.fromkeys(line.strip() for line in _SHELL.findall(text) if line.strip()))[:_MOST_SHELL]


def with_outputs(text: str, outputs: dict[str, str]) -> str:
    """Return the text with the output of each command in its place; those without one are left to the model, which has to ask."""

    def shown(found: re.Match[str]) -> str:
        line = found[1].strip()
        return outputs.get(line, f"(run `{line}` with bash and use its output)")

    return _SHELL.sub(shown, text)


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:
        # An apostrophe is no quote to people who write a sentence.
        return argument.split()


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
            command = None if name in found else read_own_command(name, folder.scope, _file_text(path), str(path))
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


def _file_text(path: Path) -> str:
    try:
        # A pipe or a device would never end.
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
