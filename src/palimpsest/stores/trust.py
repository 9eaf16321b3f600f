"""Permission rules of a project, and digests of the commands that the user trusts, in the home where no project can write."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.stores.files import open_in_folder, read_regular, store_error, write_private

_COMMENT: Final = "#"


class FilePermissionRules:
    """Rules in a folder of a home (`permissions/`), one file a project, one rule a line, oldest first."""

    def __init__(self, home: Path, project: Path, folder: str = "permissions") -> None:
        self._project = os.path.realpath(project)
        self._path = home / folder / f"{sha256(os.fsencode(self._project)).hexdigest()[:32]}.rules"

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        return self._path

    def load(self) -> tuple[str, ...]:
        """All rules; none if there is no file. Raises `StoreError` if it cannot be read, `BadInput` if it is not UTF-8 text."""
        try:
            data = read_regular(self._path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise store_error(error, self._path, "read") from error
        return rules_of(data, str(self._path))

    def add(self, rule: str) -> None:
        """Append a rule that is not there yet, durably. Raises `BadInput` if it is no single line, `StoreError` if it cannot be written."""
        text = _one_line(rule)
        with self._locked():
            rules = self.load()
            if text not in rules:
                self._write((*rules, text))

    def remove(self, rule: str) -> bool:
        """Delete a rule and return whether it was there. Raises `StoreError` if the file cannot be written."""
        with self._locked():
            rules = self.load()
            if rule in rules:
                self._write(tuple(each for each in rules if each != rule))
            return rule in rules

    def _write(self, rules: tuple[str, ...]) -> None:
        # The name of the file is a digest, so its first line says which project it is about.
        shown = self._project.encode("unicode_escape").decode()
        write_private(self._path, "".join(f"{line}\n" for line in (f"{_COMMENT} {shown}", *rules)).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock between reading and writing, so that two processes lose no rule."""
        place = self._path.with_suffix(".lock")
        try:
            handle = open_in_folder(place, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise store_error(error, place, "lock the rules with") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class MemoryPermissionRules:
    """Rules in memory, for homes without a folder."""

    def __init__(self, rules: tuple[str, ...] = ()) -> None:
        self._rules = rules

    def load(self) -> tuple[str, ...]:
        """All rules."""
        return self._rules

    def add(self, rule: str) -> None:
        """Append a rule that is not there yet. Raises `BadInput` if it is no single line."""
        text = _one_line(rule)
        self._rules = self._rules if text in self._rules else (*self._rules, text)

    def remove(self, rule: str) -> bool:
        """Delete a rule and return whether it was there."""
        found = rule in self._rules
        self._rules = tuple(each for each in self._rules if each != rule)
        return found


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
