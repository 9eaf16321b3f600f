"""Checks that edits fit the view for which they are proposed."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from palimpsest.core.edits import Edit, Fold, Insert, Mask, Unmask, kept_ids
from palimpsest.core.errors import BadEdit
from palimpsest.core.pairs import pending_calls, unpaired
from palimpsest.core.projections.view import Find, ViewProjection
from palimpsest.core.view import View


def check_fit(view: View, edits: tuple[Edit, ...], find: Find, never_paired: Callable[[], AbstractSet[str]]) -> ViewProjection:
    """Return a projection of the view after the edits.

    Raises `BadEdit` if an edit refers to a missing item, hides a pending call, or separates a call from its result. `never_paired`
    returns the items that had no call or result before any edit; it is called only if needed.
    """
    trial = ViewProjection(view, find=find)
    heads = frozenset(item.id for item in view.head)
    for index, edit in enumerate(edits):
        _check_ids(trial.places, edit, find, heads)
        trial.edit(view.seq + 1, index, edit)
    if keeps_pairs(view, edits):
        return trial
    shown = {item.id for item in trial.items if not item.hidden}
    before = unpaired(view.items)
    hidden_call = next((item.id for item in pending_calls(view.items, before) if item.id not in shown), None)
    if hidden_call is not None:
        raise BadEdit(f"call {hidden_call} has no result yet and must stay visible until then")
    separated = unpaired(trial.items) - before
    if separated and (separated := separated - never_paired()):
        raise BadEdit(f"item {min(separated)} would be separated from its call or result; edit both together")
    return trial


def keeps_pairs(view: View, edits: tuple[Edit, ...]) -> bool:
    """Whether edits cannot separate a call from its result: all are masks that leave every item visible."""
    covered: set[str] = set()
    for edit in edits:
        if not isinstance(edit, Mask) or not (edit.text or edit.form == "cached"):
            return False
        covered.update(edit.ids)
    return covered.isdisjoint([item.id for item in view.items if item.mask is not None and item.hidden])


def _check_ids(places: dict[str, int], edit: Edit, find: Find, heads: AbstractSet[str]) -> None:
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            _require_visible(ids, places)
        case Fold(first=first, last=last):
            _require_visible((first, last), places)
            if places[last] < places[first]:
                raise BadEdit(f"the fold ends with {last} before it begins with {first}")
            _require_visible(kept_ids(edit), places)
            outside = next((name for name in kept_ids(edit) if not places[first] <= places[name] <= places[last]), None)
            if outside is not None:
                raise BadEdit(f"the fold keeps item {outside}, which is outside of its range")
            _require_unique(kept_ids(edit))
        case Insert(before=before):
            if before:
                _require_visible((before,), places)
            _require_unique(kept_ids(edit))
            for name in kept_ids(edit):
                if name in places or name in heads:
                    raise BadEdit(f"item {name} is visible already and cannot be restored")
                if find(name) is None:
                    raise BadEdit(f"there is no item {name} on this branch")


def _require_visible(ids: tuple[str, ...], places: dict[str, int]) -> None:
    missing = next((name for name in ids if name not in places), None)
    if missing is not None:
        raise BadEdit(f"there is no item {missing} in the view")


def _require_unique(ids: tuple[str, ...]) -> None:
    if len(set(ids)) < len(ids):
        raise BadEdit("an item is kept twice")
