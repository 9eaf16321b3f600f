"""Two halves of the recorded sessions: what is chosen on one is judged on the other."""

from collections.abc import Mapping
from typing import Final

HALVES: Final = ("even", "odd")


def split_halves(tokens: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Split sessions into two halves by length: ranked by tokens, the pairs are dealt alternately to either half.

    Only length decides, so that no outcome can. Random halves differed tenfold in re-reads.
    """
    ranked = sorted(tokens, key=lambda session: (-tokens[session], session))
    return {half: tuple(name for at, name in enumerate(ranked) if (at + at // 2) % 2 == number) for number, half in enumerate(HALVES)}
