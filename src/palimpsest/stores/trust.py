"""Permission rules of a project, and digests of the commands that the user trusts, in the home where no project can write."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.stores.home import Home

_COMMENT: Final = "#"


class PermissionRules:
    """Rules of a project in a document of a home (`permissions/`), one rule a line, oldest first."""

    def __init__(self, home: Home, project: Path, folder: str = "permissions") -> None:
        self._project = os.path.realpath(project)
        self._document = home.document(f"{folder}/{sha256(os.fsencode(self._project)).hexdigest()[:32]}.rules")

    def load(self) -> tuple[str, ...]:
        """All rules. Raises `StoreError` if they cannot be read, `BadInput` if the document is not UTF-8 text."""
        return self._rules_in(self._document.read())

    def add(self, rule: str) -> None:
        """Append a rule that is not there yet, durably. Raises `BadInput` if it is not one line, `StoreError` if it fails."""
        text = _one_line(rule)
        self._document.change(lambda data: data if text in (rules := self._rules_in(data)) else self._lines((*rules, text)))

    def remove(self, rule: str) -> bool:
        """Delete a rule and return whether it was there. Raises `StoreError` if that cannot be written."""
        found = rule in self.load()
        if found:
            self._document.change(lambda data: self._lines(tuple(each for each in self._rules_in(data) if each != rule)))
        return found

    def _rules_in(self, data: bytes | None) -> tuple[str, ...]:
        return () if data is None else rules_of(data, self._document.name)

    def _lines(self, rules: tuple[str, ...]) -> bytes:
        # The name of the document is a digest, so its first line says which project it is about.
        shown = self._project.encode("unicode_escape").decode()
        return "".join(f"{line}\n" for line in (f"{_COMMENT} {shown}", *rules)).encode()


def rules_of(data: bytes, where: str) -> tuple[str, ...]:
    """The rules in the bytes of a file: its lines without blank ones and comments. Raises `BadInput` if it is not UTF-8 text."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadInput("this is not UTF-8 text", where=where) from error
    return tuple(text for line in lines if (text := line.strip()) and not text.startswith(_COMMENT))


def _one_line(rule: str) -> str:
    text = rule.strip()
    if not text or not text.isprintable() or text.startswith(_COMMENT):
        raise BadInput("a rule is one line of text", where=rule[:80])
    return text


CommandKind: TypeAlias = Literal["hook", "mcp"]


class ProjectCommand(Value, frozen=True):
    """A command that a file of the project wants started with the user's authority. `definition` is all of it, as canonical JSON.

    Any change of the definition, however small, needs new trust.
    """

    kind: CommandKind
    name: str
    definition: bytes

    @property
    def digest(self) -> str:
        """The digest of kind, name and definition."""
        return sha256(b"\0".join((self.kind.encode(), self.name.encode(), self.definition))).hexdigest()


class ProjectTrust:
    """The commands of one project that the user trusts."""

    def __init__(self, home: Home, project: Path) -> None:
        self._lines = PermissionRules(home, project, "trust")
        self._trusted = frozenset(self._lines.load())

    def trusts(self, command: ProjectCommand) -> bool:
        """Whether exactly this definition was trusted."""
        return command.digest in self._trusted

    def add(self, command: ProjectCommand) -> None:
        """Trust a command from now on, durably. Raises `StoreError` if it cannot be written."""
        self._lines.add(command.digest)
        self._trusted |= {command.digest}

    def remove(self, command: ProjectCommand) -> bool:
        """Trust a command no longer; returns whether it was trusted."""
        self._trusted -= {command.digest}
        return self._lines.remove(command.digest)
