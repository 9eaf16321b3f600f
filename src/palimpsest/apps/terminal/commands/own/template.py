"""The text of a command file: its front matter, and its body with arguments in place of `$ARGUMENTS` and `$1`."""

import re
import shlex
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.format.front_matter import read_front_matter

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
