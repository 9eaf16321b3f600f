"""Which files a command can show by itself, and whether a rule restricts one of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from palimpsest.audit.tools.executed import program_name
from palimpsest.tools.permissions.command_line import LineCommand, Word
from palimpsest.tools.permissions.denied_files import FileRules
from palimpsest.tools.permissions.git_trust import repository_of, tracked_files
from palimpsest.tools.permissions.places import Places, real_path
from palimpsest.tools.permissions.read_only import is_reader, lists_names, paths_read, searched_names, searches_folders, substitutes
from palimpsest.tools.permissions.read_only_git import git_prints_no_file, git_reads, git_shows
from palimpsest.tools.permissions.rules import Rule


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
