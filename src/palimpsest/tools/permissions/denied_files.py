"""Which files rules restrict, by every name that they have: the path as it is written, links followed, and other hard links."""

import os
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.tools.files.search import SKIPPED
from palimpsest.tools.permissions.git_trust import tracked_files
from palimpsest.tools.permissions.rule_patterns import literal_start, path_expression, path_forms
from palimpsest.tools.permissions.rules import Rule, path_specificity, winner
from palimpsest.tools.workspace import Workspace

_MOST_ENTRIES: Final = 50_000
_MOST_HIDDEN: Final = 200
"""Files that a sandbox hides from a command; each is a mount, which takes a millisecond."""
# Git keeps contents compressed there, so that no search shows them.
_REPOSITORY: Final = ".git"
_OBJECTS: Final = (_REPOSITORY, "objects")


class Hidden(NamedTuple):
    """What a sandbox keeps from a command: `files` that it cannot read, and `folders` whose names it cannot change, as rules go by them."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


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

    def below(self, folder: Path, chosen: Callable[[str], bool] = bool) -> tuple[Path, Rule] | None:
        """A file in a folder that a rule restricts, of those with a chosen name. Raises `ValueError` if there are too many to be sure."""
        if not self.restrict:
            return None
        for path in (path for path in _files(folder) if chosen(path.name)):
            rule = self.restricting(Path(os.path.realpath(path)) if path.is_symlink() else path, path)
            if rule is not None:
                return path, rule
        return None

    def meant_below(self, folder: Path) -> Rule | None:
        """A rule that restricts something in a folder by its place, whether or not there is such a file yet."""
        for rule in (rule for rule in self.rules if rule.effect != "allow"):
            for form in path_forms(rule.pattern, wide=True, root=self.workspace.root, home=self.home):
                start = self.workspace.root / literal_start(form.glob)
                if not form.floating and literal_start(form.glob).strip("/") and (folder == start or folder in start.parents):
                    return rule
        return None

    def hidden(self, visible: tuple[Path, ...] = ()) -> Hidden:
        """The existing files whose reading a rule restricts, links followed, in the workspace and in what else is `visible`.

        What packages of others have in `node_modules`, `.venv` and the like counts only for rules that name such a folder. Raises
        `ValueError`, with the reason, if there are too many files or if git has copies of one.
        """
        rules = [rule for rule in self.rules if rule.effect != "allow"]
        if not rules:
            return Hidden()
        if unlimited := next((rule for rule in rules if not rule.pattern), None):
            raise ValueError(f"the rule `{unlimited}` is about every file")
        skipped = frozenset(name for name in SKIPPED if not any(name in rule.pattern for rule in rules))
        tops, covers = self._tops(rules, visible), self._quick(rules)
        entries = [path for top in tops for path in _names(top, skipped)]
        repositories = [path.parent for path in entries if path.name == _REPOSITORY]
        names = [path for path in entries if path.name != _REPOSITORY or path.is_file()]
        found: dict[Path, None] = {}
        for path in (path for path in names if covers(path)):
            real = Path(os.path.realpath(path))
            seen = real.exists() and any(top == real or top in real.parents for top in tops)
            if seen and self.restricting(real, path) is not None:
                found |= dict.fromkeys(_names(real, frozenset()) if real.is_dir() else [real])
        linked = {identity for path in found if (identity := _linked_identity(path)) is not None}
        found |= dict.fromkeys(path for path in names if linked and not path.is_symlink() and _linked_identity(path) in linked)
        if len(found) > _MOST_HIDDEN:
            raise ValueError(f"rules restrict more than {_MOST_HIDDEN} files here, such as {self.workspace.shown(next(iter(found)))}")
        gone = {path for folder in repositories for path in tracked_files(folder) or () if covers(path)}.difference(names)
        deleted = [
            path for path in gone if skipped.isdisjoint(self.workspace.shown(path).split("/")) and self.restricting(path, path) is not None
        ]
        self._refuse_copies({*found, *deleted}, (self.workspace.root, *self.workspace.extra, *repositories))
        # A rule for a name alone holds wherever the file is moved with its folder.
        moved = {path: self._by_name(self.workspace.root / "elsewhere" / path.name) for path in found}
        bound = [path for path, rule in moved.items() if rule is None or rule.effect == "allow"]
        writable = (self.workspace.root, *self.workspace.extra)
        folders = {folder for path in bound for top in writable for folder in path.parents if top in folder.parents}
        return Hidden(tuple(found), tuple(sorted(folders)))

    def _tops(self, rules: list[Rule], visible: tuple[Path, ...]) -> list[Path]:
        """The folders to search: the workspace, the repository around it, and what rules name elsewhere."""
        root = self.workspace.root
        around = [path for path in visible if path in root.parents and (path / ".git").exists()]
        tops = [*around[:1], root, *self.workspace.extra]
        for rule in rules:
            for form in path_forms(rule.pattern, wide=True, root=root, home=self.home):
                start = Path(literal_start(form.glob) or "/") if form.absolute else root
                # `/**/x` is meant to begin at the top of the project.
                if start != Path("/") or rule.pattern.startswith("//"):
                    tops += [max(start, path, key=lambda each: len(each.parts)) for path in visible if _overlap(start, path)]
        return [top for place, top in enumerate(tops) if not any(other == top or other in top.parents for other in tops[:place])]

    def _quick(self, rules: list[Rule]) -> Callable[[Path], bool]:
        """Whether a rule may restrict a path by its name, told in microseconds."""
        forms = [form for rule in rules for form in path_forms(rule.pattern, wide=True, root=self.workspace.root, home=self.home)]
        of_full, of_inner = (
            [path_expression(form, wide=True) for form in forms if (form.absolute or form.floating) is full] for full in (True, False)
        )

        def covers(path: Path) -> bool:
            full, inner = (unicodedata.normalize("NFC", text) for text in (str(path), self.workspace.shown(path)))
            return any(each.fullmatch(full) for each in of_full) or any(each.fullmatch(inner) for each in of_inner)

        return covers

    def _refuse_copies(self, found: Collection[Path], folders: Collection[Path]) -> None:
        """Raise `ValueError` if git tracks one of the files in a repository of these folders: every program can ask git for its copies."""
        for folder in dict.fromkeys(folders) if found else ():
            tracked = tracked_files(folder)
            if tracked is None:
                raise ValueError(f"git may have a copy of {self.workspace.shown(next(iter(found)))}, which a rule restricts")
            if copies := set(found) & set(tracked):
                raise ValueError(f"git has a copy of {self.workspace.shown(min(copies))}, which a rule restricts")

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


def _overlap(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def _linked_identity(path: Path) -> tuple[int, int] | None:
    """What a regular file with several names is known by; `None` for any other path."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return (facts.st_dev, facts.st_ino) if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1 else None


def _names(top: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """A file, or all names below a folder but those of folders; links to folders are among them."""
    yield from _files(top, skipped, links=True) if top.is_dir() else [top]


def _files(folder: Path, skipped: frozenset[str] = frozenset(), *, links: bool = False) -> Iterator[Path]:
    """All names below a folder but those of folders; with `links` also links to folders and the `.git` of each repository.

    Raises `ValueError` for too many.
    """
    count = 0
    for place, folders, names in os.walk(folder):
        if links and _REPOSITORY in folders:
            yield Path(place) / _REPOSITORY
        folders[:] = [name for name in folders if name not in skipped and (Path(place).name, name) != _OBJECTS]
        count += len(names) + len(folders)
        if count > _MOST_ENTRIES:
            raise ValueError(f"{folder} has more than {_MOST_ENTRIES:,} entries")
        yield from (Path(place) / name for name in names)
        if links:
            yield from (path for name in folders if (path := Path(place) / name).is_symlink())
