"""Which tool results of a view are dead and may be cleared, and what clearing each of them frees."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from palimpsest.audit.pins import pinned
from palimpsest.audit.stubs import covered
from palimpsest.core.edits import Mask
from palimpsest.core.situation import Situation, Use


class Dead(NamedTuple):
    """A result that nobody needs: where it stands, the mask that clears it, what that frees, and for how many calls it paid rent."""

    place: int
    mask: Mask
    gain: int
    calls: int


def is_dead(use: Use) -> bool:
    """Whether a result has died of age, disuse or supersession."""
    return use.died is not None


def dead_of(situation: Situation, places: Mapping[str, int], *, held: bool = False, which: Callable[[Use], bool] = is_dead) -> list[Dead]:
    """The dead results that show, newest first; pins stay, and what an undo brought back is only taken when `held` says so."""
    view, scale, calls = situation.view, situation.scale, situation.health.calls
    items, kept = view.items, pinned(view)
    standing = sorted(
        (place for name, use in situation.uses.items() if which(use) and (place := places.get(name)) is not None), reverse=True
    )
    found: list[Dead] = []
    for place in standing:
        item = items[place]
        if item.mask is not None or item.id in kept or (item.id in view.held and not held):
            continue
        mask, gain = covered(items, place, scale)
        if gain > 0:
            found.append(Dead(place, mask, gain, _calls_dead(situation.uses[item.id], calls)))
    return found


def _calls_dead(use: Use, calls: int) -> int:
    """Calls since it died, the coming one included."""
    return 0 if use.died is None else max(0, calls - use.died) + 1


def masks_of(dead: Iterable[Dead]) -> tuple[Mask, ...]:
    """The masks of some dead results, in the order of the view."""
    return tuple(each.mask for each in sorted(dead, key=lambda each: each.place))
