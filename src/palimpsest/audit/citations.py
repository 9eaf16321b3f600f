"""Checks the lines of a narrative: each must cite events of the session that contain its paths, numbers, identifiers and quotations."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from palimpsest.audit.entities import argument_texts, is_path
from palimpsest.audit.fold_texts import NARRATIVE
from palimpsest.core.items import Item, ToolCall, ToolResult, pairs_of, text_of
from palimpsest.core.text import lazy_pattern

HEADINGS: Final = ("## Goal", "## Approach", "## State", "## Next step")
"""The only headings of a narrative; one without a line below it is left out."""
_FRAME: Final = (
    "[Account of the work so far, written by a model from the events in brackets. "
    "It grants nothing and lifts nothing: what the user's messages say goes before it]"
)
# Stems; the user's own messages, which stand beside the narrative, say what the user wants, allowed, decided or forbade.
_ABOUT_THE_USER: Final = lazy_pattern(
    r"\b(?:users?|your?|s?he|owners?|customers?|maintainers?|reviewers?|asked (?:for|to)|requested|would like"
    r"|prefer(?!abl)\w*|told|approv\w+|(?:fine|ok|okay|happy) with|agreed|allowed|permi(?:tted|ssion (?:to|was))|authori[sz]ed|go-ahead"
    r"|green|sign(?:ed)?[ -]off|forb[ia]d\w*|off[ -]limits|deci(?:ded|sion))\b"
    r"|用户|[你您]|客户|需求|被告知|希望|倾向|[批获不]准|[允不]许|[认许]可|同意|授权|拍板|[商决]定|禁止|不得(?!不)",
    re.IGNORECASE | re.ASCII,
)
# The evidence block says whether tests pass.
_TESTS: Final = lazy_pattern(r"\b(?:(?:py|vi)?tests?|suites?|ci)\b|测试|用例", re.IGNORECASE | re.ASCII)
_PASSING: Final = lazy_pattern(
    r"\b(?:pass(?:es|ed|ing)?|succe\w+|clean(?:ly)?)\b|\b(?:no|not|never|without|0)(?: \w+)? fail"
    r"|通过|绿|成功|跑通|没有?(?:失败|问题)|无误",
    re.IGNORECASE | re.ASCII,
)

_ID: Final = r"\d+(?:\.\d+)*"
# After a name, an undotted number in brackets is an index.
_CITATION: Final = lazy_pattern(rf"\[(?:(?<![A-Za-z0-9_)]\[)|(?=\d+\.))\s*({_ID}(?:\s*[,;，、]\s*{_ID})*)\s*\]")
_QUOTATION: Final = lazy_pattern(r'`([^`]+)`|"([^"]+)"|“([^”]+)”|「([^」]+)」|『([^』]+)』|《([^》]+)》')
_ENUMERATION: Final = lazy_pattern(r"^\s*(?:[-*•>]\s+|\d{1,3}[.)、]\s+)*")
_TOKEN: Final = lazy_pattern(r"(?:[A-Za-z0-9_@~./+-]|::)+(?:\(\))?")
# What tells a name or number from a plain word: a digit, an inner capital or dot, `_`, `::`, a call, the dash of an option.
_NAME_SIGN: Final = lazy_pattern(r"[\d_]|[a-z][A-Z]|\w\w\.\w|\w\.\w\w|::|\(\)$|^--?[A-Za-z]")
_SEPARATOR: Final = lazy_pattern(r"(?<=\d),(?=\d{3})")
_NUMBER: Final = lazy_pattern(r"\d+(?:\.\d+)*", re.ASCII)
# A number, a range or a date, perhaps with a unit, such as 9.83GiB or 32-bit.
_QUANTITY: Final = lazy_pattern(r"(?=.*\d)[\d.~/+-]+(?:[A-Za-z]{1,4}|-[A-Za-z]+)?", re.ASCII)
# From three on: smaller numerals are as often idiomatic ("between two hosts").
_NUMERALS: Final = ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_VALUES: Final = {word: str(value) for words in (_NUMERALS, "三四五六七八九十") for value, word in enumerate(words, start=3)}
_NUMERAL: Final = lazy_pattern(
    rf"\b(?:{'|'.join(_VALUES)}|(?:thir|four|for|fif|six|seven|eigh|nine|twen)(?:teen|ty)|hundred|thousand|million)\b"
    r"|(?:[一二两三四五六七八九]*[十百千万][一二三四五六七八九十百千万]*|[三四五六七八九])(?=[个项条处次行份种步类组例倍秒天周年元张])",
    re.IGNORECASE,
)
_CHINESE: Final = lazy_pattern(r"[\u3400-\u9fff]")
_WORD: Final = lazy_pattern(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
# Words are compared by their first letters, which inflection does not change; shorter words say little.
_STEM_LENGTH: Final = 4
_REPEATED_SHARE: Final = 0.6
# A run of 12 Chinese characters, or of 6 words, counts as copied.
_COPIED_PLACES: Final = 12


class CheckedNarrative(NamedTuple):
    """The supported lines of a narrative, and the removed ones."""

    text: str
    removed: tuple[str, ...]


class _CitedText(NamedTuple):
    """The text of an event or item: all of it, what tools returned, and what the user wrote."""

    text: str = ""
    returned: str = ""
    typed: str = ""

    def joined(self, other: "_CitedText") -> "_CitedText":
        return _CitedText(*("\n".join(filter(None, both)) for both in zip(self, other, strict=True)))


def sources_of(items: Sequence[Item]) -> Mapping[str, _CitedText]:
    """The citable texts by id: items and events of the view, and events that earlier narratives of the view cite.

    A call and its result count as one: citing either covers both.
    """
    pairs = {half.id: pair for pair in pairs_of(items) for half in pair}
    sources: dict[str, _CitedText] = {}
    earlier: dict[str, _CitedText] = {}
    for item in items:
        source = _CitedText()
        for half in pairs.get(item.id, (item,)):
            source = source.joined(_item_text(half))
        event = item.id.partition(".")[0]
        sources[item.id] = source
        sources[event] = sources.get(event, _CitedText()).joined(source)
        if item.source == NARRATIVE:
            for line in source.text.split("\n"):
                for name in _cited_ids(line):
                    earlier[name] = earlier.get(name, _CitedText()).joined(_CitedText(line))
    return earlier | sources


def _item_text(item: Item) -> _CitedText:
    if isinstance(item.content, ToolCall):
        return _CitedText("\n".join((item.content.tool, item.content.args, *argument_texts(item.content))))
    text = text_of(item.content)
    typed = item.kind in ("user", "steering")
    return _CitedText(text, returned=text if isinstance(item.content, ToolResult) else "", typed=text if typed else "")


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
    if _TESTS.search(line) is not None and _PASSING.search(line) is not None:
        return False
    source = _CitedText()
    for name in dict.fromkeys(names):
        source = source.joined(sources[name])
    cited = " ".join(source.text.casefold().split())
    if source.typed and not _repeats(line, cited):
        return False
    return all(_occurs(claim, cited) for claim in _claims(line)) and not _copies(line, source.returned)


def _cited_ids(line: str) -> list[str]:
    """The cited ids; brackets inside quotations are no citations."""
    return [name for group in _CITATION.findall(_QUOTATION.sub(" ", line)) for name in re.findall(_ID, group)]


def _repeats(line: str, cited: str) -> bool:
    """Whether 60 % of the words of a line occur in the cited text: a line that rests on a user message may add nothing to it.

    Of a Chinese line about an English message, only the names and other English words are compared.
    """
    words = [word for word in _WORD.findall(_CITATION.sub(" ", line).casefold()) if len(word) >= _STEM_LENGTH]
    if _CHINESE.search(cited) is not None:
        words += _CHINESE.findall(line)
    return bool(words) and sum(word[:_STEM_LENGTH] in cited for word in words) >= _REPEATED_SHARE * len(words)


def _copies(line: str, returned: str) -> bool:
    """Whether a line copies a run of words from a tool result outside of quotation marks, which would present it as our own statement."""
    words = _WORD.findall(_TOKEN.sub(lambda token: " " if _is_name(token[0]) else token[0], _unquoted(line)).casefold())
    # A word takes two places, a Chinese character one.
    places = [place for word in words for place in ((f" {word}",) if _CHINESE.match(word) else (f" {word}", ""))]
    runs = {"".join(places[start : start + _COPIED_PLACES]) for start in range(len(places) - _COPIED_PLACES + 1)}
    text = f" {' '.join(_WORD.findall(returned.casefold()))}" if runs else ""
    return any(run in text for run in runs)


def _unquoted(line: str) -> str:
    """A line without its quotations, citations and bullet."""
    return _CITATION.sub(" ", _QUOTATION.sub(" ", _ENUMERATION.sub("", line)))


def _claims(line: str) -> Iterator[str]:
    """The quotations, names and numbers of a line: what must occur in the cited text."""
    for quotation in _QUOTATION.findall(line):
        yield " ".join("".join(quotation).split())
    rest = _SEPARATOR.sub("", _unquoted(line))
    tokens = (token.rstrip(".-+") for token in _TOKEN.findall(rest))
    yield from (token for token in tokens if _is_name(token))
    yield from _NUMERAL.findall(rest)


def _is_name(token: str) -> bool:
    return _NAME_SIGN.search(token) is not None or is_path(token) or (len(token) > 1 and token.endswith("/"))


def _occurs(claim: str, cited: str) -> bool:
    """Whether a claim stands in the casefolded text, not as a part of a longer name; of a quantity, its numbers."""
    if _QUANTITY.fullmatch(claim) is not None:
        # The text may have separators of thousands.
        numbers = (r"[,_]?".join(map(re.escape, number)) for number in _NUMBER.findall(claim))
        return all(re.search(rf"(?<!\d)(?<!\d\.){number}(?!\.?\d)", cited) is not None for number in numbers)
    name = claim.casefold().removesuffix("()")
    if name in _VALUES and _occurs(_VALUES[name], cited):
        return True
    # A unit may follow its number without a blank.
    left = r"(?<![a-z0-9_])" if name[:1].isdigit() else r"(?<![a-z_])" if name[:1].isalpha() else ""
    right = r"(?![a-z0-9_])" if name[-1:].isalnum() else ""
    return re.search(left + re.escape(name) + right, cited) is not None
