"""What a sentence is about, so that two of them can be compared: words without their endings, Chinese by pairs of signs, exact things."""

import re
from typing import Final

from palimpsest.audit.entities import is_name, is_path, number_in, tokens_of, trimmed
from palimpsest.core.items import Value

_WORD = re.compile(r"[a-z][a-z'’]+")
_SHORT = re.compile(r"\b[A-Z]{2}(?=s?\b)")
_CHINESE = re.compile(r"[\u3400-\u9fff]+")
_STOP_WORDS = (
    "the a an and or of to in on at for from with by as is are was were be been being am do does did done doing have has had having "
    "will would can could should shall may might must it its this that these those there here i me my we us our you your he him his "
    "she her they them their if then than so but not no nor never don dont doesn didn isn aren wasn won shouldn mustn cannot into "
    "onto over under about after before when while where which who whom whose what how why also just only very really please again "
    "still yet all any each every both some such other more most less least own same too up down out off let lets make makes made "
    "making get gets got go goes going went take takes took put use used using thing things stuff way now new without "
    "within instead rather via per until unless because since although be's it's that's i'm we're you're want like need one "
    "user users client customer owner uses available become became set leave left alone untouched unchanged intact than nothing "
    "none neither nobody avoid cannot never"
)
_STOP = frozenset(_STOP_WORDS.split())
_NEGATIVE = re.compile(
    r"\b(?:not|never|no|none|nothing|neither|nor|without|cannot|avoid\w*|forb[ia]d\w*|prohibit\w*|refus\w*|reject\w*|declin\w*|den(?:y|ied|ies)|"
    r"veto\w*|disallow\w*|bann?(?:ed|s)?|stop(?:ped|s)?|exclud\w*|untouched|unchanged|off[- ]limits|object(?:ed|s)? to|against|"
    r"rul(?:e|ed|es|ing) out|instead of|rather than|leave .{1,40}?(?:alone|as)|dont|hands off|hold off|no longer|ditch\w*)\b|n['’]t\b|"
    r"(?<!more )(?<!less )(?<!fewer )(?<!later )(?<!other )\bthan\b",
    re.IGNORECASE,
)
# Who has nothing against it is for it.
_FOR_IT = re.compile(
    r"\bno (?:objections?|problems?|issues?|concerns?|reservations?)\b|\b(?:do|does|did)(?:n['’]t| not) mind\b|没意见|没问题|不反对|不介意",
    re.IGNORECASE,
)
_NEGATIVE_CHINESE = re.compile(
    r"不(?![过错同仅但管论然])|(?<![分特区级类识个判性差告])别(?![的人处])|勿|禁|没(?!问题|意见)|无需|无须|拒绝|反对|避免|停止|杜绝|否决|而非|毋|甭"
)
_CLAUSE = re.compile(
    r"[,;:，；：、]\s*|\s+(?=(?:instead of|rather than|than|not)\b)|(?=而不是|而非)|"
    r"\s+(?:and|but|while|whereas|although|yet)\s+|\s+[—–-]\s+|(?:但是?|而且|并且|同时|以及|然而|不过)"
)
_COUNTED = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORDS: Final = dict(zip(_COUNTED, map(str, range(2, 13)), strict=True)) | {"twice": "2", "hundred": "100", "thousand": "1000"}
_CHINESE_NUMBERS: Final = dict(zip("两二三四五六七八九", "223456789", strict=True))
_CHINESE_NUMBER = re.compile(r"[两二三四五六七八九](?=[个次行条秒分天版层位种项步名台遍小])|十(?=[个次行条秒分天])")
_FILLERS = re.compile(r"[的了在是和与把将对就也都很要会请我你他它这那其之并且该被让给去来到为以及而所有个些一吧呢吗啊能可上下中里]")


