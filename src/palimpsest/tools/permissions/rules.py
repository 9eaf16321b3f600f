"""Permission rules: their text form, what they match, and which of several matching rules wins."""

import re
import shlex
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.audit.tools.executed import program_name
from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.files.globs import glob_expression

Effect: TypeAlias = Literal["allow", "ask", "deny"]
Specificity: TypeAlias = tuple[int, int, int]

ANY: Final = "*"
LONGEST: Final = 2_000
MOST_PROJECT_RULES: Final = 1_000
"""Rules of a project; each is tried at every decision."""
_MOST_COMPLAINTS: Final = 20
_EFFECTS: Final[dict[str, Effect]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_STRICTNESS: Final[dict[Effect, int]] = {"allow": 0, "ask": 1, "deny": 2}
_FORM: Final = lazy_pattern(r"(?:(allow|ask|deny) +)?(\*|mcp__[\w.*-]*|[A-Za-z][\w.-]*)(?:\((.*)\))?", re.DOTALL)
_WILDCARD: Final = lazy_pattern(r"[*?{]")
_DOMAIN: Final = lazy_pattern(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::\d+)?")
_OPEN_END: Final = ":*"
COMMAND_TOOLS: Final = frozenset({"bash"})
FETCH_TOOLS: Final = frozenset({"fetch", "web_fetch"})
SERVED: Final = "mcp__"
"""The beginning of the names of tools of MCP servers, `mcp__SERVER__TOOL`; only rules for them may have `*` in the name."""


class Rule(Struct, frozen=True):
    """Allows, denies or asks for the calls of a tool. An empty pattern matches every call of it.

    The pattern of `bash` is a command by its words, with `:*` at its end for any further arguments and `*` for one word; of `fetch` a
    domain, with `*.` in front for those below it; of every other tool a path glob, relative to the project. `edit` and `read` stand for
    all tools that change and that read files, `mcp__SERVER` and `mcp__SERVER__*` for all tools of an MCP server.
    """

    tool: str
    pattern: str = ""
    effect: Effect = "allow"

    def __str__(self) -> str:
        """The text form, which `parse_rule` reads."""
        target = f"{self.tool}({self.pattern})" if self.pattern else self.tool
        return target if self.effect == "allow" else f"{self.effect} {target}"


def parse_rule(text: str) -> Rule:
    """The rule of a text such as `bash(git status)`, `deny edit(secrets/**)` or `ask *`. Raises `BadInput` if it is malformed."""
    form = _FORM.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if form is None:
        raise BadInput("not a rule; write a tool name, then a pattern in parentheses, such as `deny bash(rm:*)`", where=text[:80])
    effect, tool, pattern = _EFFECTS[form[1] or "allow"], form[2], (form[3] or "").strip()
    if form[3] is not None and not pattern:
        raise BadInput("the pattern of the rule is empty; leave out the parentheses to match every call", where=text)
    if pattern and tool == ANY:
        raise BadInput("a rule for every tool has no pattern", where=text)
    rule = Rule(tool, "" if pattern == ANY else pattern, effect)
    if rule.pattern and tool in COMMAND_TOOLS:
        _command_pattern(rule.pattern, where=text)
    elif rule.pattern and tool in FETCH_TOOLS and _DOMAIN.fullmatch(rule.pattern.lower()) is None:
        raise BadInput("the pattern of a fetch rule is a domain, such as `docs.python.org` or `*.python.org`", where=text)
    return rule


def deny_rules(texts: Iterable[str]) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """The rules of a project that deny, and complaints about texts that are none of them: a project cannot allow anything.

    Raises `BadInput` if there are more than `MOST_PROJECT_RULES` texts, because a denial must not be left out.
    """
    rules: list[Rule] = []
    complaints: list[str] = []
    given = tuple(texts)
    if len(given) > MOST_PROJECT_RULES:
        raise BadInput(f"the project has {len(given):,} permission rules; at most {MOST_PROJECT_RULES:,} are used", where=given[0][:80])
    for text in given:
        try:
            rule = parse_rule(text)
        except BadInput as error:
            complaints.append(str(error))
            continue
        if rule.effect == "deny":
            rules.append(rule)
        else:
            complaints.append(f"{text}: a project can only deny; add this rule yourself if you want it")
    more = len(complaints) - _MOST_COMPLAINTS
    return tuple(rules), (*complaints[:_MOST_COMPLAINTS], *([f"and {more:,} more texts that are no rules that deny"] if more > 0 else []))


def command_rule(words: tuple[str, ...], *, open_end: bool) -> str:
    """The text of a rule that allows a command, and with `open_end` its further arguments; empty if a text cannot say it exactly."""
    if not words or any(word == ANY or word.endswith(_OPEN_END) or not word.isprintable() for word in words):
        return ""
    text = str(Rule("bash", shlex.join(words) + (_OPEN_END if open_end else "")))
    return text if len(text) <= LONGEST else ""


def _command_pattern(pattern: str, where: str = "") -> tuple[tuple[str, ...], bool]:
    """The words of a command pattern, and whether further arguments may follow. Raises `BadInput` if quotes are not closed."""
    open_end = pattern.endswith(_OPEN_END)
    try:
        words = tuple(shlex.split(pattern.removesuffix(_OPEN_END)))
    except ValueError as error:
        raise BadInput(f"the command of the rule cannot be split into words ({error})", where=where or pattern) from error
    if not words:
        raise BadInput("the command of the rule has no words", where=where or pattern)
    return words, open_end


def command_specificity(rule: Rule, words: tuple[str, ...]) -> Specificity | None:
    """How specifically a rule of `bash` names a command; `None` if it does not match.

    An allowed program is named exactly; a denied one is matched by its file name, so that a folder in front of it does not help.
    """
    if not rule.pattern:
        return _unconditional(rule)
    wanted, open_end = _command_pattern(rule.pattern)
    if len(words) < len(wanted) or (len(words) > len(wanted) and not open_end):
        return None
    program = words[0] if rule.effect == "allow" or "/" in wanted[0] else program_name(words[0])
    if any(want not in (ANY, word) for want, word in zip(wanted, (program, *words[1:]), strict=False)):
        return None
    return 2, sum(want != ANY for want in wanted), int(not open_end)


def path_specificity(rule: Rule, path: str) -> Specificity | None:
    """How specifically a path rule names a file, given relative to the project or absolute; `None` if it does not match."""
    if not rule.pattern:
        return _unconditional(rule)
    pattern = rule.pattern.removeprefix("./")
    # Some file systems ignore case, so a rule that restricts does too.
    flags = re.NOFLAG if rule.effect == "allow" else re.IGNORECASE
    # A folder stands for all that lies in it.
    if re.fullmatch(f"{glob_expression(pattern.rstrip('/'))}(?:/.*)?", path, flags | re.DOTALL) is None:
        return None
    literal = _WILDCARD.search(pattern)
    return 2, len(pattern) if literal is None else literal.start(), int(literal is None)


def domain_specificity(rule: Rule, domain: str) -> Specificity | None:
    """How specifically a rule of `fetch` names a domain, in lower case; `None` if it does not match."""
    if not rule.pattern:
        return _unconditional(rule)
    wanted = rule.pattern.lower()
    if wanted.startswith("*."):
        return (2, wanted.count("."), 0) if domain.endswith(wanted[1:]) else None
    return (2, wanted.count(".") + 1, 1) if domain == wanted else None


def _unconditional(rule: Rule) -> Specificity:
    if rule.tool.startswith(SERVED) and names_several(rule.tool):
        return 0, len(rule.tool.partition(ANY)[0]), 0
    return (0 if rule.tool == ANY else 1), 0, 0


def names_several(tool: str) -> bool:
    """Whether the tool name of a rule stands for several tools of MCP servers."""
    return ANY in tool or "__" not in tool.removeprefix(SERVED)


def names_tool(rule: Rule, name: str) -> bool:
    """Whether a rule is about a tool by its name: the same, or for tools of MCP servers also one with `*`, or the server alone."""
    if rule.tool == name or not (rule.tool.startswith(SERVED) and name.startswith(SERVED)):
        return rule.tool == name
    wanted = rule.tool if ANY in rule.tool else f"{rule.tool}__{ANY}"
    return names_several(rule.tool) and re.fullmatch(".*".join(map(re.escape, wanted.split(ANY))), name) is not None


def winner(matches: Iterable[tuple[Rule, Specificity | None]]) -> Rule | None:
    """The most specific rule of those that match; among equals the strictest. `None` if no rule matches."""
    ranked = [(specificity, _STRICTNESS[rule.effect], rule) for rule, specificity in matches if specificity is not None]
    return max(ranked, key=lambda each: each[:2])[2] if ranked else None
