"""The bounds of the parts that a fold keeps, and the fallback levels with ever smaller bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

FULL_WINDOW = 200_000
# Tokens; halving a smaller part gains nothing.
_LEAST_HALVED = 400
_SCALED = ("messages", "listed", "evidence", "said", "commands", "names", "narrative", "results", "calls", "tail")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a fold in a window of 200,000 tokens; all but the last three are in tokens.

    messages: user messages that stay whole.
    listed: older user messages by id, time and opening words, about 800 of them; then closing messages of the agent in the same way.
    said: texts of the agent that stay whole; the last one of each turn first.
    evidence: evidence from the log.
    commands: commands of the last turns that the evidence has no room for.
    names: names that the model used itself; by default none, because they are worth less than they cost.
    narrative: the account that a model wrote.
    results: the working set: results in use with their calls, and the current texts of edited files.
    calls: the newest other calls, with stubs in place of their results.
    tail: the newest items.
    recent: a result is in use if one of this many newest calls named it.
    needed_only: keep only the context that the model cannot work without.
    floor_only: keep only the floor, and a line of evidence if it fits.
    """

    messages: int = 20_000
    listed: int = 20_000
    said: int = 6_000
    evidence: int = 4_000
    commands: int = 1_200
    names: int = 0
    narrative: int = 1_600
    results: int = 15_000
    calls: int = 5_000
    tail: int = 15_000
    recent: int = 40
    needed_only: bool = False
    floor_only: bool = False

    @property
    def usual(self) -> int:
        """Usual tokens of all parts but head and messages: evidence takes half of its bound, and the working set three fifths."""
        return self.evidence // 2 + self.said + self.names + self.calls + self.tail + self.results * 3 // 5

    def scaled(self, window: int) -> "Bounds":
        """Return the bounds for a window; below 200,000 tokens they shrink in proportion."""
        if not window or window >= FULL_WINDOW:
            return self
        share = window / FULL_WINDOW
        scaled: dict[str, Any] = {name: int(getattr(self, name) * share) for name in _SCALED}
        return replace(self, **scaled)


USUAL_LEVEL = 2
"""The level of a fold that keeps all of its parts; level 1 is clearing, which is another policy."""


def fallback_levels(bounds: Bounds, window: int) -> Iterator[tuple[int, Bounds]]:
    """Yield the fallback levels from 2 to 5 with their bounds for a window, largest first.

    Level 2 is the usual fold, 3 halves tail, working set and calls repeatedly, 4 keeps fewer messages and less evidence, 5 keeps only the
    floor.
    """
    level = bounds.scaled(window)
    yield USUAL_LEVEL, level
    while max(level.tail, level.results) > _LEAST_HALVED:
        level = replace(level, tail=level.tail // 2, results=level.results // 2, calls=level.calls // 2)
        yield 3, level
    few_messages = Bounds(messages=5_000, evidence=1_000).scaled(window)
    without_parts = replace(level, said=0, commands=0, names=0, narrative=0, results=0, calls=0, tail=0)
    level = replace(without_parts, messages=min(level.messages, few_messages.messages), evidence=min(level.evidence, few_messages.evidence))
    yield 4, level
    yield 4, replace(level, needed_only=True)
    yield 5, replace(level, messages=0, evidence=min(level.evidence, 200), floor_only=True)
    yield 5, replace(level, messages=0, evidence=0, floor_only=True)
