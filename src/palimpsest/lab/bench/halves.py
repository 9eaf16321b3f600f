"""Deals sessions into two halves that are alike."""

from collections.abc import Mapping
from typing import Final

HALVES: Final = ("even", "odd")


def halves_of(tokens: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The sessions of each half: the longest first, two and two, and of each two now this half has the first choice and now the other.

    Nothing but length decides, so that no outcome can; halves by chance alone differed by a factor of ten in what there was to lose.
    """
    ranked = sorted(tokens, key=lambda session: (-tokens[session], session))
    return {half: tuple(name for at, name in enumerate(ranked) if (at + at // 2) % 2 == number) for number, half in enumerate(HALVES)}
