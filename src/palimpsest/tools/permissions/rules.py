"""Permission rules: their text form, what they match, and which of several matching rules wins."""

import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.permissions.rule_names import (
    ANY,
    COMMAND_TOOLS,
    FETCH_TOOLS,
    OWN_TOOLS,
    PATH_TOOLS,
    SERVED,
    Effect,
    name_matches,
    names_several,
    tool_of_rule,
)
from palimpsest.tools.permissions.rule_patterns import (
    GLOB_LETTERS,
    OPEN_END,
    check_path_pattern,
    command_matches,
    command_may_become,
    command_pattern,
    command_restricted,
    escaped_path,
    foreign_command,
    literal_start,
    names_folder,
    path_expression,
    path_forms,
    words_of_list,
)

Specificity: TypeAlias = tuple[int, ...]

LONGEST: Final = 2_000
MOST_PROJECT_RULES: Final = 1_000
"""Rules of a project; each is tried at every decision."""
_EFFECTS: Final[dict[str, Effect]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_STRICTNESS: Final[dict[Effect, int]] = {"allow": 0, "ask": 1, "deny": 2}
_FORM: Final = lazy_pattern(r"(?:(allow|ask|deny)\s+)?(\*|mcp__[\w.*-]*|[A-Za-z][\w.-]*)\s*(?:\((.*)\))?", re.DOTALL)
_DOUBLED: Final = lazy_pattern(r"(allow|ask|deny)\s+(allow|ask|deny)\s+(.+)", re.DOTALL)
_DOMAIN: Final = lazy_pattern(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::\d+)?")
_PREFIX_RULE: Final = "prefix_rule"


class Rule(Struct, frozen=True):
    """Allows, denies or asks for the calls of a tool. An empty pattern matches every call of it.

    The pattern of `bash` is a command by its words, with `:*` at its end for any further arguments and `*` for one word; of `fetch` a
    domain, with `*.` in front for those below it; of every other tool a path glob. `edit` and `read` stand for all tools that change and
    that read files, `mcp__SERVER` and `mcp__SERVER__*` for all tools of an MCP server. Allowances are read narrowly, the others widely.
    """

    tool: str
    pattern: str = ""
    effect: Effect = "allow"

    def __str__(self) -> str:
        """The text form, which `parse_rule` reads."""
        target = f"{self.tool}({self.pattern})" if self.pattern else self.tool
        return target if self.effect == "allow" else f"{self.effect} {target}"


def parse_rule(text: str, tools: Collection[str] | None = None) -> Rule:
    """The rule of a text such as `bash(git status)`, `deny edit(secrets/**)` or `ask *`, also as Claude Code and Codex write it.

    `tools` are the tools that there are beside our own; without it, a name that is not known may be that of any tool. Raises `BadInput`
    if the text cannot be read, names no tool or can match nothing, with the right spelling where it is known.
    """
    doubled = _DOUBLED.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if doubled is not None:
        raise BadInput(f"the rule says {doubled[1]} and {doubled[2]}; write `{doubled[3]}` into permissions.{doubled[2]}", where=text)
    form = _FORM.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if form is None:
        raise BadInput("not a rule; write a tool name, then a pattern in parentheses, such as `deny bash(rm:*)`", where=text[:80])
    if form[2] == SERVED:
        raise BadInput("the rule names no server; write `mcp__SERVER`, or `mcp__*` for all", where=text)
    effect, name, pattern = _EFFECTS[form[1] or "allow"], form[2], (form[3] or "").strip()
    if form[3] is not None and not pattern:
        raise BadInput("the pattern of the rule is empty; leave out the parentheses to match every call", where=text)
    if name == _PREFIX_RULE:
        found, decided = foreign_command(text.strip()[text.strip().index(_PREFIX_RULE) :], text)
        if decided not in (None, effect) and form[1] is not None:
            raise BadInput(f"the rule says {form[1]} and {decided}; write it into permissions.{decided}", where=text)
        rule = Rule("bash", found, decided or effect)
    else:
        tool = tool_of_rule(name, effect, tools, text)
        rule = Rule(tool, "" if pattern == ANY or (pattern == "**" and tool in PATH_TOOLS) else pattern, effect)
    return _checked(rule, text) if rule.pattern else rule


def _checked(rule: Rule, where: str) -> Rule:
    """The rule with its pattern as ours write it. Raises `BadInput` if the pattern cannot be read or can match nothing."""
    if rule.tool in COMMAND_TOOLS:
        rule = Rule(rule.tool, re.sub(r"\s*:\s*\*+$", OPEN_END, words_of_list(rule.pattern)), rule.effect)
        try:
            read = command_pattern(rule.pattern)
        except BadInput as error:
            raise BadInput(error.message, where=where) from error
        if rule.effect == "allow" and not read.literal[0]:
            advice = f"; write `bash({rule.pattern.partition('*')[0]}:*)`" if rule.pattern[0] != ANY else ""
            raise BadInput(f"an allowed program is named exactly{advice}", where=where)
        return rule
    if rule.tool in FETCH_TOOLS:
        return Rule(rule.tool, _domain(rule.pattern, where), rule.effect)
    if rule.tool == ANY:
        raise BadInput("a rule for every tool has no pattern", where=where)
    if rule.tool.startswith(SERVED) or (rule.tool in OWN_TOOLS and rule.tool not in PATH_TOOLS):
        raise BadInput(f"a rule for {rule.tool} has no pattern; write `{Rule(rule.tool, effect=rule.effect)}`", where=where)
    check_path_pattern(rule.pattern, where)
    return rule


def _domain(pattern: str, where: str) -> str:
    """The domain of a rule of `fetch`; empty for every domain."""
    domain = pattern.lower().removeprefix("domain:").strip().removesuffix(".")
    if domain == ANY:
        return ""
    if not domain.isascii():
        # An address names a host by these letters only.
        with suppress(UnicodeError):
            domain = domain.encode("idna").decode()
    if _DOMAIN.fullmatch(domain) is None:
        try:
            host = urlsplit(domain).hostname or ""
        except ValueError:
            host = ""
        example = host if _DOMAIN.fullmatch(host) else "docs.python.org"
        raise BadInput(f"the pattern of a fetch rule is a domain, such as `fetch({example})` or `fetch(*.python.org)`", where=where)
    return domain


def deny_rules(texts: Iterable[str], tools: Collection[str] | None = None) -> tuple[Rule, ...]:
    """The rules of a project, which can only deny. Raises `BadInput` for any other text, because a denial must not be left out."""
    given = tuple(texts)
    if len(given) > MOST_PROJECT_RULES:
        raise BadInput(f"the project has {len(given):,} permission rules; at most {MOST_PROJECT_RULES:,} are used", where=given[0][:80])
    rules = tuple(parse_rule(text, tools) for text in given)
    for rule, text in zip(rules, given, strict=True):
        if rule.effect != "deny":
            raise BadInput("a project can only deny; add this rule yourself if you want it", where=text)
    return rules


def command_rule(words: tuple[str, ...], *, open_end: bool) -> str:
    """The text of a rule that allows a command, and with `open_end` its further arguments; empty if a text cannot say it exactly."""
    if not words or " " in words[0] or any(word == ANY or word.endswith(OPEN_END) or not word.isprintable() for word in words):
        return ""
    text = str(Rule("bash", shlex.join(words) + (OPEN_END if open_end else "")))
    return text if len(text) <= LONGEST else ""


def command_specificity(rule: Rule, words: tuple[str, ...]) -> Specificity | None:
    """How specifically a rule of `bash` names a command; `None` if it does not match.

    An allowance is read narrowly, word by word; a rule that restricts widely, see `command_restricted`. A restriction with a star in its
    middle, such as `git * --force`, yields to a rule for exactly this command only.
    """
    if not rule.pattern:
        return _unconditional(rule)
    pattern = command_pattern(rule.pattern)
    if not (command_matches if rule.effect == "allow" else command_restricted)(pattern, words):
        return None
    literal = sum(pattern.literal)
    if literal == len(pattern.words) == len(words) and not pattern.open_end:
        return 2, 2, literal
    last = len(pattern.words) - (pattern.words[-1] == ".*")
    return 2, int(rule.effect != "allow" and not all(pattern.literal[:last])), literal


def command_may_match(rule: Rule, known: tuple[str, ...], glob: str) -> bool:
    """Whether a rule may restrict a command that begins with these words and goes on with words that are not known, see there."""
    return rule.effect != "allow" and bool(rule.pattern) and command_may_become(command_pattern(rule.pattern), known, glob)


def path_specificity(rule: Rule, path: str, root: Path | None = None, home: Path | None = None) -> Specificity | None:
    """How specifically a path rule names a file, given relative to the project or absolute; `None` if it does not match.

    An allowance is read narrowly, a rule that restricts widely, see `path_forms`. A restriction of a folder yields to an allowance of
    something in it; any other to one that names the very file only.
    """
    if not rule.pattern:
        return _unconditional(rule)
    wide = rule.effect != "allow"
    name = unicodedata.normalize("NFC", path) if wide else path
    full = name if name.startswith("/") or root is None else f"{root}/{name}".rstrip("/.") if name == "." else f"{root}/{name}"
    for form in path_forms(rule.pattern, wide=wide, root=root, home=home):
        of_form = full if form.absolute or form.floating else "" if name == "." else name
        if path_expression(form, wide=wide).fullmatch(of_form) is None:
            continue
        plain = re.sub(r"\\(.)", r"\1", form.glob)
        is_literal = not GLOB_LETTERS.search(re.sub(r"\\.", "", form.glob))
        if is_literal and (of_form == plain or (form.floating and of_form.endswith(f"/{plain}"))):
            return 2, 2, len(plain)
        if wide and not names_folder(rule.pattern):
            return 2, 1, len(rule.pattern)
        wildcard = GLOB_LETTERS.search(rule.pattern)
        return 2, 0, len(rule.pattern) if wildcard is None else wildcard.start()
    return None


def check_reach(rule: Rule, folders: Iterable[Path]) -> None:
    """Raise `BadInput` if a rule allows files that lie in none of the folders that tools may use, and so allows nothing."""
    if rule.effect != "allow" or rule.tool not in PATH_TOOLS or not rule.pattern:
        return
    places = [folder.resolve() for folder in folders]
    for form in path_forms(rule.pattern, wide=False, root=places[0], home=None):
        start = Path(literal_start(form.glob)).resolve()
        if not form.absolute or any(start == place or place in start.parents or start in place.parents for place in places):
            return
    raise BadInput("no tool reaches the files of this rule; grant their folder with --add-dir", where=str(rule))


def exact_path(path: str) -> str:
    """The pattern that allows exactly one file; empty if a text cannot say it."""
    pattern = escaped_path(path)
    try:
        check_path_pattern(pattern, path)
    except BadInput:
        return ""
    return pattern if path_specificity(Rule("edit", pattern), path) is not None else ""


def domain_specificity(rule: Rule, domain: str) -> Specificity | None:
    """How specifically a rule of `fetch` names a domain, in lower case; `None` if it does not match.

    A rule that restricts covers what lies below the domain, on every port.
    """
    if not rule.pattern:
        return _unconditional(rule)
    wanted = rule.pattern
    if rule.effect != "allow":
        plain = wanted.removeprefix("*.")
        name = domain if ":" in plain else domain.rpartition(":")[0] if re.search(r":\d+$", domain) else domain
        return (2, plain.count(".") + 1, int(name == wanted)) if name == plain or name.endswith(f".{plain}") else None
    if wanted.startswith("*."):
        return (2, wanted.count("."), 0) if domain.endswith(wanted[1:]) else None
    return (2, wanted.count(".") + 1, 1) if domain == wanted else None


def _unconditional(rule: Rule) -> Specificity:
    if rule.tool.startswith(SERVED) and names_several(rule.tool):
        return 0, len(rule.tool.partition(ANY)[0]), 0
    return (0 if rule.tool == ANY else 1), 0, 0


def names_tool(rule: Rule, name: str) -> bool:
    """Whether a rule is about a tool by its name."""
    return name_matches(rule.tool, name)


def winner(matches: Iterable[tuple[Rule, Specificity | None]]) -> Rule | None:
    """The most specific rule of those that match; among equals the strictest. `None` if no rule matches."""
    ranked = [(specificity, _STRICTNESS[rule.effect], rule) for rule, specificity in matches if specificity is not None]
    return max(ranked, key=lambda each: each[:2])[2] if ranked else None
