"""Which tool results of a view are dead and may be cleared, and what clearing each of them frees."""

from collections.abc import Callable, Sequence

from palimpsest.audit.pins import pinned
from palimpsest.audit.stubs import covered
from palimpsest.audit.uses import ages_for, dies_at
from palimpsest.core.edits import Mask
from palimpsest.core.items import Value
from palimpsest.core.situation import Situation, Use


class Dead(Value, frozen=True):
    """A result that nobody needs: where it stands, what clearing it frees, for how many calls it paid rent, and the mask that clears it.

    As long as no mask is written for it the gain is all that it weighs, and really less than that.
    """

    place: int
    gain: int
    calls: int
    mask: Mask | None = None


def dead_of(situation: Situation, *, held: bool = False, patience: float = 1.0, which: Callable[[Use], bool] | None = None) -> list[Dead]:
    """The dead results that show, newest first, each with its mask if that is written already.

    Pins stay, and what an undo brought back is only taken when `held` says so.
    """
    view, counter, calls = situation.view, situation.counter, situation.health.calls
    items, uses, sizes, written, factor = view.items, situation.uses, counter.sizes(view), counter.coverings, counter.factor
    ages = ages_for(patience)
    stay = pinned(view) if held else pinned(view) | view.held
    found: list[Dead] = []
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        use = uses.get(item.id)
        if use is None or item.mask is not None:
            continue
        death = use.died if patience == 1.0 else dies_at(use, ages)
        if death is None or (death > calls and patience != 1.0) or item.id in stay or (which is not None and not which(use)):
            continue
        # The coming call pays rent as well.
        paid = calls - death + 1 if calls > death else 1
        known = written.get(item.id)
        if known is None or known.item is not item or known.factor != factor:
            found.append(Dead(place, counter.scaled(sizes[place]), paid))
        elif known.gain > 0:
            found.append(Dead(place, known.gain, paid, known.mask))
    return found


def with_masks(dead: list[Dead], situation: Situation) -> list[Dead]:
    """The same with the masks of all of them and what each then frees; those that free nothing are left out."""
    if all(each.mask is not None for each in dead):
        return dead
    items, counter = situation.view.items, situation.counter
    found: list[Dead] = []
    for each in dead:
        mask, gain = covered(items, each.place, counter)
        if gain > 0:
            found.append(Dead(each.place, gain, each.calls, mask))
    return found


def masks_of(dead: Sequence[Dead]) -> tuple[Mask, ...]:
    """The masks of dead results that have one, in the order of the view."""
    return tuple([each.mask for each in reversed(dead) if each.mask is not None])
