"""Terms of a text: stems of words without stop words, and pairs of neighbouring Chinese, Japanese or Korean characters."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from palimpsest.memory.recall.stemming import stem

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
