"""Whether a number is the most or the least of what is wanted."""

import re

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


def bounds_of(text: str) -> frozenset[bool]:
    """Of each bound in a text whether it is the most: `not below 5` is the least, and so is `at least 5`."""
    return frozenset((found[2] is not None) != (found[1] is not None) for found in _BOUND.finditer(text))


def bounds_otherwise(claim: str, said: str) -> bool:
    """Whether a claim has the most where what was said has the least, or the other way round."""
    claimed, bounds = bounds_of(claim), bounds_of(said)
    return len(claimed) == 1 and len(bounds) == 1 and claimed != bounds