# Words for the same deed; to say that somebody wanted another deed is to say something else.
_DEEDS: Final = (
    (
        "remove",
        "remov delet drop cancel eras eliminat purg wip scrap discard uninstall destroy",
        "删 移除 去掉 去除 清除 卸载 丢弃 干掉 取消",
    ),
    ("add", "add introduc creat implement insert append install", "添 增 新建 创建 加上 加入 引入 安装"),
    (
        "change",
        "chang modif edit alter adjust touch updat rewrit refactor convert migrat replac renam switch swap",
        "改 换 调整 更新 重构 迁移",
    ),
    ("keep", "keep kept retain preserv remain stay maintain", "保留 保持 留着 维持 沿用"),
    ("fix", "fix repair resolv solv correct", "修复 解决 修正"),
    ("disable", "disabl deactivat bypass suppress", "禁用 关闭 停用 绕过"),
    ("enable", "enabl activat", "启用 开启 打开 激活"),
    ("publish", "push publish deploy releas ship", "推送 发布 部署 上线"),
    ("merge", "merg", "合并"),
    ("revert", "revert undo rollback", "回滚 撤销 还原"),
    ("raise", "rais increas bump extend", "提高 增大 延长"),
    ("lower", "lower reduc decreas shrink", "降低 减少 缩短"),
    ("skip", "skip omit ignor", "跳过 省略 忽略 不跑"),
    ("check", "test verif check validat", "测试 验证 检查 校验"),
    ("break", "break brok", "破坏"),
)
_DEED_OF: Final = {stemmed: deed for deed, stems, _ in _DEEDS for stemmed in stems.split()}
_CHINESE_DEEDS: Final = tuple((deed, re.compile("|".join(words.split()))) for deed, _, words in _DEEDS)


class Meaning(Value, frozen=True):
    """What a piece of text is about; numbers, paths and names are `exact` and must be the same, and so must the `deeds`."""

    words: frozenset[str] = frozenset()
    grams: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    deeds: frozenset[str] = frozenset()
    negative: bool = False
    asks: bool = False

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

    def covered_by(self, other: "Meaning") -> float:
        """The share of what it is about that another is about too."""
        if not self.size:
            return 0.0
        heads = {word[:5] for word in other.words if len(word) >= 5}
        words = sum(word in other.words or (len(word) >= 5 and word[:5] in heads) for word in self.words)
        return (words + len(self.grams & other.grams) + len(self.exact & other.exact) + len(self.deeds & other.deeds)) / self.size


def meaning_of(text: str, *, asks: bool = False, negative_of: str = "") -> Meaning:
    """What a text is about; `negative_of` is the whole that it is a part of, if that says whether it is meant negatively."""
    exact: set[str] = set()
    for token in tokens_of(text):
        plain = trimmed(token)
        number = number_in(token) or _amount(plain)
        if number:
            exact.add(number)
        elif is_name(plain) or is_path(plain):
            exact.add(plain.rstrip("/").rpartition("/")[2].lower())
    lower = text.lower()
    words: set[str] = set()
    deeds = {deed for deed, pattern in _CHINESE_DEEDS if pattern.search(text) is not None}
    for word in _WORD.findall(lower):
        if word in _NUMBER_WORDS:
            exact.add(_NUMBER_WORDS[word])
        elif (deed := _DEED_OF.get(stem(word))) is not None:
            deeds.add(deed)
        elif word not in _STOP and len(word) > 2:
            words.add(stem(word))
    words.update(_SHORT.findall(text))
    words -= {stem(part) for name in exact for part in _WORD.findall(name)}
    for found in _CHINESE_NUMBER.findall(text):
        exact.add(_CHINESE_NUMBERS.get(found, "10"))
    said = _FOR_IT.sub(" ", negative_of or text)
    return Meaning(
        frozenset(words),
        frozenset(_grams(text)),
        frozenset(exact),
        frozenset(deeds),
        _NEGATIVE.search(said) is not None or _NEGATIVE_CHINESE.search(said) is not None,
        asks,
    )


def _amount(token: str) -> str:
    """The number in front of a unit: `5s`, `200k`, `30min`."""
    digits = re.match(r"(\d+(?:\.\d+)?)(?:ms|s|m|h|d|k|kb|mb|gb|px|min|x|%)$", token, re.IGNORECASE)
    return digits[1] if digits else ""


def _grams(text: str) -> set[str]:
    found: set[str] = set()
    for run in _CHINESE.findall(text):
        for piece in _FILLERS.sub(" ", run).split():
            found.update(piece[place : place + 2] for place in range(max(1, len(piece) - 1)))
    return found


def clauses_of(text: str) -> list[str]:
    """The clauses of a sentence; what is between them says nothing."""
    return [part for part in (piece.strip() for piece in _CLAUSE.split(text) if piece) if part]


def stem(word: str) -> str:
    """A word without its ending, as far as comparing needs it."""
    word = word.removesuffix("'s").removesuffix("’s")
    for ending in (
        "ations",
        "ation",
        "ings",
        "ing",
        "ions",
        "ion",
        "ments",
        "ment",
        "ers",
        "er",
        "ies",
        "ied",
        "es",
        "ed",
        "s",
        "ly",
        "e",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls" else word
