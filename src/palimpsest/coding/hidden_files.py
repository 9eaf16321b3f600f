"""Files that permission rules restrict, by every name that they have, and the files that a command can show."""

import os
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.agent.workspace import Workspace
from palimpsest.audit.shell_lines import program_name
from palimpsest.coding.places import Places, real_path
from palimpsest.coding.read_only import (
    git_prints_no_file,
    git_reads,
    git_shows,
    is_reader,
    lists_names,
    paths_read,
    repository_of,
    searched_names,
    searches_folders,
    substitutes,
    tracked_files,
)
from palimpsest.coding.rules import Rule, literal_start, path_expression, path_forms, path_specificity, winner
from palimpsest.coding.shell_lines import LineCommand, Word
from palimpsest.coding.tools.search import SKIPPED

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


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """Judges what commands can show by the rules about files."""

    files: FileRules

    def named(self, word: Word, places: Places) -> Iterator[Rule]:
        """The rules that restrict files that a word names, but those for all files."""
        if not self.files.restrict:
            return
        for written, real in places.named(word) or ():
            try:
                rule = self.files.restricting(real, written)
            except ValueError:
                continue
            if rule is not None and rule.pattern:
                yield rule

    def reason(self, command: LineCommand, places: Places) -> str:
        """Why a command may show the content of a file that a rule restricts; empty if it cannot, or if it is not known what it does."""
        if not self.files.restrict or not command.words:
            return ""
        name = program_name(command.texts[0])
        try:
            if name == "git":
                return self._git(command, places)
            return self._reader(name, command, places) if is_reader(name) and not lists_names(command) else ""
        except ValueError:
            return f"`{name}` reads more files than can be checked against the rules"

    def _reader(self, name: str, command: LineCommand, places: Places) -> str:
        unsure = f"`{name}` may show a file that a rule restricts"
        paths, recursive = paths_read(command), searches_folders(command)
        # With other options a program may take files from its arguments in another way; a script of `sed` can too.
        if recursive is None or (paths is None and not substitutes(command)):
            return unsure
        for word in command.words[1:] if paths is None else paths:
            found = places.named(word)
            if found is None or "{}" in word.text:
                return unsure
            for written, real in found:
                if shown := self._file(name, real, written):
                    return shown
                if recursive and real.is_dir() and (shown := self._folder(command, real)):
                    return shown
        if recursive and not paths:
            return next(filter(None, (self._folder(command, folder) for folder in places.folders)), "")
        return ""

    def _git(self, command: LineCommand, places: Places) -> str:
        unsure = "`git` may show a file that a rule restricts"
        shown = git_shows(command) if git_reads(command) else () if git_prints_no_file(command) else "anything"
        for folder in places.folders:
            if shown == "anything":
                return unsure
            found = tracked_files(folder) if shown == "index" else self._paths(shown, folder)
            if found is None:
                return unsure
            if reason := next(filter(None, (self._file("git", path, path) for path in found)), ""):
                return reason
        return ""

    @staticmethod
    def _paths(shown: tuple[str, ...], folder: Path) -> tuple[Path, ...] | None:
        """The files that git names; `None` if one could be a folder, now or in the past, with any files."""
        top = repository_of(folder)
        if top is None:
            return () if not shown else None
        found = tuple(top / each[1:] if each.startswith(":") else folder / each for each in shown)
        return found if all(each.startswith(":") or path.is_file() for each, path in zip(shown, found, strict=True)) else None

    def _file(self, name: str, real: Path, written: Path) -> str:
        rule = self.files.restricting(real_path(real) or real, written)
        return "" if rule is None else f"`{name}` may show {self.files.workspace.shown(real)}, which the rule `{rule}` restricts"

    def _folder(self, command: LineCommand, folder: Path) -> str:
        found = self.files.below(folder, searched_names(command))
        if found is None:
            return ""
        name, path = program_name(command.texts[0]), self.files.workspace.shown(found[0])
        return f"`{name}` may show {path}, which the rule `{found[1]}` restricts"


_BRINGING: Final = frozenset({"cp", "mv", "ln"})
_MOST_FILES: Final = 5_000


def brought(commands: Iterable[LineCommand], places: Places, edited: FileRules, *, alone: bool) -> Iterator[Rule]:
    """The rules that restrict files which commands of a line bring to a new place. `alone` is whether nothing else of the line writes.

    Raises `ValueError` where that is not certain.
    """
    for command in commands:
        if command.texts[:1] and command.texts[0] in _BRINGING:
            yield from _brought(command, places, edited, alone=alone)


def values_of_options(words: Iterable[Word]) -> Iterator[Word]:
    """What may stand in the same word as an option: `--target-directory=FOLDER`, `-tFOLDER`, and behind other letters, `-vtFOLDER`."""
    for word in words:
        text = word.text
        long = text.startswith("--")
        values = [text.partition("=")[2]] if long else [text[place:] for place in range(2, len(text))] if text.startswith("-") else []
        yield from (Word(value, word.static, word.glob) for value in values if value)


def _brought(command: LineCommand, places: Places, edited: FileRules, *, alone: bool) -> Iterator[Rule]:
    options, operands = _divided(command.words[1:])
    if any(map(_keeps_backups, options)):
        raise ValueError("it keeps backups under other names")
    # `-t` names the folder; without it the last word does.
    before = any(word.text.startswith("--t") or (not word.text.startswith("--") and "t" in word.text) for word in options)
    sources = _named(operands if before else operands[:-1], places)
    # What another command of the line makes, or finds by a link, is not there yet.
    if not alone and (command.texts[0] == "ln" or any(written.is_symlink() or not real.is_file() for written, real in sources)):
        raise ValueError("what it brings may be another file when it runs")
    targets = [real for _, real in _named([*operands, *values_of_options(options)] if before else operands[-1:], places)]
    count = 0
    for written, real in sources:
        for inner in _inside(real):
            count += len(targets)
            if count > _MOST_FILES:
                raise ValueError(f"it brings more than {_MOST_FILES:,} files")
            names = {"", written.name, real.name}
            places_of = (target / name / inner for target in targets for name in names)
            yield from filter(None, (edited.restricting(place) for place in places_of))


def _divided(words: tuple[Word, ...]) -> tuple[list[Word], list[Word]]:
    """The options and the operands of a command."""
    end = next((place for place, word in enumerate(words) if word.text == "--"), len(words))
    options = [word for word in words[:end] if word.text.startswith("-") and word.text != "-"]
    return options, [word for word in words[:end] if word not in options] + list(words[end + 1 :])


def _keeps_backups(option: Word) -> bool:
    letters = "" if option.text.startswith("--") else option.text[1:].partition("t")[0]
    return option.text.startswith(("--b", "--su")) or not {"b", "S"}.isdisjoint(letters)


def _named(words: list[Word], places: Places) -> list[tuple[Path, Path]]:
    return [each for word in words for each in places.named(word) or ()]


def _inside(path: Path) -> Iterator[str]:
    """The path itself, as an empty text, and all that lies in it, relative to it."""
    yield ""
    for folder, folders, names in os.walk(path):
        yield from (os.path.relpath(os.path.join(folder, name), path) for name in (*folders, *names))  # noqa: PTH118  # texts are faster
