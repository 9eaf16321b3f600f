"""What a sentence is about, so that two of them can be compared: words without their endings, Chinese by pairs of signs, exact things."""

import re
from itertools import pairwise
from typing import Final

from palimpsest.audit.deeds import ANY_CHINESE_DEED, CHINESE_DEEDS, DEED_OF, stem
from palimpsest.audit.entities import SHORTEST_NAME, is_name, is_path, number_in, tokens_of, trimmed
from palimpsest.audit.polarity import finds_bad, is_against
from palimpsest.core.items import Value

_WORD = re.compile(r"[a-z][a-z'’]+")
_CHINESE = re.compile(r"[\u3400-\u9fff]+")
_PATH = re.compile(r"[\w.~@+-]*(?:/[\w.~@+-]+)+/?|\b[\w-]+\.[a-zA-Z]\w{0,5}\b|\b[A-Za-z]\w*_\w+\b")
# A capital inside a sentence names one thing and no other.
_PROPER = re.compile(r"(?<=[a-z0-9,] )[A-Z][\w']+|\b[A-Z]{2,}s?\b|\b[A-Z]?[a-z]+[A-Z]\w*|\b[A-Z]\w*(?=\d)")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9']+")
_HEAD, _LONGER = 5, 3
_STOP_WORDS = (
    "the a an and or of to in on at for from with by as is are was were be been being am do does did done doing have has had having "
    "will would can could should shall may might must it its this that these those there here i me my we us our you your he him his "
    "she her they them their if then than so but not no nor never don dont doesn didn isn aren wasn won shouldn mustn cannot into "
    "onto over under about after before when while where which who whom whose what how why also just only very really please again "
    "still yet all any each every both some such other more most less least own same too up down out off let lets make makes made "
    "making get gets got go goes going went take takes took put use used using usage useful thing things stuff way now new without "
    "within instead rather via per until unless because since although be's it's that's i'm we're you're want like need one once "
    "user users client customer owner uses available become became set leave left alone untouched unchanged intact nothing straight "
    "none neither nobody avoid hmm okay yes yeah sure well far ever even much many lot come came comes since however therefore "
    "everywhere everything anything freely always whole entire anyone anywhere directly simply actually currently already longer "
    "include including included especially particular especially explicitly clearly kept keep keeps keeping too perhaps maybe"
)
_STOP: Final = frozenset(_STOP_WORDS.split())
_COUNTED = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TENS = ("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS: Final = (
    dict(zip(_COUNTED, map(str, range(2, 13)), strict=True))
    | dict(zip(_TENS, map(str, range(10, 100, 10)), strict=True))
    | {"twice": "2", "hundred": "100", "thousand": "1000"}
)
_CHINESE_NUMBERS: Final = dict(zip("两二三四五六七八九", "223456789", strict=True))
_CHINESE_NUMBER = re.compile(r"[两二三四五六七八九](?=[个次行条秒分天版层位种项步名台遍小])|十(?=[个次行条秒分天])")
_CHINESE_DAY = re.compile(r"(?:周|星期|礼拜)([一二三四五六日天])|([今明昨])[天晚]")
_CHINESE_LANGUAGE = re.compile(r"([中英日德法韩俄])[文语]")
_FILLERS = re.compile(
    r"[写记放存](?=[进到入在])|(?:周|星期|礼拜)[一二三四五六日天]|不[能要准许得可该应想让用必会太再是]|没有|绝对?|千万|务必|必须|应该|"
    r"需要|可以|使用|采用|希望|一下|一律|所有|全部|任何|直接|随便|什么|这样|这么|"
    r"[的了在是和与把将对就也都很要会请我你他它这那其之并且该被让给去来到为以及而个些一张还着起选吧呢吗啊能可上下中里用从时先再只最不别勿等成做有得进掉太]"
)
_WIDE = re.compile(
    r"\b(?:all|every(?:thing|where|one|body)?|any(?:thing|where|one|body)?|always|freely|entire|whole|unlimited|unrestricted|"
    r"completely|fully)\b|"
    r"所有|全部|任何|随便|随意|任意|一律|一切|什么都|完全|到处",
    re.IGNORECASE,
)
_NARROW = re.compile(
    r"\b(?:only|just|solely|except|for|if|until|unless|as long as|provided|when|within)\b|只|仅|(?<!删)除了|的话|如果", re.IGNORECASE
)


