"""One setting for how much money may be saved at the cost of reading things again: three sets of numbers."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from palimpsest.policies.fold_bounds import Bounds

Thrift: TypeAlias = Literal["careful", "balanced", "thrifty"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """How often rent must cover a price, the least that a clear frees, how much smaller a fold must make the view, and what it keeps."""

    cover: float = 2.0
    gain: int = 2_000
    shrink: float = 2.0
    bounds: Bounds = field(default_factory=Bounds)


NUMBERS: Final[dict[str, Numbers]] = {
    "careful": Numbers(cover=6.0, gain=4_000, shrink=2.5, bounds=Bounds(results=25_000, tail=20_000, recent=80)),
    "balanced": Numbers(),
    "thrifty": Numbers(cover=1.0, gain=1_000, shrink=1.5, bounds=Bounds(results=8_000, tail=10_000, recent=20)),
}
