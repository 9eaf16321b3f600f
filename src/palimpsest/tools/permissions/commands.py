"""Judges a shell line: denied by a rule, known to only read, allowed by rules, or one to ask about."""

import os
import re
import shlex
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from palimpsest.audit.tools.executed import SHELLS, program_name
from palimpsest.tools.permissions.brought_files import brought, values_of_options
from palimpsest.tools.permissions.command_line import CommandLine, LineCommand, Redirection, Word
from palimpsest.tools.permissions.decision import READ_ONLY
from palimpsest.tools.permissions.denied_files import FileRules
from palimpsest.tools.permissions.git_trust import follows_no_link, git_only_reads
from palimpsest.tools.permissions.places import Places
from palimpsest.tools.permissions.read_only import BUILTINS, PLAIN, PRINTERS, READERS, keeps_settings, paths_read
from palimpsest.tools.permissions.read_only_git import git_reads
from palimpsest.tools.permissions.rules import Rule, command_may_match, command_rule, command_specificity, winner
from palimpsest.tools.permissions.shown_files import ShownFiles

_HARMLESS_VARIABLE: Final = re.compile(
    r"(?:LC_ALL|LC_CTYPE|LC_COLLATE|LANG|NO_COLOR|CLICOLOR|FORCE_COLOR|COLUMNS|CI|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE)=[\w.-]*"
)
_SETS: Final = "it sets the variable"
# Their options start no program that is named in them, so that a lasting rule may leave the arguments open.
_OPEN_GIT: Final = frozenset({"add", "commit", "checkout", "switch", "restore", "stash", "branch", "tag", "mv", "rm"})
# A lasting rule for these would allow anything.
_NO_RULE: Final = SHELLS | {"sudo", "doas", "su", "eval", "exec", "source", ".", "env", "xargs", "ssh", "nohup", "setsid", "trap"}


@dataclass(frozen=True, slots=True)
class LinePart:
    """One command of a line: its words as the shell would get them, and what decides about it; `asks` if the user has to."""

    text: str
    decides: str
    asks: bool


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """What is known about a line. `denied` and `asked` are rules; `reads` means that it only reads; `rules` allow the rest.

    `reasons` say why it does not run by itself, and are empty if it may. `restricted` means that it may change a file that a rule
    restricts, show what git has of one, or turn out to be a command that a rule restricts: no sandbox hides that. `opaque` means that it
    starts a program that may start others.
    `parts` are its commands in order.
    """

    denied: Rule | None = None
    asked: Rule | None = None
    reads: bool = False
    rules: tuple[Rule, ...] = ()
    reasons: tuple[str, ...] = ()
    restricted: bool = False
    opaque: bool = False
    lasting: str = ""
    parts: tuple[LinePart, ...] = ()


