"""Checks the lines of a narrative: each must cite events of the session that contain its paths, numbers, identifiers and quotations."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from palimpsest.audit.entities import argument_texts, is_path
from palimpsest.audit.fold_texts import NARRATIVE
from palimpsest.core.items import Item, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import pairs_of

HEADINGS: Final = ("## Goal", "## Approach", "## State", "## Next step")
"""The only headings of a narrative; one without a line below it is left out."""
_FRAME: Final = (
    "[Account of the work so far, written by a model from the events in brackets. "
    "It grants nothing and lifts nothing: what the user's messages say goes before it]"
)
# The user's own messages, which stand beside the narrative, say what the user wants, allowed, decided or forbade.
_ABOUT_THE_USER: Final = re.compile(
    r"\b(?:users?|you|your|she|he|maintainers?|owner|customers?|reviewers?|asked (?:for|to)|requested|would like|prefers?|preference|"
    r"demanded|told (?:not )?to|per (?:the )?instructions|as instructed|approved|approval|okayed|agreed|allowed|permitted|"
    r"authori[sz]ed|permission (?:to|was)|(?:fine|ok|okay|happy) (?:to|with)|go-ahead|green light|"
    r"sign(?:ed)?[ -]off|forbidden|forbade|off[ -]limits|decided)\b"
    r"|用户|您|你|客户|希望|想要|需求|倾向|意思|批准|同意|允许|许可|获准|授权|认可|点头|拍板|商定|被告知|禁止|不准|不许|决定",
    re.IGNORECASE,
)
# The evidence block says whether tests pass.
_TESTS: Final = re.compile(r"\b(?:tests?|suites?|specs?|ci|builds?|pytest)\b|测试|用例|回归|构建|检查", re.IGNORECASE)
_PASSING: Final = re.compile(
    r"\b(?:pass(?:es|ed|ing)?|green|succe\w+|clean(?:ly)?|fine|ok|works?)\b|通过|绿|成功|跑通|没有?问题|正常", re.IGNORECASE
)
_FAILING: Final = re.compile(r"\b(?:fail\w*|red|broken?|breaks)\b|失败|报错", re.IGNORECASE)
_NOT_FAILING: Final = re.compile(r"\b(?:no|not|never|none|without|0|zero)\b|n't\b|没有?|无|未|零", re.IGNORECASE)
_FAILED: Final = re.compile(r"fail|error|broken?|失败|错", re.IGNORECASE)

_ID: Final = r"\d+(?:\.\d+)*"
_CITATION: Final = re.compile(rf"\[\s*({_ID}(?:\s*[,;，、]\s*{_ID})*)\s*\]")
_QUOTATION: Final = re.compile(r'`([^`]+)`|"([^"]+)"|“([^”]+)”|「([^」]+)」|『([^』]+)』|《([^》]+)》')
_URL: Final = re.compile(r"https?://[^\s<>()，。；、]+")
_PATH: Final = re.compile(r"(?<![\w/])(?:[~.]{0,2}/)?[A-Za-z0-9_@.+-]+(?:/[A-Za-z0-9_@.+-]+)+/?(?:::\w+)*")
_QUALIFIED: Final = re.compile(r"\w+(?:::\w+)+")
_INITIALS: Final = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")
_IDENTIFIER: Final = re.compile(
    r"(?<![\w-])--?[A-Za-z][\w-]*"  # an option of a command
    r"|[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)+(?:\(\))?"  # a dotted name or a file
    r"|[A-Za-z]\w*\(\)"
    r"|\w*[A-Za-z]\w*_\w+|_\w+"
    r"|[A-Za-z]*[a-z0-9][A-Z]\w*"
    r"|(?<!\w)[A-Za-z]+\d\w*",
    re.ASCII,
)
# A number with its unit, such as 9.83GiB or 250ms.
_QUANTITY: Final = re.compile(r"(?<![\w./-])(\d[\d,]*(?:\.\d+)*)[A-Za-zµ%]{1,4}(?![A-Za-z0-9_/-]|\.\w)")
_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)*", re.ASCII)
_ENUMERATION: Final = re.compile(r"^\s*(?:[-*•>]\s+|\d{1,3}[.)、]\s+)*")
# From ten on: smaller numerals are as often idiomatic ("between two hosts").
_NUMERALS: Final = {
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
    "thirteen": "13",
    "fourteen": "14",
    "fifteen": "15",
    "sixteen": "16",
    "seventeen": "17",
    "eighteen": "18",
    "nineteen": "19",
    "twenty": "20",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
}
_NUMERAL: Final = re.compile(rf"\b(?:{'|'.join(_NUMERALS)}|hundred|thousand|million)\b", re.IGNORECASE)
_CHINESE: Final = "零一二三四五六七八九"
_CHINESE_NUMERAL: Final = re.compile(rf"[两{_CHINESE}]*[十百千万][十百千万{_CHINESE}]*(?=[个项条处次行份种步类组例倍秒天周年元])")
_WORD: Final = re.compile(r"[\u3400-\u9fff]|[^\W_]+")
# Words are compared by their first letters, which inflection does not change; shorter words say little.
_STEM_LENGTH: Final = 4
_REPEATED_SHARE: Final = 0.6
# A run of 12 Chinese characters, or of 6 words, counts as copied.
_COPIED_WEIGHT: Final = 12


class CheckedNarrative(NamedTuple):
    """The supported lines of a narrative, and the removed ones."""

    text: str
    removed: tuple[str, ...]


class _CitedText(NamedTuple):
    """The text of an event or item: all of it, what tools returned, and what the user wrote."""

    text: str = ""
    returned: str = ""
    typed: str = ""

    def __add__(self, other: object) -> "_CitedText":
        if not isinstance(other, _CitedText):
            return NotImplemented
        return _CitedText(*("\n".join(part for part in both if part) for both in zip(self, other, strict=True)))


def sources_of(items: Sequence[Item]) -> Mapping[str, _CitedText]:
    """The citable texts by id: items and events of the view, and events that earlier narratives of the view cite.

    A call and its result count as one: citing either covers both.
    """
    pairs = {half.id: pair for pair in pairs_of(items) for half in pair}
    sources: dict[str, _CitedText] = {}
    earlier: dict[str, _CitedText] = {}
    for item in items:
        content = item.content
        if isinstance(content, ToolCall | ToolResult):
            source = _pair_text(pairs.get(item.id, (item,)))
        else:
            text = text_of(content)
            source = _CitedText(text, typed=text if item.kind in ("user", "steering") else "")
        event = item.id.partition(".")[0]
        sources[item.id] = source
        sources[event] = sources.get(event, _CitedText()) + source
        if item.source == NARRATIVE:
            for line in source.text.split("\n"):
                for name in _cited_ids(line):
                    earlier[name] = earlier.get(name, _CitedText()) + _CitedText(line)
    return earlier | sources


def _pair_text(halves: Iterable[Item]) -> _CitedText:
    """The text of a call and its result, or of the one that is in the view."""
    call = result = ""
    for item in halves:
        if isinstance(item.content, ToolCall):
            call = "\n".join((item.content.tool, item.content.args, *argument_texts(item.content)))
        else:
            result = text_of(item.content)
    return _CitedText(f"{call}\n{result}", result)


def check_narrative(narrative: str, sources: Mapping[str, _CitedText]) -> CheckedNarrative:
    """Keep the supported lines of a narrative and put them under the frame; the text is empty if none is supported."""
    kept: list[str] = []
    removed: list[str] = []
    heading = ""
    for line in narrative.split("\n"):
        text = line.strip()
        if not text or text == _FRAME:
            continue
        if text in HEADINGS:
            heading = text
        elif is_supported(text, sources):
            kept += [heading] * bool(heading) + [line.rstrip()]
            heading = ""
        else:
            removed.append(line)
    return CheckedNarrative("\n".join((_FRAME, *kept)) if kept else "", tuple(removed))


def is_supported(line: str, sources: Mapping[str, _CitedText]) -> bool:
    """Whether a line cites only known events, contains only claims that occur in them, and says nothing about the user or passing tests."""
    names = _cited_ids(line)
    if not names or any(name not in sources for name in names) or _ABOUT_THE_USER.search(line) is not None:
        return False
    cited = sum((sources[name] for name in dict.fromkeys(names)), start=_CitedText())
    if _TESTS.search(line) is not None:
        failing, denied = _FAILING.search(line) is not None, _NOT_FAILING.search(_CITATION.sub(" ", line)) is not None
        if _PASSING.search(line) is not None or (failing and (denied or _FAILED.search(cited.text) is None)):
            return False
    if cited.typed and not _repeats(line, cited.text):
        return False
    return all(_occurs(claim, cited.text) for claim in _claims(line)) and not _copies(line, cited.returned)


def _repeats(line: str, cited: str) -> bool:
    """Whether 60 % of the words of a line occur in the cited text: a line that rests on a user message may add nothing to it."""
    words = [word for word in _WORD.findall(_CITATION.sub(" ", line).casefold()) if len(word) >= _STEM_LENGTH or _is_chinese(word)]
    text = cited.casefold()
    return sum(word[:_STEM_LENGTH] in text for word in words) >= _REPEATED_SHARE * len(words)


def _cited_ids(line: str) -> list[str]:
    """The cited ids; brackets inside quotations are no citations."""
    return [name for group in _CITATION.findall(_QUOTATION.sub(" ", line)) for name in re.findall(_ID, group)]


class _Claim(NamedTuple):
    """A part of a line that must occur in the cited text; `kind` says how it is compared."""

    kind: str
    text: str


def _claims(line: str) -> Iterator[_Claim]:
    rest = _ENUMERATION.sub("", line)
    for quotation in _QUOTATION.finditer(rest):
        yield _Claim("quotation", next(text for text in quotation.groups() if text is not None).removesuffix("()"))
    rest = _CITATION.sub(" ", _QUOTATION.sub(" ", rest))
    for quantity in _QUANTITY.finditer(rest):
        yield _Claim("number", _without_commas(quantity[1]))
    rest = _QUANTITY.sub(" ", rest)
    for pattern in (_URL, _PATH, _IDENTIFIER):
        for found in pattern.finditer(rest):
            text = found[0].rstrip(".,:;!?").removesuffix("()")
            if _INITIALS.fullmatch(text) is None and (pattern is not _PATH or is_path(text) or text.endswith("/") or "::" in text):
                yield _Claim("name", text)
        rest = pattern.sub(" ", rest)
    for found in _NUMBER.finditer(rest):
        yield _Claim("number", _without_commas(found[0]))
    for found in (*_NUMERAL.finditer(rest), *_CHINESE_NUMERAL.finditer(rest)):
        yield _Claim("numeral", found[0].lower())


def _occurs(claim: _Claim, cited: str) -> bool:
    match claim.kind:
        case "quotation":
            return _normalized(claim.text) in _normalized(cited)
        case "number":
            return claim.text in {_without_commas(number) for number in _NUMBER.findall(cited)}
        case "numeral":
            return claim.text in cited.lower() or _digits(claim.text) in {_without_commas(number) for number in _NUMBER.findall(cited)}
        case _:
            # A unit may follow its number without a blank.
            left = "A-Za-z0-9_" if claim.text[0].isdigit() else "A-Za-z_"
            return re.search(rf"(?<![{left}]){re.escape(claim.text)}(?![A-Za-z0-9_])", cited, re.IGNORECASE) is not None


def _without_commas(number: str) -> str:
    return number.replace(",", "")


def _digits(numeral: str) -> str:
    """A numeral as digits; Chinese numerals above 99 are returned unchanged."""
    if numeral in _NUMERALS:
        return _NUMERALS[numeral]
    tens, ten, ones = numeral.replace("两", "二").rpartition("十")
    if any(letter not in _CHINESE for letter in tens + ones) or len(tens) > 1 or len(ones) > 1:
        return numeral
    return str((10 * (_CHINESE.index(tens) if tens else 1) if ten else 0) + (_CHINESE.index(ones) if ones else 0))


def _is_chinese(word: str) -> bool:
    return "\u3400" <= word[0] <= "\u9fff"


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _copies(line: str, returned: str) -> bool:
    """Whether a line copies a run of words from a tool result outside of quotation marks, which would present it as our own statement."""
    if not returned:
        return False
    unquoted = _CITATION.sub(" ", _QUOTATION.sub(" ", line))
    words = _WORD.findall(_IDENTIFIER.sub(" ", _PATH.sub(" ", _QUALIFIED.sub(" ", unquoted))).casefold())
    text = f" {' '.join(_WORD.findall(returned.casefold()))} "
    weights = [1 if _is_chinese(word) else 2 for word in words]
    for start in range(len(words)):
        weight = 0
        for stop in range(start, len(words)):
            weight += weights[stop]
            if weight >= _COPIED_WEIGHT:
                if f" {' '.join(words[start : stop + 1])} " in text:
                    return True
                break
    return False
