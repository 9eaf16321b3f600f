"""The permissions of a session: decides by mode, rules and the call itself whether a tool call runs, is asked about or is refused."""

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.items import ToolCall
from palimpsest.tools.files.patch import parse_patch
from palimpsest.tools.files.read import read_tool
from palimpsest.tools.permissions.commands import LineJudge, LineVerdict
from palimpsest.tools.permissions.decision import NOTES, READ_ONLY, SANDBOX, Allow, AskUser, Decision, Deny, Mode, displayable, strictest
from palimpsest.tools.permissions.denied_files import FileRules, Hidden
from palimpsest.tools.permissions.places import Places, protected_name, real_path
from palimpsest.tools.permissions.rule_names import ANY, COMMAND_TOOLS, FETCH_TOOLS, SERVED
from palimpsest.tools.permissions.rules import (
    Rule,
    Specificity,
    domain_specificity,
    exact_path,
    names_tool,
    parse_rule,
    path_specificity,
    winner,
)
from palimpsest.tools.permissions.shown_files import ShownFiles
from palimpsest.tools.permissions.started import started_commands
from palimpsest.tools.tool import AgentTool, one_line
from palimpsest.tools.workspace import Workspace

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
            rule = files.restricting(path.resolve(), path)
        except (OSError, ValueError, RuntimeError):
            return False
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