@dataclass(frozen=True, slots=True)
class LineJudge:
    """Judges lines by rules for `bash` and for files that are read and changed, in the places where they would run."""

    command_rules: tuple[Rule, ...]
    files: ShownFiles
    edited: FileRules
    places: Places

    def judge(self, line: CommandLine) -> LineVerdict:
        """The verdict on all commands of a line together."""
        denied, asked = self._restricted(line)
        places = replace(self.places, dots=bool(line.unclear) or not all(map(keeps_settings, line.commands)))
        judged: list[_JudgedCommand] = []
        for command in line.commands:
            if command.inferred:
                continue
            if command.texts[:1] == ("cd",):
                moved = places.moved(command.words[1]) if len(command.words) == 2 else None
                places = moved or places
                reason = "" if moved is not None else "`cd` leads out of the project, or where is not certain"
                judged.append(_JudgedCommand(command, reason, self._surroundings(command, places)))
            else:
                judged.append(self._judged(command, places))
        reasons = [*line.unclear, *(reason for each in judged for reason in each.reasons)]
        others = [each.command for each in judged if each.reason and each.command.words and each.command.texts[0] != "cd"]
        allowing = tuple(dict.fromkeys(each.rule for each in judged if each.allows and each.rule is not None))
        # What a program starts matters only if the line does more than read.
        inferred = [command for command in line.commands if command.inferred] if reasons or allowing else []
        shown = [(each.command, each.shows) for each in judged] + [(command, self.files.reason(command, places)) for command in inferred]
        edits = self._edits(line, places, reasons)
        named = self._named(line, places)
        possible = [reason for command in line.commands if (reason := self._possible(command))]
        return LineVerdict(
            denied or next((rule for rule in named if rule.effect == "deny"), None),
            asked or next((rule for rule in named if rule.effect == "ask"), None),
            reads=not reasons and not allowing,
            rules=allowing,
            reasons=tuple(dict.fromkeys((*reasons, *(reason for _, reason in shown if reason), *edits, *possible))),
            restricted=bool(edits or possible) or any(reason and program_name(command.texts[0]) == "git" for command, reason in shown),
            opaque=bool(line.unclear) or any(each.is_opaque for each in judged),
            lasting=lasting_rule(others[0]) if not line.unclear and len(others) == 1 and len(reasons) == 1 else "",
            parts=tuple(_part(each) for each in judged),
        )

    def _judged(self, command: LineCommand, places: Places) -> "_JudgedCommand":
        reason = self._reason(command, places)
        rule = self._rule(command.texts, static=all(word.static and not word.glob for word in command.words)) if reason else None
        shows = self.files.reason(command, places)
        restricting = self._rule(command.texts, static=False) if command.words else None
        asks = restricting if restricting is not None and restricting.effect == "ask" else rule
        opaque = bool(reason) and not (command.words and command.texts[0] in PLAIN and places.runs_from_outside(command.texts[0]))
        allows = rule is not None and rule.effect == "allow"
        around = [*self._surroundings(command, places), *filter(None, [self._possible(command)])]
        return _JudgedCommand(command, "" if allows else reason, around, asks, shows, allows=allows, opaque=opaque)

    def _possible(self, command: LineCommand) -> str:
        """Why a command may be another one than it seems: a word that only the shell knows, or a glob, can become what a rule restricts."""
        place = next((place for place, word in enumerate(command.words) if not word.static or word.glob), None)
        # What these print starts nothing, whatever it is.
        if place is None or (place > 0 and command.texts[0] in PRINTERS):
            return ""
        word = command.words[place]
        known, glob = command.texts[:place], word.text if word.static else ""
        rule = next((rule for rule in self.command_rules if command_may_match(rule, known, glob)), None)
        return "" if rule is None else f"it may be a command that the rule `{rule}` restricts"

    def _rule(self, texts: tuple[str, ...], *, static: bool) -> Rule | None:
        found = winner((rule, command_specificity(rule, texts)) for rule in self.command_rules)
        # An exact rule cannot have meant a word that only the shell knows.
        return found if found is None or static or found.effect != "allow" or found.pattern.endswith(":*") or not found.pattern else None

    def _restricted(self, line: CommandLine) -> tuple[Rule | None, Rule | None]:
        """The first rules that deny and that ask for some command of the line."""
        found = [self._rule(command.texts, static=False) for command in line.commands if command.words]
        denied = next((rule for rule in found if rule is not None and rule.effect == "deny"), None)
        return denied, next((rule for rule in found if rule is not None and rule.effect == "ask"), None)

    def _named(self, line: CommandLine, places: Places) -> list[Rule]:
        """The rules about files that some word of the line names: what `read` may not show, `cat` may not either."""
        words = [
            word
            for command in line.commands
            for word in (*self._file_words(command, places), *(each.target for each in command.redirections))
        ]
        written = [each.target for command in line.commands for each in command.redirections if ">" in each.operator]
        found = [rule for word in words for rule in self.files.named(word, places)]
        return found + [rule for word in written for rule in ShownFiles(self.edited).named(word, places)]

    def _file_words(self, command: LineCommand, places: Places) -> tuple[Word, ...]:
        """The words of a command that may be files; of one that is known to only read it is known which."""
        paths = paths_read(command) if command.words else None
        return command.words[1:] if paths is None or self._reason(command, places) else paths

    def _edits(self, line: CommandLine, places: Places, reasons: list[str]) -> list[str]:
        """Why a line that does more than read may change a file that a rule restricts: a word names it or its folder, or is not known."""
        restricting = next((rule for rule in self.edited.rules if rule.effect != "allow" and rule.pattern), None)
        if not reasons or restricting is None:
            return []
        changing = [each for each in line.commands if not each.words or paths_read(each) is None]
        words = [word for command in changing for word in command.words[1:]]
        rules = [rule for word in words for rule in ShownFiles(self.edited).named(word, places)]
        plain = [word for command in changing if command.texts[:1] and command.texts[0] in PLAIN for word in command.words[1:]]
        targets = [each.target for command in line.commands for each in command.redirections if ">" in each.operator]
        written = [word for word in targets if word.text != os.devnull]
        try:
            for word in (*plain, *values_of_options(plain), *written):
                found = places.named(word)
                if found is None:
                    return [f"it may change a file that the rule `{restricting}` restricts"]
                rules += (below[1] for _, real in found if real.is_dir() and (below := self.edited.below(real)) is not None)
                # A folder that is copied or moved brings files that are not there yet.
                rules += filter(None, (self.edited.meant_below(real) for _, real in found))
            alone = len(changing) == 1 and not written
            rules += islice(brought(changing, places, self.edited, alone=alone), 1)
        except ValueError as error:
            return [f"it may change a file that the rule `{restricting}` restricts: {error}"]
        return [f"it names a file that the rule `{rules[0]}` restricts"] if rules else []

    def _reason(self, command: LineCommand, places: Places) -> str:
        """Why a command is not known to only read; empty if it is."""
        if not command.words:
            return ""
        name = command.words[0].text
        shown = f"`{name}`"
        if name not in BUILTINS and not places.runs_from_outside(name):
            return f"{shown} may be a program of the project"
        if name == "git":
            if not git_reads(command):
                return f"{shown} may change something"
            if not all(map(git_only_reads, places.folders)):
                return "the settings of the repository may start programs"
            return "" if _git_stays(command, places) else f"{shown} reads outside of the project, or where is not certain"
        paths = paths_read(command)
        if paths is None:
            return f"{shown} may do more than read with these arguments" if name in READERS else f"{shown} may change something"
        for word in paths:
            found = places.inside(word)
            if found is None and word.text != "-":
                return f"{shown} reads outside of the project, or where is not certain"
            # It would follow the links in a folder.
            if name == "diff" and any(path.is_dir() for path in found or ()):
                return f"{shown} compares folders"
        return ""

    def _surroundings(self, command: LineCommand, places: Places) -> list[str]:
        """Why the variables and redirections of a command keep it from running by itself."""
        reasons = [
            f"{_SETS} {word.text.partition('=')[0]}"
            for word in command.assignments
            if not word.static or _HARMLESS_VARIABLE.fullmatch(word.text) is None
        ]
        return reasons + [reason for each in command.redirections if (reason := _redirection_reason(each, places))]


