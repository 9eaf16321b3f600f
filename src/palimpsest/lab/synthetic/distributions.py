"""Distributions of synthetic sessions, fitted to recorded ones: quantiles of result sizes, turns, messages and pauses."""

from collections.abc import Sequence
from math import exp, log
from random import Random
from typing import Final

from palimpsest.audit.tools.calls import ToolClass

QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.995, 1.0)

# Unscaled tokens at the quantiles above.
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

# Calls of each tool class, in percent of all calls.
CALL_SHARES: Final[dict[ToolClass, float]] = {
    "command": 67.2,
    "read": 10.0,
    "edit": 7.8,
    "search": 4.8,
    "other": 4.4,
    "plan": 3.7,
    "write": 1.1,
    "agent": 1.0,
}
PARALLEL_CALLS: Final = 0.21
CHINESE: Final = 0.115
# Share of turns that begin with a context statement.
CONTEXT_STATED: Final = 0.7
READ_AGAIN: Final = 0.39
EDIT_KNOWN: Final = 0.75
EDIT_FAILS: Final = 0.02
COMMAND_FAILS: Final = 0.085
# Distance in calls between a call and the result whose names it uses, at the quantiles above.
NAME_DISTANCE: Final = (1, 1, 1, 1, 2, 6, 20, 70, 130)
# Distance in files between a call and the file that it touches again.
FILE_DISTANCE: Final = (1, 1, 1, 1, 2, 4, 7, 14, 30)


def sample(random: Random, quantiles: Sequence[float]) -> float:
    """Sample a number from the distribution with these quantiles, log-linear between two of them."""
    place = random.random()
    upper = next(number for number, at in enumerate(QUANTILES) if place <= at) or 1
    low, high = quantiles[upper - 1], quantiles[upper]
    part = (place - QUANTILES[upper - 1]) / (QUANTILES[upper] - QUANTILES[upper - 1])
    return low if low == high else exp(log(low) + part * (log(high) - log(low)))


def sample_int(random: Random, quantiles: Sequence[float]) -> int:
    """Sample a whole number, at least 1."""
    return max(1, round(sample(random, quantiles)))


def sample_tool_class(random: Random) -> ToolClass:
    """Sample a tool class by its share of all calls."""
    return random.choices(tuple(CALL_SHARES), tuple(CALL_SHARES.values()))[0]
