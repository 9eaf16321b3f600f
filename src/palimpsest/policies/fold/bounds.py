"""How much of each part a fold keeps, for any window, and the ladder of ever smaller folds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

FULL_WINDOW = 200_000
# Halving a part further than this gains nothing.
_LEAST = 400


@dataclass(frozen=True, slots=True)
class Bounds:
    """Tokens of each part after a fold, and in how many of the newest calls a result must have been named to be kept.

    With `needed` only facts stay without which the model cannot work, and older messages are told up to four times the bound.
    `seen` is for names in results that go, beside the `names` that the model used itself. A `bare` fold keeps the floor alone, with one
    line of evidence if there is room for it.
    """

    messages: int = 20_000
    evidence: int = 4_000
    names: int = 2_400
    seen: int = 5_000
    narrative: int = 1_600
    results: int = 15_000
    tail: int = 15_000
    recent: int = 40
    needed: bool = False
    bare: bool = False

    @property
    def usual(self) -> int:
        """What all parts but head and messages weigh as a rule: evidence is half full, and results in use take three fifths."""
        return self.evidence // 2 + self.names + self.seen + self.tail + self.results * 3 // 5

    def scaled(self, window: int) -> "Bounds":
        """The same for a smaller window."""
        if not window or window >= FULL_WINDOW:
            return self
        share = window / FULL_WINDOW
        return replace(
            self,
            messages=int(self.messages * share),
            evidence=int(self.evidence * share),
            names=int(self.names * share),
            seen=int(self.seen * share),
            narrative=int(self.narrative * share),
            results=int(self.results * share),
            tail=int(self.tail * share),
        )


def ladder(bounds: Bounds, window: int) -> Iterator[tuple[int, Bounds]]:
    """The rungs from the second on, scaled, each with its number: fold, fold with less, fewer messages, only the floor."""
    rung = bounds.scaled(window)
    yield 2, rung
    while max(rung.tail, rung.results) > _LEAST:
        rung = replace(rung, tail=rung.tail // 2, results=rung.results // 2)
        yield 3, rung
    few = Bounds(messages=5_000, evidence=1_000).scaled(window)
    nothing = replace(rung, names=0, seen=0, narrative=0, results=0, tail=0)
    rung = replace(nothing, messages=min(rung.messages, few.messages), evidence=min(rung.evidence, few.evidence))
    yield 4, rung
    yield 4, replace(rung, needed=True)
    yield 5, replace(rung, messages=0, evidence=min(rung.evidence, 200), bare=True)
    yield 5, replace(rung, messages=0, evidence=0, bare=True)
