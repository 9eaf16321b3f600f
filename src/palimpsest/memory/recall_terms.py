"""Terms of recall: stems of words and pairs of CJK characters, the units that are recalled, and dates in a text."""

import re
import unicodedata
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import date
from functools import lru_cache
from typing import Final

from palimpsest.core.items import Value

_VOWELS: Final = frozenset("aeiouy")
_DOUBLES: Final = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_LI_ENDINGS: Final = frozenset("cdeghkmnrt")
# Words whose region R1 begins behind a fixed prefix.
_PREFIXES: Final = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_IRREGULAR: Final = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_UNCHANGED_AFTER_PLURAL: Final = frozenset({"inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed"})
# Endings with their replacement, the longest first.
_STEP_2: Final = (
    ("ization", "ize"),
    ("ational", "ate"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("ogist", "og"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
)
_STEP_3: Final = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP_4: Final = ("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "al", "er", "ic")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a word in lower case; words with other letters, with digits, or of up to two letters are their own stem."""
    if len(word) <= 2 or not word.isascii() or not word.isalpha():
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    word = _mark_consonant_y(word)
    first = _region(word, 0) if (prefix := _prefix(word)) is None else len(prefix)
    second = _region(word, first)
    word = _step_1a(word)
    if word in _UNCHANGED_AFTER_PLURAL:
        return word
    word = _step_1c(_step_1b(word, first))
    word = _step_3(_step_2(word, first), first, second)
    return _step_5(_step_4(word, second), first, second).replace("Y", "y")


def _prefix(word: str) -> str | None:
    return next((prefix for prefix in _PREFIXES if word.startswith(prefix)), None)


def _mark_consonant_y(word: str) -> str:
    """Return the word with each y that is a consonant as Y: at the beginning, and after a vowel."""
    if "y" not in word:
        return word
    letters = list(word)
    for at, letter in enumerate(letters):
        if letter == "y" and (at == 0 or letters[at - 1] in _VOWELS):
            letters[at] = "Y"
    return "".join(letters)


def _region(word: str, start: int) -> int:
    """Return where the region behind the first consonant after a vowel begins."""
    for at in range(start + 1, len(word)):
        if word[at] not in _VOWELS and word[at - 1] in _VOWELS:
            return at + 1
    return len(word)


def _has_vowel(part: str) -> bool:
    return not _VOWELS.isdisjoint(part)


def _ends_short(word: str) -> bool:
    """Return whether the word ends with a short syllable."""
    if word == "past":
        return True
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return len(word) > 2 and word[-3] not in _VOWELS and word[-2] in _VOWELS and word[-1] not in _VOWELS and word[-1] not in "wxY"


def _step_1a(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _step_1b(word: str, first: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            return word[: -len(ending)] + "ee" if len(word) - len(ending) >= first else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if ending == "ing" and len(rest) == 2 and rest[1] == "y" and rest[0] not in _VOWELS:
                return rest[0] + "ie"
            return _mend(rest, first) if _has_vowel(rest) else word
    return word


def _mend(rest: str, first: int) -> str:
    """Return a word whose -ed or -ing was removed, with the letter that its stem ends with."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest if len(rest) == 3 and rest[0] in "aeo" else rest[:-1]
    return rest + "e" if first >= len(rest) and _ends_short(rest) else rest


def _step_1c(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _step_2(word: str, first: int) -> str:
    for ending, replacement in _STEP_2:
        if word.endswith(ending):
            return word[: -len(ending)] + replacement if len(word) - len(ending) >= first else word
    if word.endswith("ogi"):
        return word[:-1] if len(word) - 3 >= first and word[-4:-3] == "l" else word
    if word.endswith("li") and len(word) - 2 >= first and word[-3:-2] in _LI_ENDINGS:
        return word[:-2]
    return word


def _step_3(word: str, first: int, second: int) -> str:
    for ending, replacement in _STEP_3:
        if word.endswith(ending):
            return word[: -len(ending)] + replacement if len(word) - len(ending) >= first else word
    return word[:-5] if word.endswith("ative") and len(word) - 5 >= second else word


def _step_4(word: str, second: int) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            return word[: -len(ending)] if len(word) - len(ending) >= second else word
    return word[:-3] if word.endswith(("sion", "tion")) and len(word) - 3 >= second else word


def _step_5(word: str, first: int, second: int) -> str:
    if word.endswith("e"):
        at = len(word) - 1
        return word[:-1] if at >= second or (at >= first and not _ends_short(word[:-1])) else word
    return word[:-1] if word.endswith("ll") and len(word) - 1 >= second else word


# The list of the specification; it says which words are not searched for, and nothing about what a sentence means.
_STOP_WORDS: Final = (
    "a an the and or but if of to in on at for with by from as is are was were be been being do does did has have had having i me my "
    "we our you your he him his she her it its they them their this that these those what which who whom when where why how not no so "
    "than too very can will just would could should about into over after before again further then once here there all any both each "
    "few more most other some such only own same s t don now d ll m re ve"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
_CJK_RANGES: Final = (
    "\u1100-\u11ff\u3040-\u312f\u3131-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U000323af"
)
_WORDS: Final = re.compile(f"([{_CJK_RANGES}]+)|([^\\W_{_CJK_RANGES}]+)")
_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+")
_POSSESSIVE: Final = re.compile(r"['’]s\b")
_CJK: Final = re.compile(f"[{_CJK_RANGES}]")
# Longer runs of letters are encoded data; they would make the vocabulary grow without being searched for.
LONGEST_WORD: Final = 64


def fold(text: str) -> str:
    """Return the text in lower case, without accents and without possessive endings."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize("NFC", "".join(letter for letter in decomposed if not unicodedata.combining(letter)))
    return _POSSESSIVE.sub("", text.lower())


def words(text: str) -> list[str]:
    """Return the words of a text in order, folded, stop words included; a run of CJK characters gives its pairs of neighbours."""
    folded = fold(text)
    if folded.isascii():
        return [word for word in _ASCII_WORDS.findall(folded) if len(word) <= LONGEST_WORD]
    found: list[str] = []
    for cjk, word in _WORDS.findall(folded):
        if word:
            if len(word) <= LONGEST_WORD:
                found.append(word)
        elif len(cjk) == 1:
            found.append(cjk)
        else:
            found += [cjk[at : at + 2] for at in range(len(cjk) - 1)]
    return found


def stems(found: Iterable[str]) -> list[str]:
    """Return the stems of all words that are not stop words, in order and with repetitions."""
    return [stem(word) for word in found if word not in STOP_WORDS]


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query in order; its stop words count if it has nothing else."""
    found = words(text)
    return list(dict.fromkeys(stems(found) or map(stem, found)))


def has_cjk(text: str) -> bool:
    """Return whether a text has a Chinese, Japanese or Korean character."""
    return not text.isascii() and _CJK.search(text) is not None


# Words in a unit of the log; a character of a script without spaces counts half a word.
WORDS_A_UNIT: Final = 120
_UNSPACED: Final = "\u2e80-\uffff\U00020000-\U000323af"
_ATOMS: Final = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+|\\s+")
_SENTENCE_ENDS: Final = (".", "!", "?", "。", "！", "？", "\n")


TURN, STEP, FIX = "turn", "step", "fix"


class RecallUnit(Value, frozen=True):
    """One thing that can be recalled.

    id: evidence id, unique in an index: `session:seq`, or the name of a note.
    who, role: the name of the person who speaks, empty if unknown; `user`, `assistant` or another role.
    session, position: the session it belongs to, and its place there; empty and 0 for notes.
    date: when it was said, as an ISO date or date and time; empty if unknown.
    kind: `turn`; `step`, which is what a model said while it worked, between the beginning and the end of a turn; `fix`; or that of a note.
    paths: files it is about.
    sources: evidence ids of other events whose text is in its text, such as errors that a tool printed.
    """

    id: str
    text: str
    who: str = ""
    role: str = ""
    session: str = ""
    position: int = 0
    date: str = ""
    kind: str = TURN
    paths: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def cut(text: str, most: int = WORDS_A_UNIT) -> Iterator[str]:
    """Yield consecutive parts of a text, at most `most` words each, cut behind the last sentence or line that fits, else behind a word."""
    start = sentence_end = 0
    size = size_of_sentences = 0.0
    for atom in _ATOMS.finditer(text):
        found = atom[0]
        weight = 0.0 if found.isspace() else 0.5 if found > "\u2e7f" else 1.0
        if size + weight > most and sentence_end > start:
            yield from _stripped(text[start:sentence_end])
            start, size, size_of_sentences = sentence_end, size - size_of_sentences, 0.0
        if size + weight > most and atom.start() > start:
            yield from _stripped(text[start : atom.start()])
            start, size = atom.start(), 0.0
        size += weight
        if found.endswith(_SENTENCE_ENDS) or "\n" in found:
            sentence_end, size_of_sentences = atom.end(), size
    yield from _stripped(text[start:])


def _stripped(part: str) -> Iterator[str]:
    """Yield a part without white space around it, unless nothing is left."""
    if stripped := part.strip():
        yield stripped


# Names of the calendar are a closed class; a name counts as a month only beside a day or a year.
MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_NUMBERS: Final = {spelling: number for number, name in enumerate(MONTHS, 1) for spelling in (name, name[:3], name[:4])}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\.?"
_DAY: Final = r"(?P<day>3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"
_SHAPES: Final = tuple(
    re.compile(shape, re.IGNORECASE)
    for shape in (
        rf"(?<![\w.-]){_YEAR}(?P<mark>[-/.])(?P<number>1[0-2]|0?[1-9])(?P=mark){_DAY}(?![\w-])",
        rf"(?<!\d){_YEAR}\s?年\s?(?P<number>1[0-2]|0?[1-9])\s?月(?:\s?{_DAY}\s?[日号])?",
        rf"(?<![\d年])(?P<number>1[0-2]|0?[1-9])\s?月\s?{_DAY}\s?[日号]",
        rf"\b{_MONTH}\s+{_DAY}(?![\d:%])(?:,?\s+{_YEAR}(?!\d))?",
        rf"(?<![\d:]){_DAY}\s+(?:of\s+)?{_MONTH}\b(?:,?\s+{_YEAR}(?!\d))?",
        rf"\b{_MONTH},?\s+{_YEAR}(?!\d)",
        rf"(?<!\d)(?P<first>\d{{1,2}})(?P<mark>[/.-])(?P<second>\d{{1,2}})(?P=mark){_YEAR}(?!\d)",
    )
)
# Characters that are read for dates, and dates of one text: a log with more is no statement of a deadline.
LONGEST: Final = 20_000
MOST_DATES: Final = 64


class DateSpan(Value, frozen=True):
    """Days that a text names, first and last: one day, or a month without a day; both as ordinals of the calendar."""

    first: int
    last: int


def dates_in(text: str, said: str = "") -> tuple[DateSpan, ...]:
    """Return the dates of a text, in order and each once, at most `MOST_DATES`.

    A date without a year is the first such day on or after the day on which it was said, an ISO date; without that it does not count. Of
    days such as 03/04/2025, which two conventions read differently, none is returned.
    """
    reference = day_of(said)
    found = sorted(_found(text[:LONGEST], reference))
    kept: list[tuple[int, int, DateSpan]] = []
    for start, end, span in found:
        # A longer shape contains shorter ones: `May 2` in `May 2025`.
        if not kept or start >= kept[-1][1]:
            kept.append((start, end, span))
        elif end > kept[-1][1]:
            kept[-1] = (start, end, span)
    return tuple(dict.fromkeys(span for _, _, span in kept))[:MOST_DATES]


def day_of(text: str) -> int | None:
    """Return the ordinal of the day of an ISO date or time; None if it is none."""
    try:
        return date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None


def _found(text: str, reference: int | None) -> Iterator[tuple[int, int, DateSpan]]:
    for shape in _SHAPES:
        for match in shape.finditer(text):
            span = _span(match.groupdict(), reference)
            if span is not None:
                yield match.start(), match.end(), span


def _span(parts: dict[str, str | None], reference: int | None) -> DateSpan | None:
    day, year = parts.get("day"), parts.get("year")
    month: int | None
    if (first := parts.get("first")) is not None:
        one, other = int(first), int(parts["second"] or 0)
        if (one > 12) == (other > 12) and one != other:
            return None
        month, day = (other, first) if one > 12 else (one, str(other))
    else:
        name = parts.get("month")
        month = _NUMBERS[name.lower()] if name else int(parts["number"] or 0)
    if year is not None:
        return _in_year(int(year), month, day)
    if reference is None:
        return None
    said_year = date.fromordinal(reference).year
    spans = (_in_year(candidate, month, day) for candidate in range(said_year, said_year + 5))
    return next((span for span in spans if span is not None and span.last >= reference), None)


def _in_year(year: int, month: int, day: str | None) -> DateSpan | None:
    try:
        first = date(year, month, int(day) if day else 1).toordinal()
    except ValueError:
        return None
    return DateSpan(first, first if day else first + monthrange(year, month)[1] - 1)
