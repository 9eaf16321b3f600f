"""English stems by the rules of the Porter2 algorithm, so that inflected forms of a word are one term of the index."""

from functools import lru_cache
from typing import Final

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
