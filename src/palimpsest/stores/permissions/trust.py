"""Which commands of a project's own files the user trusts: digests of their definitions, in the home, which no project can write."""

from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from palimpsest.core.items import Value
from palimpsest.stores.permissions.rules import FilePermissionRules, MemoryPermissionRules

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
    """The commands of one project that the user trusts; without a folder for the home, in memory."""

    def __init__(self, home: Path | None, project: Path) -> None:
        self._lines = MemoryPermissionRules() if home is None else FilePermissionRules(home, project, "trust")
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
