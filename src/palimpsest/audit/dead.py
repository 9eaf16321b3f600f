"""Which tool results of a view are dead and may be cleared, and what clearing each of them frees."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from palimpsest.audit.pins import pinned
from palimpsest.audit.stubs import covered
from palimpsest.audit.uses import ages_for, dies_at
from palimpsest.core.edits import Mask
from palimpsest.core.items import Value
from palimpsest.core.situation import Situation, Use

_place = attrgetter("place")


class Dead(Value, frozen=True):
    """A dead result: its place in the view, the tokens that clearing it frees, the calls for which it paid rent, and its mask.

    Without a mask the gain is the size of the whole result, from which that of the mask is still to be taken.
    """

    place: int
    gain: int
    calls: int
    mask: Mask | None = None


def dead_of(situation: Situation, *, held: bool = False, patience: float = 1.0, which: Callable[[Use], bool] | None = None) -> list[Dead]:
    """The dead results that show, newest first, without masks: writing those costs more than finding out that none is worth it.

    Pins stay, and what an undo brought back is only taken when `held` says so.
    """
    view, tokens, calls = situation.view, situation.tokens, situation.health.calls
    items, sizes, places, factor = view.items, tokens.in_order(view), tokens.places_in(view), tokens.factor
    usual, ages = patience == 1.0, ages_for(patience)
    stay = pinned(view) if held else pinned(view) | view.held
    found: list[Dead] = []
    for name, use in situation.uses.items():
        death = use.died if usual else dies_at(use, ages)
        if death is None or (death > calls and not usual) or name in stay or (which is not None and not which(use)):
            continue
        place = places.get(name)
        if place is not None and items[place].mask is None:
            # The size is scaled here, for a call of `scaled` would take a tenth of the time; the coming call pays rent as well.
            found.append(Dead(place, round(sizes[place] * factor), calls - death + 1 if calls > death else 1))
    found.sort(key=_place, reverse=True)
    return found


def with_masks(dead: list[Dead], situation: Situation) -> list[Dead]:
    """The same with the masks of all of them and what each then frees; those that free nothing are left out."""
    masks = covered(situation.view, [each.place for each in dead], situation.tokens)
    return [Dead(each.place, gain, each.calls, mask) for each, (mask, gain) in zip(dead, masks, strict=True) if gain > 0]


def masks_of(dead: Sequence[Dead]) -> tuple[Mask, ...]:
    """The masks of dead results that have one, in the order of the view."""
    return tuple([each.mask for each in reversed(dead) if each.mask is not None])
