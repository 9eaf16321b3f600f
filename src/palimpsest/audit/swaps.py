"""Whether a claim has another thing in the place of the one that was said: the same words stand around both."""

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from palimpsest.audit.claims import without_claiming
from palimpsest.audit.content import FILLER, NUMBER_WORDS, STOP, chinese_deeds
from palimpsest.audit.deeds import ANY_CHINESE_DEED, DEED_OF
from palimpsest.audit.phrases import plainly
from palimpsest.audit.synonyms import concept
from palimpsest.audit.synonyms_chinese import unified
from palimpsest.audit.words import stem

_TOKEN = re.compile(
    r"[\w.~@+-]*(?:/[\w.~@+-]+)+/?|[\w.-]+/|![a-z]+|\w+(?:[_.]\w+)+|[a-z][a-z'’]*[a-z]|\d+|[\u3400-\u9fff]|[,;:.()，。；：、\s]+",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_EXACT = re.compile(r"[\d/_.]")
_HEAD, _LONGER, _SIGNS = 5, 3, 2
_START, _END, _BLANK = "^", ".", " "
# After these words, after a deed and at the beginning stands the name of a thing.
_LEAD_WORDS = (
    "the a an any all our my its their his her your of in for from with without on about no new old every each by into and or onto "
    "under over between only also both other some these those this that not more"
)
_LEADS: Final = frozenset(_LEAD_WORDS.split())
# After the same of these words stands the same thing.
_MARKERS: Final = frozenset(("without", "than", "from", "into", "except"))
_VERB_WORDS = "to is are was were be been being do does did have has had will would can could should shall may might must if when which who"
_VERBS: Final = frozenset(_VERB_WORDS.split())
_GENERAL: Final = frozenset(
    map(concept, ("file", "folder", "function", "method", "class", "feature", "component", "element", "item", "system", "tool"))
)
"""Words that may stand for any thing of the kind."""
_NO_THINGS: Final = frozenset(
    map(concept, ("content", "existing", "current", "future", "exact", "actual", "latest", "something", "anything", "happen", "become"))
)
_GENERAL_CHINESE: Final = re.compile(r"(?:文件夹?|目录|功能|代码|部分|东西)+")
_NO_THING_CHINESE: Final = re.compile(
    r"(?:内容|相关|问题|方式|方法|进行|处理|操作|必要|收到|具体|方案|计划|限定|露出|出现|所有|次性|东西)+"
)
_LIGHT_CHINESE = re.compile(r"因为|由于|以后|之后|后应|[后应说想但几面之过没前]")


class _Token(NamedTuple):
    """One word, sign or mark of a text: what it stands for, and whether the name of a thing may begin with it."""

    name: str
    leads: bool


class _Stretch(NamedTuple):
    """Words in a row that the other side has not, and what stands next to them."""

    words: tuple[str, ...]
    beside: frozenset[str]


@lru_cache(maxsize=2_000)
def _tokens(text: str) -> tuple[_Token, ...]:
    """The things of a text in their order; deeds and marks are told apart, a Chinese sign stands for itself."""
    text = plainly(text).lower()
    if _CHINESE.search(text) is not None:
        text = _LIGHT_CHINESE.sub(" ", FILLER.sub(lambda filler: filler[1] or " ", ANY_CHINESE_DEED.sub(_marked, unified(text))))
        blank = _BLANK
    else:
        blank = ""
    found: list[_Token] = []
    leads, inside, verb = True, False, False
    for word in _TOKEN.findall(text):
        if word in _MARKERS:
            found.append(_Token(f"~{word}", leads=False))
            leads, inside = True, False
            continue
        if word in STOP or word.endswith(("n't", "n’t", "'d", "'ll", "'ve", "'re")):
            inside = (leads or inside) and word not in _VERBS and word not in _LEADS
            leads = word in _LEADS or (leads and word not in _VERBS)
            verb = word in {"to", "not", "never"} or word.endswith("t")
            continue
        name = _name(word, blank)
        if name:
            leads = leads or (not inside and word.endswith("s") and not word.endswith("ss"))
            found.append(_Token(name, leads))
            inside = (leads or inside) and name[0] not in "!. "
            leads, verb = verb or name[0] in "!. " or word in _LEADS, False
    return tuple(found)


def _marked(deed: "re.Match[str]") -> str:
    return "".join(f" !{name} " for name in sorted(chinese_deeds(deed[0]))) or " "


def _name(word: str, blank: str) -> str:
    if word[0] == "!":
        return word
    if word.isspace():
        return blank
    if word[0] in " ,;:.()，。；：、\t\n":
        return _END
    if _EXACT.search(word) is not None or _CHINESE.match(word) is not None:
        return word.rstrip("./")
    if word in NUMBER_WORDS and word != "twice":
        return NUMBER_WORDS[word]
    if stem(word) in DEED_OF:
        return f"!{DEED_OF[stem(word)]}"
    return concept(word) if len(word) > 2 else ""


def _known(tokens: tuple[_Token, ...], other: tuple[_Token, ...]) -> list[bool]:
    """Of each token whether the other text has it; a Chinese sign only beside the same one."""
    names = [token.name for token in tokens]
    others = [token.name for token in other]
    words, pairs = frozenset(others), frozenset(pairwise(others))
    heads = {word[:_HEAD]: len(word) for word in others if len(word) >= _HEAD and word[0] not in "=!"}
    found: list[bool] = []
    for place, name in enumerate(names):
        if _CHINESE.match(name) is not None:
            around = names[max(0, place - 1) : place + 2]
            found.append(any(pair in pairs for pair in pairwise(around) if name in pair))
        else:
            found.append(name in words or (name[:_HEAD] in heads and abs(heads[name[:_HEAD]] - len(name)) < _LONGER))
    return found


def _stretches(tokens: tuple[_Token, ...], other: tuple[_Token, ...]) -> list[_Stretch]:
    """The things that only one of two texts names, each with what both have before and after it."""
    found: list[_Stretch] = []
    names = [_START, *(token.name for token in tokens), _END]
    known = [True, *_known(tokens, other), True]
    place = 1
    while place < len(names) - 1:
        end = place
        while not known[end] and not _is_mark(names[end]):
            end += 1
        if end > place and _is_thing(tokens[place - 1 : end - 1]):
            found.append(
                _Stretch(tuple(names[place:end]), frozenset((*_nearest(names, known, place, -1), *_nearest(names, known, end - 1, 1))))
            )
        place = max(end, place + 1)
    return found


def _is_mark(name: str) -> bool:
    return name in {_END, _BLANK} or name[0] in "!~" or _EXACT.search(name) is not None


def _nearest(names: list[str], known: list[bool], place: int, step: int) -> list[str]:
    """What both texts have next to a place: a word, or two Chinese signs."""
    found: list[str] = []
    place += step
    while 0 <= place < len(names) and names[place] != _END and len(found) < _SIGNS:
        if names[place] != _BLANK:
            if not known[place]:
                break
            # Forms of one word begin alike.
            found.append(names[place] if names[place][0] in "=!~" else names[place][:_HEAD])
            if _CHINESE.match(names[place]) is None and names[place][0] != "~":
                break
        elif found:
            break
        place += step
    return found


def _is_thing(held: tuple[_Token, ...]) -> bool:
    """Whether words name a thing of its own."""
    if _CHINESE.match(held[0].name) is not None:
        return len(held) > 1 and _NO_THING_CHINESE.fullmatch("".join(each.name for each in held)) is None
    return held[0].leads and any(each.name not in _NO_THINGS and not each.name.endswith("ly") for each in held)


def _is_general(words: tuple[str, ...]) -> bool:
    """Whether words may stand for any thing of the kind."""
    return all(word in _GENERAL for word in words) or _GENERAL_CHINESE.fullmatch("".join(words)) is not None


def things_of(text: str) -> frozenset[str]:
    """The things and deeds that a text names."""
    return frozenset(token.name for token in _tokens(text)) - {_END, _BLANK}


def swaps(claim: str, said: str) -> bool:
    """Whether a thing that was not said stands in a claim, without the words that claim it, where another stands in what was said."""
    claimed, meant = _tokens(claim), _tokens(without_claiming(said))
    # A claim may be more general than what was said, and not the other way round.
    others = [other for other in _stretches(claimed, meant) if not _is_general(other.words)]
    return bool(others) and any(_stands_for(one, other) for one in others for other in _stretches(meant, claimed))


def _stands_for(one: _Stretch, other: _Stretch) -> bool:
    """Whether one of two things stands where the other does; where both only begin, they must be about as long."""
    beside = one.beside & other.beside
    return bool(beside) and (beside != {_START} or abs(len(one.words) - len(other.words)) < _LONGER)
