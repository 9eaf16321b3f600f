"""Judges a shell line: denied by a rule, known to only read, allowed by rules, or one to ask about."""

import re
import shlex
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.tools.executed import SHELLS, program_name
from palimpsest.tools.permissions.command_line import CommandLine, LineCommand, Redirection
from palimpsest.tools.permissions.decision import READ_ONLY
from palimpsest.tools.permissions.git_trust import git_only_reads
from palimpsest.tools.permissions.places import Places
from palimpsest.tools.permissions.read_only import BUILTINS, paths_read
from palimpsest.tools.permissions.read_only_git import git_reads
from palimpsest.tools.permissions.rules import Rule, command_rule, command_specificity, path_specificity, winner

_HARMLESS_VARIABLE: Final = re.compile(
    r"(?:LC_ALL|LC_CTYPE|LC_COLLATE|LANG|NO_COLOR|CLICOLOR|FORCE_COLOR|COLUMNS|CI|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE)=[\w.-]*"
)
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

    `reasons` say why it does not run by itself, and are empty if it may. `parts` are its commands in order.
    """

    denied: Rule | None = None
    asked: Rule | None = None
    reads: bool = False
    rules: tuple[Rule, ...] = ()
    reasons: tuple[str, ...] = ()
    lasting: str = ""
    parts: tuple[LinePart, ...] = ()


@dataclass(frozen=True, slots=True)
class LineJudge:
    """Judges lines by rules for `bash` and for files that are read, in the places where they would run."""

    command_rules: tuple[Rule, ...]
    read_rules: tuple[Rule, ...]
    places: Places

    def judge(self, line: CommandLine) -> LineVerdict:
        """The verdict on all commands of a line together."""
        denied, asked = self._restricted(line)
        places = self.places
        reasons = list(line.unclear)
        others: list[LineCommand] = []
        allowing: list[Rule] = []
        parts: list[LinePart] = []
        for command in line.commands:
            if command.inferred:
                continue
            if command.texts[:1] == ("cd",):
                moved = places.moved(command.words[1]) if len(command.words) == 2 else None
                reasons += [] if moved is not None else ["`cd` leads out of the project, or where is not certain"]
                places = moved or places
                around = self._surroundings(command, places)
                reasons += around
                parts.append(_part(command, "" if moved is not None else "leads out of the project", None, around))
                continue
            reason = self._reason(command, places)
            around = self._surroundings(command, places)
            rule = self._rule(command.texts, static=all(word.static and not word.glob for word in command.words)) if reason else None
            if rule is not None and rule.effect == "allow":
                allowing.append(rule)
                reason = ""
            elif reason and command.words:
                others.append(command)
            reasons += [*around, *([reason] if reason else [])]
            restricting = self._rule(command.texts, static=False) if command.words else None
            parts.append(_part(command, reason, restricting if restricting is not None and restricting.effect == "ask" else rule, around))
        denied = denied or self._restricted_read(line, places, "deny")
        asked = asked or self._restricted_read(line, places, "ask")
        clean = not line.unclear and len(others) == 1 and len(reasons) == 1
        return LineVerdict(
            denied,
            asked,
            reads=not reasons and not allowing,
            rules=tuple(dict.fromkeys(allowing)),
            reasons=tuple(dict.fromkeys(reasons)),
            lasting=lasting_rule(others[0]) if clean else "",
            parts=tuple(parts),
        )

    def _rule(self, texts: tuple[str, ...], *, static: bool) -> Rule | None:
        found = winner((rule, command_specificity(rule, texts)) for rule in self.command_rules)
        # An exact rule cannot have meant a word that only the shell knows.
        return found if found is None or static or found.effect != "allow" or found.pattern.endswith(":*") or not found.pattern else None

    def _restricted(self, line: CommandLine) -> tuple[Rule | None, Rule | None]:
        """The first rules that deny and that ask for some command of the line."""
        found = [self._rule(command.texts, static=False) for command in line.commands if command.words]
        denied = next((rule for rule in found if rule is not None and rule.effect == "deny"), None)
        return denied, next((rule for rule in found if rule is not None and rule.effect == "ask"), None)

    def _restricted_read(self, line: CommandLine, places: Places, effect: str) -> Rule | None:
        """A rule about reading files that some word of the line names: what `read` may not show, `cat` may not either."""
        if not self.read_rules:
            return None
        words = [word for command in line.commands for word in (*command.words[1:], *(each.target for each in command.redirections))]
        for word in words:
            for path in places.targets(word) or ():
                shown = places.workspace.shown(path)
                rule = winner((rule, path_specificity(rule, shown)) for rule in self.read_rules)
                if rule is not None and rule.effect == effect and rule.pattern:
                    return rule
        return None

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
            return "" if all(map(git_only_reads, places.folders)) else "the settings of the repository may start programs"
        paths = paths_read(command)
        if paths is None:
            return f"{shown} may change something"
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
            f"it sets the variable {word.text.partition('=')[0]}"
            for word in command.assignments
            if not word.static or _HARMLESS_VARIABLE.fullmatch(word.text) is None
        ]
        return reasons + [reason for each in command.redirections if (reason := _redirection_reason(each, places))]


def _part(command: LineCommand, reason: str, rule: Rule | None, around: list[str]) -> LinePart:
    """Return a command with what decides about it: a rule, that it only reads, or the reasons to ask."""
    words = shlex.join(word.text for word in (*command.assignments, *command.words))
    text = " ".join((words, *(f"{each.operator} {each.target.text}".rstrip() for each in command.redirections))).strip()
    if rule is not None and rule.effect == "ask":
        return LinePart(text, f"the rule {rule} asks", asks=True)
    if reasons := [*([reason] if reason else []), *around]:
        return LinePart(text, "; ".join(reasons), asks=True)
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
