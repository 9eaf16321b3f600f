"""Decides by mode, rules and the call itself whether a tool call runs, is asked about or refused."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from palimpsest.agent.decision import NOTES, READ_ONLY, SANDBOX, Allow, AskUser, Decision, Deny, Mode, displayable, strictest
from palimpsest.agent.tool import AgentTool, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.audit.shell_lines import SHELLS, program_name
from palimpsest.coding.hidden_files import FileRules, Hidden, ShownFiles, brought, values_of_options
from palimpsest.coding.places import Places, protected_name, real_path
from palimpsest.coding.read_only import (
    BUILTINS,
    PLAIN,
    PRINTERS,
    READERS,
    follows_no_link,
    git_only_reads,
    git_reads,
    keeps_settings,
    paths_read,
)
from palimpsest.coding.rules import (
    ANY,
    COMMAND_TOOLS,
    FETCH_TOOLS,
    SERVED,
    Rule,
    Specificity,
    command_may_match,
    command_rule,
    command_specificity,
    domain_specificity,
    exact_path,
    names_tool,
    parse_rule,
    path_specificity,
    winner,
)
from palimpsest.coding.shell_lines import CommandLine, LineCommand, Redirection, Word, started_commands
from palimpsest.coding.tools.change import parse_patch
from palimpsest.coding.tools.read import read_tool
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.items import ToolCall

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


_MOST_REASONS: Final = 3
_MOST_PARTS: Final = 20
_COLON: Final = re.compile(":")
_MOST_COLONS: Final = 64
_LONGEST_NAME: Final = 4_096
_KINDS: Final = {"edits": "edit", "reads": "read"}
_URL_LETTERS: Final = re.compile(r"[!-\[\]-~]+")
_HOST: Final = re.compile(r"[a-z0-9.-]+|[0-9a-f:.]+")
_INNER: Final = {"reports": "reports", "remembers": "memory"}
_QUESTIONS: Final = {"reports": "Run", "remembers": "Change notes with"}


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a session may do. `rules` are the user's; `project_rules` come with the project and can only deny.

    `visible` is what commands in a sandbox see beside the workspace. A decision depends on these values, on the call and on what its paths
    lead to, never on what a file, a page or a result says.
    """

    mode: Mode
    workspace: Workspace
    rules: tuple[Rule, ...] = ()
    project_rules: tuple[Rule, ...] = ()
    home: Path = field(default_factory=Path.home)
    search_path: str = field(default_factory=lambda: os.environ.get("PATH", os.defpath))
    visible: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for rule in self.project_rules:
            if rule.effect != "deny":
                raise BadInput("a project can only deny; allow and ask rules belong to the user", where=str(rule))

    def with_rule(self, text: str) -> "Permissions":
        """The same with one more rule of the user. Raises `BadInput` if the text is no rule."""
        return replace(self, rules=(*self.rules, parse_rule(text)))

    def decide(self, tool: AgentTool, call: ToolCall, *, sandboxed: bool, cwd: Path | None = None) -> Decision:
        """Whether a call runs, is asked about or is refused. `cwd` is the working directory of the shell, by default the project."""
        if tool.kind in _INNER:
            return self._inner(tool)
        try:
            arguments = _arguments(call.args)
            if tool.name in COMMAND_TOOLS:
                return self._command(_text(arguments, "command"), sandboxed=sandboxed, cwd=cwd or self.workspace.root)
            if tool.name in FETCH_TOOLS:
                return self._fetch(tool, _text(arguments, "url"))
            if tool.kind in _KINDS and not tool.name.startswith(SERVED):
                return self._files(tool, arguments)
            if isinstance(arguments.get("uri"), str) and arguments["uri"].lower().startswith("file:"):
                path = Path(unquote(urlsplit(arguments["uri"]).path) or "/")
                if self.restricts_reading(path):
                    return Deny("rule for reading", f"a rule restricts reading {displayable(str(path))}")
        except PalimpsestError as error:
            return Deny("arguments", error.message)
        except (OSError, ValueError, RecursionError) as error:
            # A path may be too long for the system, or hold letters that no file name can.
            return Deny("arguments", f"the arguments cannot be judged ({one_line(str(error))})")
        decision = self._other(tool, call.args)
        if isinstance(decision, Allow) and tool.name.startswith(SERVED) and (named := self._restricted_argument(arguments)):
            return AskUser(
                f"Run the tool {displayable(tool.name)}?\n{displayable(call.args)}\n(a rule restricts reading {displayable(named)})"
            )
        return decision

    def _restricted_argument(self, arguments: dict[str, Any]) -> str:
        """A text in the arguments of a server's tool that names a file which may not be read; empty if there is none."""
        files = self._read_rules
        waiting: list[Any] = [arguments] if files.restrict else []
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict | list):
                waiting += value.values() if isinstance(value, dict) else value
            elif isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and self._names_restricted(files, value):
                return value
        return ""

    def _names_restricted(self, files: FileRules, name: str) -> bool:
        path = self.workspace.root / os.path.expanduser(name)  # noqa: PTH111  # Path.expanduser raises for unknown users
        try:
            real = path.resolve()
        except (OSError, ValueError, RuntimeError):
            return False
        try:
            rule = files.restricting(real, path)
        except ValueError:
            # There are too many files to know whether it is another name of a restricted one.
            return True
        return rule is not None and bool(rule.pattern)

    def may_read(self, path: str) -> bool:
        """Whether the tool `read` may read a file without a question."""
        call = ToolCall("", "read", json.dumps({"path": path}))
        return isinstance(self.decide(read_tool(), call, sandboxed=False), Allow)

    def restricts_reading(self, path: Path) -> bool:
        """Whether a rule denies or asks about reading a file, wherever it is."""
        files = FileRules(self._rules_of(read_tool()), self.workspace, self.home)
        try:
            return files.restricting(path.resolve(), path.absolute()) is not None
        except (OSError, ValueError, RuntimeError):
            return files.restrict

    def hidden(self) -> Hidden:
        """What a sandbox must hide from a command that runs without a question. Raises `ValueError` if that cannot be done."""
        return self._read_rules.hidden(self.visible)

    @property
    def _read_rules(self) -> FileRules:
        own = (*self.rules, *self.project_rules)
        return FileRules(tuple(rule for rule in own if rule.tool == "read"), self.workspace, self.home)

    @property
    def _edit_rules(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in (*self.rules, *self.project_rules) if rule.tool == "edit")

    def without_restricted(self, tool: AgentTool, text: str) -> str:
        """The lines `path:…` or `path` of a search without files that a rule denies or asks about: a folder was named, not the files."""
        files = FileRules(tuple(rule for rule in self._rules_of(tool) if rule.pattern), self.workspace, self.home)
        if not files.restrict:
            return text

        @cache
        def restricted(path: str) -> bool:
            place = self.workspace.root / path
            try:
                return files.restricting(place, place) is not None
            except (OSError, ValueError):
                return True

        # A name may hold a colon itself, so every beginning of a line that could be the path is tried.
        lines = text.split("\n")
        kept = [
            line
            for line in lines
            if not any(restricted(line[: colon.start()]) for colon in islice(_COLON.finditer(line), _MOST_COLONS)) and not restricted(line)
        ]
        return (
            "\n".join(kept)
            if len(kept) == len(lines)
            else "\n".join((*kept, f"[{len(lines) - len(kept):,} lines of files that a rule restricts]"))
        )

    def _rules_of(self, tool: AgentTool) -> tuple[Rule, ...]:
        names = {ANY, _KINDS.get(tool.kind, tool.name)}
        return tuple(rule for rule in (*self.rules, *self.project_rules) if rule.tool in names or names_tool(rule, tool.name))

    def _winner(self, tool: AgentTool, specificity: Callable[[Rule], Specificity | None]) -> Rule | None:
        return winner((rule, specificity(rule)) for rule in self._rules_of(tool))

    def _command(self, line: str, *, sandboxed: bool, cwd: Path) -> Decision:
        own = (*self.rules, *self.project_rules)
        command_rules = tuple(rule for rule in own if rule.tool in (ANY, *COMMAND_TOOLS))
        files, edited = self._read_rules, FileRules(self._edit_rules, self.workspace, self.home)
        folder = real_path(cwd) or self.workspace.root
        started = started_commands(line)
        places = Places(self.workspace, (folder,), self.home, self.search_path)
        verdict = LineJudge(command_rules, ShownFiles(files), edited, places).judge(started)
        if verdict.denied is not None:
            return Deny(f"rule {verdict.denied}", f"the rule `{verdict.denied}` denies this command")
        if self.mode == "plan" and not verdict.reads:
            return Deny(
                "mode plan",
                "in plan mode only commands that read are run: " + "; ".join(verdict.reasons[:_MOST_REASONS] or ("a rule allows more",)),
            )
        if verdict.asked is None and not verdict.reasons:
            return Allow(READ_ONLY if verdict.reads else "rule " + ", ".join(map(str, verdict.rules)))
        unheld: str | None = None
        if self.mode == "auto" and sandboxed and verdict.asked is None:
            unheld = self._unheld(verdict, command_rules)
            if unheld is None:
                return Allow(SANDBOX)
        because = "; ".join(filter(None, (unheld, *verdict.reasons[:_MOST_REASONS]))) or f"the rule `{verdict.asked}` asks"
        # A line of several commands is shown command by command, each with what decides about it.
        several = len(verdict.parts) > 1 and len(verdict.parts) <= _MOST_PARTS
        parts = "".join(f"\n{'?' if each.asks else '+'} {displayable(each.text)}  [{displayable(each.decides)}]" for each in verdict.parts)
        question = f"Run this command?\n{displayable(line)}{parts if several else ''}\n({displayable(because)})"
        return AskUser(question, "" if verdict.asked is not None else verdict.lasting)

    def _unheld(self, verdict: LineVerdict, command_rules: tuple[Rule, ...]) -> str | None:
        """Why a sandbox is not enough for a line, or empty if its reasons say so; `None` if it is enough."""
        if verdict.restricted:
            return ""
        restricting = next((rule for rule in command_rules if rule.effect != "allow"), None)
        if verdict.opaque and restricting is not None:
            return f"it may start other programs, and the rule `{restricting}` restricts some"
        edited = next((rule for rule in self._edit_rules if rule.effect != "allow" and rule.pattern), None)
        if verdict.opaque and edited is not None:
            return f"it may change any file of the project, and the rule `{edited}` restricts some"
        try:
            self.hidden()
        except ValueError as error:
            return f"the sandbox cannot hide what rules restrict: {error}"
        return None

    def _files(self, tool: AgentTool, arguments: dict[str, Any]) -> Decision:
        decisions = [self._file(tool, name) for name in _named_paths(tool, arguments)]
        found = strictest(decisions)
        if found is None:
            return self._other(tool)
        questions = [each for each in decisions if isinstance(each, AskUser)]
        if isinstance(found, AskUser) and len(questions) > 1:
            return AskUser("\n".join(dict.fromkeys(each.question for each in questions)))
        return found

    def _file(self, tool: AgentTool, name: str) -> Decision:
        try:
            path = self.workspace.resolve_to_read(name) if tool.kind == "reads" else self.workspace.resolve(name)
        except PalimpsestError as error:
            return Deny("workspace", f"{error.message}; the user can grant another folder")
        shown = self.workspace.shown(path)
        files = FileRules(self._rules_of(tool), self.workspace, self.home)
        try:
            rule = files.rule_for(path, self.workspace.root / os.path.expanduser(name))  # noqa: PTH111  # Path.expanduser raises for unknown users
        except ValueError as error:
            return AskUser(f"{tool.name} {displayable(shown)}? (it may be another name of a file that a rule restricts: {error})")
        printed = displayable(shown).replace("\n", "\\n")
        if rule is not None and rule.effect == "deny":
            return Deny(f"rule {rule}", f"the rule `{rule}` denies {printed}")
        if tool.kind == "edits" and self.mode == "plan":
            return Deny("mode plan", "in plan mode no file is changed")
        if rule is not None and rule.effect == "ask":
            return AskUser(f"{tool.name} {printed}? (the rule `{rule}` asks)")
        if tool.kind == "reads":
            return Allow(READ_ONLY)
        if self.workspace.is_note(path):
            return Allow(NOTES)
        protected = protected_name(path, self.workspace)
        if rule is not None and (not protected or protected in rule.pattern.casefold().split("/")):
            return Allow(f"rule {rule}")
        if protected:
            return AskUser(f"{tool.name} {printed}? (other programs run or obey {protected})")
        if self.mode in ("edits", "auto"):
            return Allow(f"mode {self.mode}")
        return AskUser(
            f"{tool.name} {printed}?", str(Rule("edit", lasting)) if shown.isprintable() and (lasting := exact_path(shown)) else ""
        )

    def _fetch(self, tool: AgentTool, url: str) -> Decision:
        domain = _domain(url)
        rule = self._winner(tool, lambda rule: domain_specificity(rule, domain))
        if rule is None or rule.effect == "ask":
            lasting = str(Rule(tool.name, domain)) if rule is None and ":" not in domain else ""
            return AskUser(f"Fetch from {domain}?\n{displayable(url)}", lasting)
        return Allow(f"rule {rule}") if rule.effect == "allow" else Deny(f"rule {rule}", f"the rule `{rule}` denies {domain}")

    def _inner(self, tool: AgentTool) -> Decision:
        """For tools that change nothing but the session or the user's notes: they run in every mode, unless a rule says otherwise."""
        rule = self._winner(tool, lambda rule: None if rule.pattern else path_specificity(rule, ""))
        if rule is not None and rule.effect == "deny":
            return Deny(f"rule {rule}", f"the rule `{rule}` denies {tool.name}")
        if rule is None or rule.effect == "allow":
            return Allow(_INNER[tool.kind])
        return AskUser(f"{_QUESTIONS[tool.kind]} {tool.name}? (the rule `{rule}` asks)")

    def _other(self, tool: AgentTool, arguments: str = "") -> Decision:
        """For tools whose arguments say nothing about files: reading ones run, others ask, because no sandbox holds them.

        The question shows the arguments, and nothing that a server or another package says about the tool.
        """
        rule = self._winner(tool, lambda rule: None if rule.pattern else path_specificity(rule, ""))
        if rule is not None and rule.effect == "deny":
            return Deny(f"rule {rule}", f"the rule `{rule}` denies {tool.name}")
        if tool.kind == "reads" and rule is None:
            return Allow(READ_ONLY)
        if self.mode == "plan" and tool.kind != "reads":
            return Deny("mode plan", f"in plan mode {tool.name} is not run")
        if rule is not None and rule.effect == "allow":
            return Allow(f"rule {rule}")
        shown = f"\n{displayable(arguments)}" if arguments.strip() not in ("", "{}") else ""
        return AskUser(f"Run the tool {displayable(tool.name)}?{shown}", str(Rule(tool.name)) if rule is None else "")


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. Raises `BadInput` if they are no JSON object, or name a field twice, which readers decide differently."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise BadInput("the arguments name a field twice")
        return dict(pairs)

    try:
        value = json.loads(text or "{}", object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the arguments are not valid JSON ({error}); call the tool again with arguments that match its schema") from error
    if not isinstance(value, dict):
        raise BadInput("the arguments are no JSON object; call the tool again with arguments that match its schema")
    return value


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise BadInput(f"the argument `{name}` is missing or no text; call the tool again with arguments that match its schema")
    return value


def _named_paths(tool: AgentTool, arguments: dict[str, Any]) -> Iterable[str]:
    """The paths that the arguments of a file tool name. Raises `PalimpsestError` if a patch cannot be read."""
    if isinstance(arguments.get("patch"), str):
        for change in parse_patch(arguments["patch"]):
            yield change.path
            if change.move_to:
                yield change.move_to
        return
    for name in ("path", "file_path"):
        if name in arguments:
            yield _text(arguments, name)


def _domain(url: str) -> str:
    """The host of a URL in lower case, with its port if it is not the usual one. Raises `BadInput` if readers could see another host."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise BadInput(f"not a URL that can be fetched ({error})") from error
    if (
        _URL_LETTERS.fullmatch(url) is None
        or parts.scheme not in ("http", "https")
        or parts.username is not None
        or not _HOST.fullmatch(host)
    ):
        raise BadInput("not a URL that can be fetched; give a plain http or https address")
    return host if port in (None, 80, 443) else f"{host}:{port}"
