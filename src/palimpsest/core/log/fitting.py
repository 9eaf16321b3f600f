"""Whether edits fit the view they are proposed for."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from palimpsest.core.edits import Edit, Fold, Insert, Mask, Unmask, kept
from palimpsest.core.errors import BadEdit
from palimpsest.core.pairs import pending_calls, unpaired
from palimpsest.core.projections.view import Find, ViewProjection
from palimpsest.core.view import View


def check_fit(view: View, edits: tuple[Edit, ...], find: Find, alone: Callable[[], AbstractSet[str]]) -> ViewProjection:
    """The view that edits would leave, in the making; `BadEdit` if one names what is not there, or parts a call from its result.

    `alone` are the items that never had another half; it is asked only when it matters.
    """
    trial = ViewProjection(view, find=find)
    heads = frozenset(item.id for item in view.head)
    for index, edit in enumerate(edits):
        _check_names(trial.places, edit, find, heads)
        trial.edit(view.seq + 1, index, edit)
    if keeps_pairs(view, edits):
        return trial
    shown = {item.id for item in trial.items if not item.hidden}
    before = unpaired(view.items)
    lost = next((item.id for item in pending_calls(view.items, before) if item.id not in shown), None)
    if lost is not None:
        raise BadEdit(f"call {lost} still waits for its result and must show until it comes")
    torn = sorted(unpaired(trial.items) - before)
    if torn and (torn := sorted(set(torn) - alone())):
        raise BadEdit(f"item {torn[0]} would be parted from its other half; edit call and result together")
    return trial


def keeps_pairs(view: View, edits: tuple[Edit, ...]) -> bool:
    """Whether edits cannot part a call from its result: they cover what shows, and it still shows by another text."""
    covered: set[str] = set()
    for edit in edits:
        if not isinstance(edit, Mask) or not (edit.text or edit.form == "cached"):
            return False
        covered.update(edit.ids)
    return covered.isdisjoint([item.id for item in view.items if item.mask is not None and item.hidden])


def _check_names(places: dict[str, int], edit: Edit, find: Find, heads: AbstractSet[str]) -> None:
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            _demand(ids, places)
        case Fold(first=first, last=last):
            _demand((first, last), places)
            if places[last] < places[first]:
                raise BadEdit(f"the fold ends with {last} before it begins with {first}")
            _demand(kept(edit), places)
            outside = next((name for name in kept(edit) if not places[first] <= places[name] <= places[last]), None)
            if outside is not None:
                raise BadEdit(f"item {outside} is kept by a fold that does not reach it")
            _demand_once(kept(edit))
        case Insert(before=before):
            if before:
                _demand((before,), places)
            _demand_once(kept(edit))
            for name in kept(edit):
                if name in places or name in heads:
                    raise BadEdit(f"item {name} shows already and cannot be brought back")
                if find(name) is None:
                    raise BadEdit(f"there is no item {name} on this branch")


def _demand(ids: tuple[str, ...], places: dict[str, int]) -> None:
    missing = next((name for name in ids if name not in places), None)
    if missing is not None:
        raise BadEdit(f"there is no item {missing} in the view")


def _demand_once(ids: tuple[str, ...]) -> None:
    if len(set(ids)) < len(ids):
        raise BadEdit("an item is kept twice")
