"""Whether a number is the most or the least of what is wanted, and whether something is all of it."""

import re

from palimpsest.audit.polarity import is_against

_DOWN = (
    r"\b(?:below|under|less than|fewer than|lower than|within|at most|no more than|up to|max(?:imum|\.)?|capped at|caps? (?:it |"
    r"this )?at)\b(?=\D{0,16}\d)|(?:低于|少于|小于|不足|至多|最多|上限|控制在)(?=\D{0,6}\d)|(?<=\d)\D{0,4}?(?:以内|之内|以下|封顶)"
)
_UP = (
    r"\b(?:above|over|more than|at least|no less than|min(?:imum|\.)?|exceed\w*)\b(?=\D{0,16}\d)|(?:超过|超出|高于|多于|大于|至少|最少|"
    r"起码|下限)(?=\D{0,6}\d)|(?<=\d)\D{0,4}?以上"
)
_NOT = (
    r"(?:\b(?:not|never|don['’]t|shouldn['’]t|mustn['’]t|can['’]t|cannot|nothing|won['’]t|refus\w+)\b(?: \w+){0,5}? |"
    r"[不别][^，。；\d]{0,8}?)"
)
_BOUND = re.compile(f"({_NOT})?(?:({_DOWN})|({_UP}))", re.IGNORECASE)

_ONLY = re.compile(
    r"\b(?:only|solely|exclusively|merely|just|nothing (?:else|but)|no (?:other|one else)|nobody else|limit\w*|restrict\w*|confin\w*|"
    r"alone|purely|sole)\b|[只仅](?!是)|限于|唯一|单独|专门",
    re.IGNORECASE,
)
# `Only after`, `only if` and `only asked` do not say that it is all.
_NOT_ALL = re.compile(
    r"\b(?:only|just) (?:after|once|if|when|asked|wants? to know|wanted to know|wonder\w*|inquir\w*|a question)\b|"
    r"\bnot (?:only|just|merely|solely)\b|[只仅](?:想|问|是|为|有[^，。；]{1,12}才)|不[只仅]",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(?:outside|beyond|elsewhere|everywhere|anywhere|any(?:one|body|thing)|every(?:one|body|thing)|besides|in addition|as well|also|too|"
    r"other|others|apart from)\b|以外|之外|其[他它余]|别的|所有|任何|全都|除了|除开|也(?=可|能|要|给|发|改|行|允)",
    re.IGNORECASE,
)


def bounds_of(text: str) -> frozenset[bool]:
    """Of each bound in a text whether it is the most: `not below 5` is the least, and so is `at least 5`."""
    return frozenset((found[2] is not None) != (found[1] is not None) for found in _BOUND.finditer(text))


def bounds_otherwise(claim: str, said: str) -> bool:
    """Whether a claim has the most where what was said has the least, or the other way round."""
    claimed, bounds = bounds_of(claim), bounds_of(said)
    return len(claimed) == 1 and len(bounds) == 1 and claimed != bounds


def says_only(text: str) -> bool:
    """Whether a text says of something that it is all."""
    return _ONLY.search(text) is not None and _ONLY.search(_NOT_ALL.sub(" ", text)) is not None


def limits_otherwise(claim: str, said: str) -> bool:
    """Whether a claim has something as all that is wanted where more was said, or more where that was all."""
    if says_only(claim):
        return not says_only(said) and not is_against(said)
    return _MORE.search(claim) is not None and not is_against(claim) and says_only(said) and _MORE.search(said) is None
