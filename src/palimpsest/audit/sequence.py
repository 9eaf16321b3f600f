"""What is to come before what, and what is to become what: told the other way round it is not what was said."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from palimpsest.audit.swaps import things_of

# What stands between two things of which one comes before the other: `before`, `after`, and `not ... until`.
_BETWEEN = re.compile(r"\b(?:(before(?:hand)?)|(?<!no )(?:(?:only )?after|once|as soon as)|(until|unless))\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|never|no|nothing|cannot|wait\w*|hold)\b|n['’]t\b", re.IGNORECASE)
_CHINESE_BETWEEN = re.compile(
    r"(之前|以前|(?<![之以提面])前(?![端面台天后三四两]))|(?:之后|以后|(?<![之以])后(?![端台面四三两]))|(?<![之以]后)(?:再|才能?)(?![说议谈])"
)
_END = re.compile(r"[;；。]|(?<=[a-z])\. ")
_COMMA = re.compile(r"[,，]")
_CHANGE = re.compile(
    r"\bfrom\s+(\S+(?: \w+)?)\s+(?:back )?(?:to|into)\s+(\S+)|"
    r"\b(?:rename|renaming|convert\w*|switch\w*|migrat\w+|chang\w+|turn)\s+(?:the )?(?:\w+ )?(\S+)\s+(?:to|into)\s+(\S+)|"
    r"(\S+)\s+(?:\w+ )?(?:be )?(?:renamed|converted|changed|turned)\s+(?:to|into)\s+(\S+)|"
    r"\b(?:replac\w+|swap\w*)\s+(?:the )?(\S+)\s+(?:with|by|for)\s+(\S+)|"
    r"(\S+)\s+(?:\w+ )?(?:be )?replaced\s+(?:with|by)\s+(\S+)|"
    r"从\s*([^，。；]{1,20}?)\s*(?:换|改|迁|移|升|降|调|切|变)?[高低大小]?[成为到]\s*([^，。；]{1,20})|"
    r"([^\s，。；把将]{1,24})\s?(?:换|改名?|替换|重命名)[成为]\s?([^\s，。；]{1,24})",
    re.IGNORECASE,
)

# None of these is without one of these words.
_MAY_CHANGE = re.compile(r"\bfrom\b|renam|conver|switch|migrat|chang|turn|replac|swap|从|[换改名][成为]", re.IGNORECASE)


class _Pair(NamedTuple):
    """What comes first and what comes then."""

    first: frozenset[str]
    second: frozenset[str]
    until: bool = False

    def straight(self, other: "_Pair") -> int:
        return len(self.first & other.first) + len(self.second & other.second)

    def crossed(self, other: "_Pair") -> int:
        return len(self.first & other.second) + len(self.second & other.first)


@lru_cache(maxsize=2_000)
def _times(text: str) -> tuple[_Pair, ...]:
    """Of what happens, what is to happen first."""
    return tuple(pair for pair in _timed(text) if pair.first and pair.second)


def _timed(text: str) -> Iterator[_Pair]:
    if _BETWEEN.search(text) is None and (text.isascii() or _CHINESE_BETWEEN.search(text) is None):
        return
    for sentence in _END.split(text):
        if (found := _BETWEEN.search(sentence)) is not None:
            yield from _english(sentence, found)
        if (found := _CHINESE_BETWEEN.search(sentence)) is not None:
            early, late = things_of(sentence[: found.start()]), things_of(sentence[found.end() :])
            waits = found[0][0] in "再才" or sentence[found.end() :].startswith(("再", "才"))
            yield _Pair(late, early) if found[1] else _Pair(early, late, until=waits)


def _english(sentence: str, found: "re.Match[str]") -> Iterator[_Pair]:
    before, after = sentence[: found.start()], sentence[found.end() :]
    if not before.strip(" -*•") and (comma := _COMMA.search(after)) is not None:
        before, after = after[comma.end() :], after[: comma.start()]
    if found[2] or (found[1] and _NOT.search(before) is not None):
        # What is to be kept until then is not what is to wait.
        if _NOT.search(before) is not None:
            yield _Pair(things_of(after), things_of(before), until=True)
    elif found[1]:
        yield _Pair(things_of(before), things_of(after))
    else:
        yield _Pair(things_of(after), things_of(before))


@lru_cache(maxsize=2_000)
def _changes(text: str) -> tuple[_Pair, ...]:
    """Of what becomes something else, what it was and what it will be."""
    if _MAY_CHANGE.search(text) is None:
        return ()
    found = ([part.rstrip(".,;，。；") for part in groups if part] for groups in _CHANGE.findall(text))
    return tuple(_Pair(frozenset((was.lower(),)), frozenset((becomes.lower(),))) for was, becomes in found)


def ordered_otherwise(claim: str, said: str) -> bool:
    """Whether a claim has two things the other way round than all that was said."""
    return any(_is_reversed(claimed, pairs(said)) for pairs in (_times, _changes) if (claimed := pairs(claim)))


def _is_reversed(claimed: tuple[_Pair, ...], meant: tuple[_Pair, ...]) -> bool:
    return bool(meant) and any(all(pair.crossed(other) > pair.straight(other) for other in meant) for pair in claimed)


def waits_alike(claim: str, said: str) -> bool:
    """Whether a claim wants to come first what was to be waited for: `review before merging`, `do not merge until reviewed`."""
    return any(
        other.until and pair.first & other.first and pair.second & other.second and pair.straight(other) >= pair.crossed(other)
        for pair in _times(claim)
        for other in _times(said)
    )
