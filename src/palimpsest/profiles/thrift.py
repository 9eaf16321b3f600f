"""One setting for how much money may be saved at the cost of reading things again: three sets of numbers."""

from dataclasses import dataclass, field
from typing import Final

from palimpsest.policies.fold.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Numbers:
    """How often rent must cover a price, the least that a clear frees and how long it waits, and what a fold must save and keeps.

    With less `patience` results die younger; `shrink` is how many times smaller a fold must make the view.
    """

    cover: float = 2.0
    gain: int = 2_000
    patience: float = 1.0
    shrink: float = 2.0
    bounds: Bounds = field(default_factory=Bounds)


# Ages are those of the specification for `balanced`; what its fold keeps was chosen by `pal bench --choose` on one half of public sessions.
NUMBERS: Final[dict[str, Numbers]] = {
    "careful": Numbers(patience=2.0, bounds=Bounds(seen=10_000)),
    "balanced": Numbers(bounds=Bounds(results=4_000, tail=5_000, seen=10_000)),
    "thrifty": Numbers(gain=1_000, patience=0.25, shrink=1.7, bounds=Bounds(results=4_000, tail=5_000, recent=20)),
}