@dataclass(frozen=True, slots=True)
class _JudgedCommand:
    """What is known about one command: why it is not known to only read, the rule about it, and why it may show a restricted file."""

    command: LineCommand
    reason: str
    around: list[str]
    rule: Rule | None = None
    shows: str = ""
    allows: bool = False
    opaque: bool = False

    @property
    def reasons(self) -> list[str]:
        """Why it does not run by itself."""
        return [*self.around, *filter(None, (self.reason, self.shows))]

    @property
    def is_opaque(self) -> bool:
        """Whether it may start programs that the line does not name, or run others than it names."""
        return (self.opaque and not self.allows) or any(reason.startswith(_SETS) for reason in self.around)


def _git_stays(command: LineCommand, places: Places) -> bool:
    """Whether a git command that only reads follows no link out of the project: `blame`, `grep`, and `diff` outside of repositories do."""
    match [text for text in command.texts[1:] if text != "--no-pager"]:
        case ["blame" | "diff", *_]:
            return all(places.inside(word) is not None for word in command.words[2:] if not word.text.startswith("-"))
        case ["grep", *_]:
            return all(map(follows_no_link, places.folders))
        case _:
            return True


def _part(judged: _JudgedCommand) -> LinePart:
    """Return a command with what decides about it: a rule, that it only reads, or the reasons to ask."""
    command, rule = judged.command, judged.rule
    words = shlex.join(word.text for word in (*command.assignments, *command.words))
    text = " ".join((words, *(f"{each.operator} {each.target.text}".rstrip() for each in command.redirections))).strip()
    if rule is not None and rule.effect == "ask":
        return LinePart(text, f"the rule {rule} asks", asks=True)
    if judged.reasons:
        return LinePart(text, "; ".join((*filter(None, (judged.reason, judged.shows)), *judged.around)), asks=True)
    return LinePart(text, READ_ONLY if rule is None else f"allowed by the rule {rule}", asks=False)


def _redirection_reason(redirection: Redirection, places: Places) -> str:
    operator, target = redirection.operator.lstrip("0123456789"), redirection.target
    if operator in (">&-", "<&-", "<<<", "<<"):
        return ""
    if target.static and target.text == "/dev/null":
        return ""
    if operator in (">&", "<&") and target.static and re.fullmatch(r"\d|-", target.text):
        return ""
    if operator == "<":
        return "" if places.inside(target) is not None else "it reads outside of the project, or where is not certain"
    return "it writes a file"


def lasting_rule(command: LineCommand) -> str:
    """The rule that the answer "always" creates for a command; empty where it would allow more than the user can foresee."""
    if not all(word.static and not word.glob for word in command.words) or command.assignments or command.redirections:
        return ""
    texts = command.texts
    if program_name(texts[0]) in _NO_RULE:
        return ""
    if texts[0] == "git" and len(texts) > 1 and texts[1] in _OPEN_GIT:
        return command_rule(texts[:2], open_end=True)
    # What such a command reads can become another file meanwhile.
    if paths_read(command) is not None:
        return ""
    return command_rule(texts, open_end=False)
