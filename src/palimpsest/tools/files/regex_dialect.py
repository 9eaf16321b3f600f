r"""Translates what ripgrep's regular expressions know and Python's do not: `\p{L}`, `[[:alpha:]]`, `\x{41}` and `\z`."""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Final

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
