"""Glob patterns of paths as regular expressions, for the tools that search and for permission rules."""

import re
from typing import Final

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.tool import ToolError

MOST_CROSSINGS: Final = 4
MOST_CHOICES: Final = 64
_BRACES: Final = lazy_pattern(r"(?<!\\)\{([^{}]*)\}")
# A class may begin with a bracket that it contains; `!` and `^` negate it.
_TOKEN: Final = lazy_pattern(r"\\(.)|\[([!^]?)(\]?[^\]/]*)\]|(\*+)|(.)", re.DOTALL)
_RANGE: Final = lazy_pattern(r"(.)-(.)", re.DOTALL)


def glob_expression(pattern: str, *, strict: bool = False) -> str:
    """A glob pattern as a regular expression for whole paths.

    `**` crosses folders, `*` and `?` do not, `{a,b}` is a choice, `[a-z]` and `[!a]` are classes, a backslash takes the next character
    as it is. Names with brackets are common, so that a pattern with a class also matches the text of the class itself, unless `strict`.
    Raises `ToolError` if the pattern is so complicated that matching could take very long, or has a class that cannot be read.
    """
    if pattern.count("**") > MOST_CROSSINGS:
        raise ToolError(f"a pattern may contain `**` at most {MOST_CROSSINGS} times")
    choices = _choices(pattern)
    plain = [each.replace("[", "\\[") for each in choices if "[" in each and "\\" not in each and not strict]
    return f"(?:{'|'.join(_expression_of(each) for each in (*choices, *plain))})"


def ignore_expression(pattern: str) -> str:
    """A pattern as `.gitignore` and ripgrep read it: a name without a slash is matched in every folder."""
    anchored = "/" in pattern.rstrip("/")
    text = pattern.removeprefix("/").rstrip("/")
    # Two stars cross folders only between slashes.
    parts = [part if part == "**" and anchored else re.sub(r"\*\*+", "*", part) for part in text.split("/")]
    return glob_expression("/".join(parts if anchored else ("**", *parts)), strict=True)


def _choices(pattern: str) -> list[str]:
    """The patterns without braces that a pattern stands for."""
    waiting, done = [pattern], list[str]()
    while waiting:
        each = waiting.pop()
        found = _BRACES.search(each)
        if found is None:
            done.append(each)
        else:
            waiting += [each[: found.start()] + choice + each[found.end() :] for choice in found[1].split(",")]
        if len(waiting) + len(done) > MOST_CHOICES:
            raise ToolError(f"the braces of the pattern stand for more than {MOST_CHOICES} patterns")
    return done


def _expression_of(pattern: str) -> str:
    """The expression of a pattern without braces. What stands between two `**` is matched once, so that time does not explode."""
    *folders, last = re.sub(r"(?:\*\*/)+", "**/", pattern).split("/")
    runs: list[list[str]] = [[]]
    for folder in folders:
        if folder == "**":
            runs.append([])
        else:
            runs[-1].append(f"{_name_expression(folder)}/")
    end = ".*" if last == "**" else _name_expression(last)
    first, *crossing = ("".join(run) for run in runs)
    if not crossing:
        return first + end
    # The first place where a run fits is as good as any later one, because each of its names takes one folder.
    return first + "".join(f"(?>(?:[^/]+/)*?{run})" for run in crossing[:-1]) + f"(?:[^/]+/)*{crossing[-1]}{end}"


def _name_expression(name: str) -> str:
    """The expression of one name. What stands between two stars is matched once and never tried again, so that time stays linear."""
    parts = [""]
    for escaped, negated, members, stars, letter in _TOKEN.findall(name):
        if stars:
            parts.append("")
        elif members:
            parts[-1] += _class_expression(members, negated=bool(negated))
        else:
            parts[-1] += "[^/]" if letter == "?" else re.escape(escaped or letter)
    first, *rest = parts
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{part})" for part in rest[:-1]) + f"[^/]*{rest[-1]}"


def _class_expression(members: str, *, negated: bool) -> str:
    """The class of these members, which never holds a slash. Raises `ToolError` for a range that ends before it begins."""
    ranges = [(found[1], found[2]) for found in _RANGE.finditer(members)]
    wrong = next((f"{first}-{last}" for first, last in ranges if first > last), None)
    if wrong is not None:
        raise ToolError(f"the range {wrong} in a class of the pattern ends before it begins")
    single = _RANGE.sub("", members)
    inside = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in ranges) + "".join(map(re.escape, single))
    return f"[^/{inside}]" if negated else f"(?!/)[{inside}]"
