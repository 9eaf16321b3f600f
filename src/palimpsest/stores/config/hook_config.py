"""A hook as a configuration file declares it, and the name of one that has none."""

import shlex
from pathlib import PurePath
from typing import Annotated, Final

from msgspec import Meta, Struct

from palimpsest.core.events.tools import HookMoment

HOOK_SECONDS: Final = 60.0
MOST_HOOKS: Final = 100
_NAME_CHARS: Final = 40


class HookConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table `[[hooks]]`: a command that runs at a moment of a session.

    tool: pattern for the name of the tool, only for `before_tool` and `after_tool`.
    seconds: the time limit.
    """

    moment: HookMoment
    command: Annotated[str, Meta(min_length=1, max_length=10_000)]
    tool: Annotated[str, Meta(min_length=1, max_length=200)] = "*"
    seconds: Annotated[float, Meta(gt=0, le=3_600)] = HOOK_SECONDS
    name: Annotated[str, Meta(max_length=80)] = ""

    @property
    def called(self) -> str:
        """Its name, else that of its program."""
        return self.name or command_name(self.command)


def command_name(command: str) -> str:
    """The file name of the program that a shell line begins with, on one line of at most 40 characters."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    name = " ".join(PurePath(words[0]).name.split()) if words else ""
    return "".join(letter for letter in name if letter.isprintable())[:_NAME_CHARS] or "command"