class Meaning(Value, frozen=True):
    """What a piece of text is about; numbers, paths and names are `exact` and must be the same, and so must the `deeds`."""

    words: frozenset[str] = frozenset()
    grams: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    deeds: frozenset[str] = frozenset()
    proper: frozenset[str] = frozenset()
    """Those of the words that name one thing: `Postgres`, and every Latin word in a Chinese sentence."""
    negative: bool = False
    bad: bool = False
    asks: bool = False
    wide: bool = False
    narrow: bool = False

    @property
    def says(self) -> bool:
        """Whether it is about anything."""
        return self.size > 0

    @property
    def size(self) -> int:
        """How many things it is about."""
        return len(self.words) + len(self.grams) + len(self.exact) + len(self.deeds)

    @property
    def chinese(self) -> bool:
        """Whether most of it is Chinese."""
        return len(self.grams) > len(self.words)

    def has_word(self, word: str) -> bool:
        """Whether it is about a word, or about one that begins alike and is about as long."""
        if word in self.words:
            return True
        return len(word) >= _HEAD and any(
            other[:_HEAD] == word[:_HEAD] and abs(len(other) - len(word)) < _LONGER for other in self.words if len(other) >= _HEAD
        )

    def covered_by(self, other: "Meaning") -> float:
        """The share of what it is about that another is about too."""
        if not self.size:
            return 0.0
        words = sum(other.has_word(word) for word in self.words)
        return (words + len(self.grams & other.grams) + len(self.exact & other.exact) + len(self.deeds & other.deeds)) / self.size


def meaning_of(text: str, *, asks: bool = False, claimed: str = "") -> Meaning:
    """What a clause is about; `claimed` is the clause with the words that claim it, which say whether it is meant negatively."""
    exact: set[str] = set()
    for token in tokens_of(text):
        if token.isalpha() and (token.islower() or len(token) < SHORTEST_NAME):
            continue
        plain = trimmed(token)
        number = number_in(token) or _amount(plain)
        if number:
            exact.add(number)
        elif is_name(plain) or is_path(plain) or "/" in plain.strip("/"):
            exact.add(plain.rstrip("/").rpartition("/")[2].lower())
    bare = _PATH.sub(" ", text)
    words: set[str] = set()
    chinese = _CHINESE.search(text) is not None
    deeds = {deed for deed, pattern in CHINESE_DEEDS if pattern.search(text) is not None} if chinese else set()
    for word in _WORD.findall(bare.lower()):
        if word in _NUMBER_WORDS:
            exact.add(_NUMBER_WORDS[word])
        elif word in _STOP or word.endswith(("n't", "n’t", "'d", "'ll", "'ve", "'re")):
            continue
        elif (deed := DEED_OF.get(stem(word))) is not None:
            deeds.add(deed)
        elif len(word) > 2 or word == "ci":
            words.add(stem(word))
    names = (_LATIN if chinese else _PROPER).findall(bare)
    words.update(name.lower() for name in names if len(name) == 2 and name.isupper())
    words -= {stem(name) for name in exact}
    if chinese:
        exact |= {_CHINESE_NUMBERS.get(found, "10") for found in _CHINESE_NUMBER.findall(text)}
        exact |= set(_CHINESE_LANGUAGE.findall(text))
        exact |= {f"day {found[0] or found[1]}" for found in _CHINESE_DAY.findall(text)}
    said = claimed or text
    return Meaning(
        frozenset(words),
        frozenset(_grams(text) if chinese else ()),
        frozenset(exact),
        frozenset(deeds),
        frozenset(words & {form for name in names for form in (stem(name.lower()), name.lower())}),
        is_against(said),
        finds_bad(said),
        asks,
        _WIDE.search(text) is not None,
        _NARROW.search(text) is not None,
    )


def _amount(token: str) -> str:
    """The number in front of a unit: `5s`, `200k`, `30min`."""
    digits = re.match(r"(\d+(?:\.\d+)?)(?:ms|s|m|h|d|k|kb|mb|gb|px|min|x|%)$", token, re.IGNORECASE)
    return digits[1] if digits else ""


def _grams(text: str) -> set[str]:
    """Pairs of signs, and signs that stand alone, without those for a deed."""
    found: set[str] = set()
    for piece in _FILLERS.sub(" ", ANY_CHINESE_DEED.sub(" ", text)).split():
        for run in _CHINESE.findall(piece):
            found.update(map("".join, pairwise(run)) if len(run) > 1 else (run,))
    return found


def together(meanings: list[Meaning]) -> Meaning:
    """All that some clauses are about."""
    return Meaning(
        frozenset().union(*(each.words for each in meanings)),
        frozenset().union(*(each.grams for each in meanings)),
        frozenset().union(*(each.exact for each in meanings)),
        frozenset().union(*(each.deeds for each in meanings)),
        frozenset().union(*(each.proper for each in meanings)),
        any(each.negative for each in meanings),
        any(each.bad for each in meanings),
        all(each.asks for each in meanings),
        any(each.wide for each in meanings),
        any(each.narrow for each in meanings),
    )
