"""Which tool results of a view are dead and may be cleared, and what clearing each of them frees."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from palimpsest.audit.pins import pinned
from palimpsest.audit.stubs import covered
from palimpsest.audit.uses import dies_at
from palimpsest.core.edits import Mask
from palimpsest.core.situation import Situation, Use


class Dead(NamedTuple):
    """A result that nobody needs: where it stands, the mask that clears it, what that frees, and for how many calls it paid rent."""

    place: int
    mask: Mask
    gain: int
    calls: int


def anything(use: Use) -> bool:
    """Every result, whatever it is."""
    return True


def died(use: Use, calls: int, patience: float = 1.0) -> int | None:
    """The call at which a result died of age, disuse or supersession, for somebody with more or less patience than usual."""
    if patience == 1.0:
        return use.died
    dies = dies_at(use, patience)
    return dies if dies is not None and dies <= calls else None


def dead_of(
    situation: Situation,
    places: Mapping[str, int],
    *,
    held: bool = False,
    patience: float = 1.0,
    which: Callable[[Use], bool] = anything,
) -> list[Dead]:
    """The dead results that show, newest first; pins stay, and what an undo brought back is only taken when `held` says so."""
    view, scale, calls = situation.view, situation.scale, situation.health.calls
    items, kept = view.items, pinned(view)
    standing = sorted(
        (
            (place, death)
            for name, use in situation.uses.items()
            if (death := died(use, calls, patience)) is not None and which(use) and (place := places.get(name)) is not None
        ),
        reverse=True,
    )
    found: list[Dead] = []
    for place, death in standing:
        item = items[place]
        if item.mask is not None or item.id in kept or (item.id in view.held and not held):
            continue
        mask, gain = covered(items, place, scale)
        if gain > 0:
            # The coming call pays rent as well.
            found.append(Dead(place, mask, gain, max(0, calls - death) + 1))
    return found


def masks_of(dead: Iterable[Dead]) -> tuple[Mask, ...]:
    """The masks of some dead results, in the order of the view."""
    return tuple(each.mask for each in sorted(dead, key=lambda each: each.place))
