"""Glob patterns of paths as regular expressions, and ripgrep's regular expressions translated for Python."""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Final

from palimpsest.agent.tool import ToolError
from palimpsest.core.text import lazy_pattern

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


_PROPERTY: Final = re.compile(r"\\([pP])(?:\{(\^?)([^{}]*)\}|([A-Za-z]))")
_POSIX: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_CODE: Final = re.compile(r"\\x\{([0-9A-Fa-f]{1,6})\}")
_CATEGORIES: Final = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "number": "N",
    "decimalnumber": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "symbol": "S",
    "mathsymbol": "Sm",
    "currencysymbol": "Sc",
    "separator": "Z",
    "spaceseparator": "Zs",
    "other": "C",
    "control": "Cc",
    "format": "Cf",
}
_TESTS: Final[dict[str, Callable[[str], bool]]] = {
    "alphabetic": str.isalpha,
    "uppercase": str.isupper,
    "lowercase": str.islower,
    "whitespace": str.isspace,
    "any": lambda _: True,
    "ascii": str.isascii,
}
# Python has no table of scripts; the names of characters begin with them.
_SCRIPTS: Final = {
    "han": ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL", "IDEOGRAPHIC ITERATION"),
    **{name: (name.upper(),) for name in ("latin", "greek", "cyrillic", "hebrew", "arabic", "thai", "hiragana", "katakana", "hangul")},
    **{name: (name.upper(),) for name in ("devanagari", "armenian", "georgian", "tamil", "bengali")},
}
_POSIX_CLASSES: Final = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t-\r ",
    "blank": r"\t ",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": r"\w",
    "cntrl": r"\x00-\x1f\x7f",
    "graph": "!-~",
    "print": " -~",
}


def as_python(pattern: str) -> str:
    """The pattern in Python's dialect. Raises `ValueError` if it names a property that is not known here."""
    parts: list[str] = []
    place, inside = 0, False
    while place < len(pattern):
        known = next((found for each in (_PROPERTY, _CODE) if (found := each.match(pattern, place)) is not None), None)
        posix = _POSIX.match(pattern, place) if inside else None
        if known is not None:
            parts.append(_translated(known, inside=inside))
            place = known.end()
        elif posix is not None:
            parts.append(_posix(posix))
            place = posix.end()
        elif pattern[place] == "\\":
            parts.append(r"\Z" if pattern[place : place + 2] == r"\z" else pattern[place : place + 2])
            place += 2
        else:
            opens = pattern[place] == "[" and not inside
            inside = opens or (inside and pattern[place] != "]")
            # A bracket that is the first member does not end a class.
            first = re.compile(r"\[\^?\]?").match(pattern, place) if opens else None
            taken = pattern[place] if first is None else first[0]
            parts.append(taken if opens else rf"\{taken}" if taken == "[" else taken)
            place += len(taken)
    return "".join(parts)


def _translated(found: re.Match[str], *, inside: bool) -> str:
    if found.re is _CODE:
        return re.escape(chr(min(int(found[1], 16), sys.maxunicode)))
    has = _test(found[3] if found[4] is None else found[4])
    wanted = (found[1] == "p") != bool(found[2])
    ranges = _ranges(code for code in range(sys.maxunicode + 1) if has(chr(code)) is wanted)
    return ranges if inside else f"[{ranges}]"


def _test(name: str) -> Callable[[str], bool]:
    plain = re.sub(r"[\s_-]", "", name.rpartition("=")[2]).lower()
    category = _CATEGORIES.get(plain, plain[:1].upper() + plain[1:])
    if plain in _TESTS:
        return _TESTS[plain]
    if plain in _SCRIPTS:
        return lambda letter: unicodedata.name(letter, "").startswith(_SCRIPTS[plain])
    if re.fullmatch("L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?", category) is None:
        raise ValueError(rf"the property \p{{{name}}} is not known without ripgrep")
    return lambda letter: unicodedata.category(letter).startswith(category)


def _posix(found: re.Match[str]) -> str:
    members = _POSIX_CLASSES.get(found[2])
    if members is None or found[1]:
        raise ValueError(f"the class {found[0]} is not known without ripgrep")
    return members


def _ranges(codes: Iterable[int]) -> str:
    """The members of a class, as ranges of characters."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)
