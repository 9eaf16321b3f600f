"""What a sentence is about, so that two of them can be compared: words without their endings, Chinese by pairs of signs, exact things."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.audit.deeds import ANY_CHINESE_DEED, CHINESE_DEEDS, DEED_OF, ENDING, STAYING, keeps
from palimpsest.audit.entities import SHORTEST_NAME, is_name, is_path, number_in, tokens_of, trimmed
from palimpsest.audit.manner import asks_first
from palimpsest.audit.phrases import plainly
from palimpsest.audit.polarity import AGAINST, finds_bad, is_against
from palimpsest.audit.synonyms import concept
from palimpsest.audit.synonyms_chinese import WORDS, unified
from palimpsest.audit.words import stem
from palimpsest.core.items import Value

_WORD = re.compile(r"[a-z][a-z'’]+")
_CHINESE = re.compile(r"[\u3400-\u9fff]+")
_PATH = re.compile(r"[\w.~@+-]*(?:/[\w.~@+-]+)+/?|\b[\w-]+\.[a-zA-Z]\w{0,5}\b|\b[A-Za-z]\w*_\w+\b")
_PATH_WORD = re.compile(r"[a-z]{3,}")
# A capital inside a sentence names one thing and no other.
_PROPER = re.compile(r"(?<=[a-z0-9,:] )[A-Z][\w']+|\b[A-Z]{2,}s?\b|\b[A-Z]?[a-z]+[A-Z]\w*|\b[A-Z]\w*(?=\d)")
# A word in quotation marks is a name and no deed.
_NAMED = re.compile(r"[“\"「『‘][^”\"」』’]{1,6}[”\"」』’]")
# Which of several plans is meant is as exact as a number.
_OPTION = re.compile(r"(?:\b(?:[Oo]ption|[Vv]ariant|[Pp]lan|[Aa]lternative|[Pp]hase|[Ss]tage) ?|方案|阶段)([A-Z]\b|\d+\b|[一二三四五])")
_ORDER = dict(zip("一二三四五", "12345", strict=True))
_SHORT_NAME = re.compile(r"[A-Za-z]{1,4}\d{1,3}[A-Za-z]?")
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
    "including especially particular especially explicitly clearly kept keep keeps keeping too perhaps maybe "
    "work works part parts scope see sees seen stay stays remain remains land lands through agent matter matters rest free feel "
    "between during provided provide good fine ready plan plans approach entirely altogether completely fully totally else course "
    "mind side case point way time-being present moment currently soon later yet far away order reach reaches next-step purposes "
    "open opened target project code session thing step steps issue respect consequence accordingly namely therefore hence "
    "either whereas though otherwise provided respectively further along regarding concerning total pls ahead against seen call called "
    "logic hard difficult difficulty easy account agent hand hands care kind type branch branches target "
    "worthwhile worth whole handle handled specific certain "
    "question sense idea fact level mode basis terms regard given based related respective particular"
)
STOP: Final = frozenset(_STOP_WORDS.split())
_COUNTED = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TENS = ("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBER_WORDS: Final = (
    dict(zip(_COUNTED, map(str, range(2, 13)), strict=True))
    | dict(zip(_TENS, map(str, range(10, 100, 10)), strict=True))
    | {"twice": "2", "hundred": "100", "thousand": "1000"}
)
_CHINESE_NUMBERS: Final = dict(zip("一两二三四五六七八九", "1223456789", strict=True))
_CHINESE_NUMBER = re.compile(
    r"[两二三四五六七八九十](?=\s?[个次行条秒分天版层位种项步名台遍小页份周月年倍人张件批轮组级块元万千百])|一(?=[年页周月天倍]|小时|"
    r"分钟|星期)"
)
_CHINESE_DAY = re.compile(r"(?:周|星期|礼拜)([一二三四五六日天])|([今明昨])[天晚]")
_CHINESE_PERSON = re.compile(
    r"[老小阿][王李张刘陈杨赵黄吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯邓曹彭曾蔡潘袁蒋董沈吕苏卢丁魏薛叶]|"
    r"[王李张刘陈杨赵黄吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯邓曹彭曾蔡潘袁蒋董沈吕苏卢丁魏薛叶周马](?:总(?!是|共|计|数|量|线|体|之)|"
    r"工(?!作|程|具|艺|厂|单|位)|哥|姐|经理|主任|老师)"
)
_CHINESE_LANGUAGE = re.compile(r"([中英日德法韩俄])[文语]")
_FILLERS = re.compile(
    r"过(?=[大高重慢多])|(?<=\d)\s*[月日号点条次个份台帧]|单位|因为|由于|目前|方面|工作|情况|时候|统一|需求变更|属于|提供|更|于|否|定|"
    r"属|[写记放存](?=[进到入在])|(?:周|星期|礼拜)[一二三四五六日天]|不[能要准许得可该应想让用必会太再是]|没有|绝对?|千万|务必|必须|"
    r"应该|需要|可以|使用|采用|希望|一下|一律|所有|全部|任何|直接|随便|什么|这样|这么|"
    r"[因由则套块种遍须以的了在是和与把将对就也都很要会请我你他它这那其之并且该被让给去来到为以及而个些一张还着起选吧呢吗啊能可上下中里用从时先再只最不别勿等成做有得进掉太]"
)
_WHOLE_WORDS = "上线 下线 上传 下载 中心 中间 之前 以后 用户 应用 作用 可用 对象 对账 时间 实时 有效 进程 进度 最优 最新 不现实"
# A sign inside a word is no filler.
_WHOLE = "|".join(sorted((*WORDS, *_WHOLE_WORDS.split()), key=len, reverse=True))
FILLER: Final = re.compile(f"({_WHOLE})|{_FILLERS.pattern}")
_WIDE = re.compile(
    r"\b(?:all|every(?:thing|where|one|body)?(?! (?:\d|second|minute|hour|day|night|week|month|time|other|two|three|five|ten|quarter))|"
    r"each|any(?:thing|where|one|body)?|always|freely|unlimited|unrestricted|blanket|indefinitely|permanently|for good)\b|"
    r"所有(?![，。；权]|$)|任何|随便|随意|任意|一切|什么都|不限|永久",
    re.IGNORECASE,
)


# What happens already, said with a verb for a deed: `the job drops every row`.
_HAPPENS = re.compile(
    r"\b\w+ (?:[a-z]{3,}s) (?:every|all|the|an?|any|our|its|my|them|it|too|some|half|two|on|with|when|at|for)\b|\b(?:i|we) (?:tested|"
    r"tried|saw|see|noticed|got|found|ran|had|suspect|guess)\b|\b(?:was|were|has been|had been|keeps? \w+ing)\b|"
    r"(?<!社)会(?![话员议计])|老是|总是|经常|偶尔|"
    r"有时|昨[天晚日]|一直|怀疑",
    re.IGNORECASE,
)
_TO_HAPPEN = re.compile(
    r"\b(?:must|should|needs?|please|make sure|want|let|can|may|could|fine|good|great|ok|okay|go ahead|yes|sure)\b|^(?:make|ensure)|要|"
    r"必须|应|别|不|请|得|可以|行|吧|就",
    re.IGNORECASE,
)
# Who wants to know whether something is bad has not found it bad.
_LOOKS = re.compile(r"看看|看下|看一下|查|排查|定位|是不是|是否|\b(?:whether|look|check|find out|investigate|see if)\b", re.IGNORECASE)
_IS = re.compile(r"\b(?:is|are|was|were|currently|now)\b|现在|目前|用的是|写的是", re.IGNORECASE)
_REFERS = re.compile(r"\b(?:it|them|this|that|these|those|they|one|ones|there)\b|[它这那其此]", re.IGNORECASE)

Stance = Literal["yes", "alter", "stay", "end", "no", "ban", "bad"]


class Meaning(Value, frozen=True):
    """What a piece of text is about; numbers, paths and names are `exact` and must be the same, and so must the `deeds`."""

    words: frozenset[str] = frozenset()
    grams: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    """Chinese signs in a row; their pairs are the grams."""
    exact: frozenset[str] = frozenset()
    deeds: frozenset[str] = frozenset()
    proper: frozenset[str] = frozenset()
    """Those of the words that name one thing: `Postgres`, and every Latin word in a Chinese sentence."""
    negative: bool = False
    bad: bool = False
    asks: bool = False
    wide: bool = False
    keeps: bool = False
    """Whether it wants something to stay as it is."""
    text: str = ""
    tells: bool = False
    """Whether it tells what is the case, and wants nothing."""

    first: bool = False
    """Whether it wants somebody to be asked before."""

    refers: bool = False
    """Whether a word in it stands for something that was named before."""
    about: "Meaning | None" = None
    paths: frozenset[str] = frozenset()
    """Files and folders as they are written; `exact` has only the last part of each."""

    @property
    def topic(self) -> "Meaning":
        """What it is about before it says no to anything."""
        return self if self.about is None else self.about

    @property
    def stance(self) -> Stance:
        """What is to become of the thing: a change, an end, no change, nothing of the kind, or else it is wanted."""
        if self.negative:
            return "ban" if self.deeds & STAYING or self.keeps else "no"
        if self.bad:
            return "bad"
        if self.keeps:
            return "stay"
        if self.deeds & ENDING:
            return "end"
        return "alter" if self.deeds & STAYING else "yes"

    @property
    def signs(self) -> frozenset[str]:
        """Its Chinese signs, one by one."""
        return frozenset("".join(self.grams))

    @property
    def says(self) -> bool:
        """Whether it is about anything."""
        return self.size > 0

    @property
    def size(self) -> float:
        """How many things it is about; two Chinese signs are one."""
        return len(self.words) + sum(map(len, self.runs)) / 2 + len(self.exact) + len(self.deeds)

    @property
    def chinese(self) -> bool:
        """Whether most of it is Chinese."""
        return bool(self.runs)

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
        return self.shared_with(other) / self.size

    def shared_with(self, other: "Meaning") -> float:
        """How much of what it is about another is about too."""
        words = sum(other.has_word(word) for word in self.words)
        signs = other.signs if self.runs else frozenset()
        chinese = sum(_covered(run, other.grams, signs) for run in self.runs)
        return words + chinese / 10 + len(self.exact & other.exact) + len(self.deeds & other.deeds)


def _covered(run: str, grams: frozenset[str], signs: frozenset[str]) -> int:
    """How many tenths of two-sign words another has: five for a sign that stands beside the same one there, two if it is there at all."""
    if len(run) == 1:
        return 5 * (run in signs)
    found = [run[place : place + 2] in grams for place in range(len(run) - 1)]
    beside = [first or second for first, second in zip([False, *found], [*found, False], strict=True)]
    return sum(5 if whole else 2 * (sign in signs) for sign, whole in zip(run, beside, strict=True))


def meaning_of(text: str, *, asks: bool = False, claimed: str = "") -> Meaning:
    """What a clause is about; `claimed` is the clause with the words that claim it, which say whether it is meant negatively."""
    text, said = plainly(text), plainly(claimed or text)
    exact, paths = _exact_in(text)
    exact |= {f"option {_ORDER.get(found, found.lower())}" for found in _OPTION.findall(text)}
    bare = _PATH.sub(" ", text)
    words: set[str] = set()
    chinese = _CHINESE.search(text) is not None
    deeds = chinese_deeds(_NAMED.sub(" ", text)) if chinese else set()
    for word in _WORD.findall(bare.lower()):
        if word in NUMBER_WORDS:
            exact.add(NUMBER_WORDS[word])
        elif word in STOP or word.endswith(("n't", "n’t", "'d", "'ll", "'ve", "'re")):
            continue
        elif (deed := DEED_OF.get(stem(word))) is not None:
            deeds.add(deed)
        elif len(word) > 2 or word == "ci":
            words.add(concept(word))
    # A name may follow a word that claims, and begin what is left without it.
    plain = bare if chinese or not claimed else " ".join(("a" if bare[0:1].isspace() else "", *bare.split()))
    names = (_LATIN if chinese else _PROPER).findall(plain)
    runs = _runs(unified(text)) if chinese else frozenset()
    words.update(name.lower() for name in names if len(name) == 2 and name.isupper())
    words -= {stem(name) for name in exact}
    if chinese:
        exact |= {_CHINESE_NUMBERS.get(found, "10") for found in _CHINESE_NUMBER.findall(text)}
        exact |= set(_CHINESE_LANGUAGE.findall(text)) | set(_CHINESE_PERSON.findall(text))
        exact |= {f"day {found[0] or found[1]}" for found in _CHINESE_DAY.findall(text)}
    return Meaning(
        frozenset(words),
        _grams(runs),
        runs,
        frozenset(exact),
        frozenset(deeds),
        frozenset(words & {form for name in names for form in (stem(name.lower()), name.lower(), concept(name.lower()))}),
        is_against(said),
        finds_bad(said) and _LOOKS.search(said) is None,
        asks,
        _WIDE.search(text) is not None,
        keeps(said),
        text,
        _HAPPENS.search(text) is not None and _TO_HAPPEN.search(text) is None,
        asks_first(said),
        _REFERS.search(text) is not None,
        paths=frozenset(path for path in paths if "/" in path),
    )


def _exact_in(text: str) -> tuple[set[str], set[str]]:
    """The numbers, names and last parts of paths in a text, and the paths as they are written."""
    exact: set[str] = set()
    paths: set[str] = set()
    for token in tokens_of(text):
        if token.isalpha() and (token.islower() or len(token) < SHORTEST_NAME):
            continue
        if len(token) > 1 and token.endswith("/") and token.count("/") == 1:
            exact.add(token[:-1].lower())
            continue
        plain = trimmed(token)
        number = number_in(token) or _amount(plain)
        if number:
            exact.add(number)
        elif is_name(plain) or is_path(plain) or "/" in plain.strip("/") or _SHORT_NAME.fullmatch(plain) is not None:
            path = plain.rstrip("/").lower()
            exact.add(path.rpartition("/")[2])
            paths.add(path)
    return exact, paths


def clause_of(text: str, *, asks: bool, overtaken: bool) -> Meaning:
    """What a clause of the user is about, with its topic; what is so and shall be otherwise is not wanted."""
    found = meaning_of(text, asks=asks)
    if overtaken and _IS.search(text) is not None and _TO_HAPPEN.search(text) is None:
        found = replace(found, bad=True)
    named = frozenset(concept(word) for path in _PATH.findall(text) for word in _PATH_WORD.findall(path.lower()))
    if named:
        found = replace(found, words=found.words | named)
    return replace(found, about=meaning_of(topic_of(text))) if found.negative or found.bad else found


def chinese_deeds(text: str) -> set[str]:
    """What a Chinese text does or wants done."""
    return {deed for deed, pattern in CHINESE_DEEDS if pattern.search(text) is not None}


def topic_of(clause: str) -> str:
    """What a clause is about before it says no to anything: the next ones may be about that too."""
    found = AGAINST.search(clause) or _IS.search(clause)
    return clause[: found.start()] if found else clause


def _amount(token: str) -> str:
    """The number in front of a unit: `5s`, `200k`, `30min`."""
    digits = re.match(r"(\d+(?:\.\d+)?)(?:ms|s|m|h|d|k|kb|mb|gb|px|min|x|%)$", token, re.IGNORECASE)
    return digits[1] if digits else ""


def _runs(text: str) -> frozenset[str]:
    """Signs in a row, without those for a deed and without fillers."""
    bare = FILLER.sub(lambda filler: filler[1] or " ", ANY_CHINESE_DEED.sub(" ", text))
    return frozenset(_CHINESE.findall(bare))


def _grams(runs: frozenset[str]) -> frozenset[str]:
    """Pairs of signs, and signs that stand alone."""
    return frozenset(pair for run in runs for pair in (map("".join, pairwise(run)) if len(run) > 1 else (run,)))


def together(meanings: Sequence[Meaning]) -> Meaning:
    """All that some clauses are about."""
    return Meaning(
        frozenset().union(*(each.words for each in meanings)),
        frozenset().union(*(each.grams for each in meanings)),
        frozenset().union(*(each.runs for each in meanings)),
        frozenset().union(*(each.exact for each in meanings)),
        frozenset().union(*(each.deeds for each in meanings)),
        frozenset().union(*(each.proper for each in meanings)),
        any(each.negative for each in meanings),
        any(each.bad for each in meanings),
        all(each.asks for each in meanings),
        any(each.wide for each in meanings),
        any(each.keeps for each in meanings),
        " ".join(each.text for each in meanings),
        all(each.tells for each in meanings),
        any(each.first for each in meanings),
        any(each.refers for each in meanings),
        paths=frozenset().union(*(each.paths for each in meanings)),
    )
