"""Numbers that made-up sessions are drawn from, fitted to recorded ones: results, turns, messages and pauses by their quantiles."""

from collections.abc import Sequence
from math import exp, log
from random import Random
from typing import Final

from palimpsest.audit.tools.calls import ToolClass

PLACES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.995, 1.0)

# Tokens, unscaled, at the places above.
RESULT_TOKENS: Final[dict[ToolClass, tuple[float, ...]]] = {
    "command": (14, 39, 59, 120, 610, 2_100, 5_200, 10_000, 13_000),
    "read": (27, 180, 320, 670, 1_600, 3_800, 7_700, 9_600, 19_000),
    "search": (26, 26, 42, 170, 780, 1_800, 3_600, 5_400, 5_400),
    "agent": (49, 150, 270, 270, 1_200, 2_200, 4_500, 5_100, 5_100),
    "other": (24, 44, 66, 150, 530, 1_600, 6_600, 15_000, 15_000),
}
USER_TOKENS: Final = (5, 7, 11, 17, 41, 220, 1_500, 8_200, 20_000)
REPLIES_A_TURN: Final = (1, 2, 3, 8, 20, 38, 81, 220, 220)
AWAY_MINUTES: Final = (0.03, 0.26, 0.69, 1.7, 4.5, 29, 100, 840, 840)
CALL_SECONDS: Final = (0.5, 3.0, 4.2, 6.2, 9.9, 18, 45, 240, 1_400)

# How often each class of tool is called, in a hundred calls.
CALLS: Final[dict[ToolClass, float]] = {
    "command": 67.2,
    "read": 10.0,
    "edit": 7.8,
    "search": 4.8,
    "other": 4.4,
    "plan": 3.7,
    "write": 1.1,
    "agent": 1.0,
}
SIDE_BY_SIDE: Final = 0.21
CHINESE: Final = 0.115
# How often a turn begins with something that is stated about the world.
REMINDED: Final = 0.7
READ_AGAIN: Final = 0.39
EDIT_KNOWN: Final = 0.75
EDIT_FAILS: Final = 0.02
COMMAND_FAILS: Final = 0.085
# How many calls back the result lies whose names a call uses, at the places above.
NAMED_BACK: Final = (1, 1, 1, 1, 2, 6, 20, 70, 130)
# The same for files, counted in files.
FILE_BACK: Final = (1, 1, 1, 1, 2, 4, 7, 14, 30)


def drawn(random: Random, quantiles: Sequence[float]) -> float:
    """A number distributed as the quantiles say; between two of them the logarithm grows evenly."""
    place = random.random()
    upper = next(number for number, at in enumerate(PLACES) if place <= at) or 1
    low, high = quantiles[upper - 1], quantiles[upper]
    part = (place - PLACES[upper - 1]) / (PLACES[upper] - PLACES[upper - 1])
    return low if low == high else exp(log(low) + part * (log(high) - log(low)))


def whole(random: Random, quantiles: Sequence[float]) -> int:
    """The same as a whole number, at least 1."""
    return max(1, round(drawn(random, quantiles)))


def tool_drawn(random: Random) -> ToolClass:
    """A class of tools, as often as it is called."""
    return random.choices(tuple(CALLS), tuple(CALLS.values()))[0]
