"""Which files rules restrict, by every name that they have: the path as it is written, links followed, and other hard links."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from palimpsest.tools.files.search import SKIPPED
from palimpsest.tools.permissions.rules import Rule, path_specificity, winner
from palimpsest.tools.workspace import Workspace

_MOST_ENTRIES: Final = 50_000
# Git keeps contents compressed there, so that no search shows them.
_OBJECTS: Final = (".git", "objects")


@dataclass(slots=True)
class FileRules:
    """Rules about files, for one decision: what the disk says is looked up once.

    A rule that restricts holds for a file if any name of the file matches; a rule that allows only if its real path does.
    """

    rules: tuple[Rule, ...]
    workspace: Workspace
    home: Path
    _linked: dict[tuple[int, int], Rule] | None = field(default=None, repr=False)

    @property
    def restrict(self) -> bool:
        """Whether some rule denies or asks."""
        return any(rule.effect != "allow" for rule in self.rules)

    def rule_for(self, path: Path, written: Path | None = None) -> Rule | None:
        """The rule that decides about a file at a real path, and at the path that was `written`; `None` if no rule matches.

        Raises `ValueError` if a hard link may lead to a restricted file and there are too many files to be sure.
        """
        found = self._by_name(path)
        if found is not None and found.effect == "deny":
            return found
        names = [] if written is None else [Path(os.path.normpath(written)), Path(os.path.realpath(written.parent)) / written.name]
        others = [self._by_name(name) for name in names if name != path]
        restricting = [rule for rule in (found, *others, self._by_link(path)) if rule is not None and rule.effect != "allow"]
        return max(restricting, key=lambda rule: rule.effect == "deny", default=found)

    def restricting(self, path: Path, written: Path | None = None) -> Rule | None:
        """The rule that denies or asks about reading a file; `None` if there is none. Raises `ValueError` as `rule_for`."""
        rule = self.rule_for(path, written)
        return None if rule is None or rule.effect == "allow" else rule

    def below(self, folder: Path) -> tuple[Path, Rule] | None:
        """A file in a folder that a rule restricts, with the rule. Raises `ValueError` if there are too many files to be sure."""
        if not self.restrict:
            return None
        for path in _files(folder):
            rule = self.restricting(Path(os.path.realpath(path)) if path.is_symlink() else path, path)
            if rule is not None:
                return path, rule
        return None

    def _by_name(self, path: Path) -> Rule | None:
        shown = self.workspace.shown(path)
        return winner((rule, path_specificity(rule, shown, self.workspace.root, self.home)) for rule in self.rules)

    def _by_link(self, path: Path) -> Rule | None:
        """The rule that restricts another name of the same file."""
        identity = _linked_identity(path) if self.restrict else None
        if identity is None:
            return None
        if self._linked is None:
            self._linked = {}
            for each in (path for folder in (self.workspace.root, *self.workspace.extra) for path in _files(folder, SKIPPED)):
                other = _linked_identity(each)
                rule = self._by_name(each) if other is not None else None
                if other is not None and rule is not None and rule.effect != "allow":
                    self._linked[other] = rule
        return self._linked.get(identity)


def _linked_identity(path: Path) -> tuple[int, int] | None:
    """What a regular file with several names is known by; `None` for any other path."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return (facts.st_dev, facts.st_ino) if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1 else None


def _files(folder: Path, skipped: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All names below a folder but those of folders. Raises `ValueError` if there are too many."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in skipped and (Path(place).name, name) != _OBJECTS]
        count += len(names) + len(folders)
        if count > _MOST_ENTRIES:
            raise ValueError(f"{folder} has more than {_MOST_ENTRIES:,} entries")
        yield from (Path(place) / name for name in names)
