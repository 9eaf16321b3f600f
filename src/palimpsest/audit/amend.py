"""Changes that the gate makes to proposed edits: pinned items stay, and narrative lines without a valid citation go."""

from msgspec.structs import replace

from palimpsest.audit.citations import checked, sources_of
from palimpsest.audit.parts import is_computed
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Edit, Fold, Insert, Into, Keep, Mask, Put, Unmask, kept
from palimpsest.core.items import Text
from palimpsest.core.policy import Edits
from palimpsest.core.situation import Situation
from palimpsest.core.view import View


def keep_pins(edits: Edits, view: View) -> Edits:
    """The edits with everything pinned left where it shows, or moved along; whole calls with their results."""
    protected = pinned(view)
    if not protected:
        return edits
    places = {item.id: place for place, item in enumerate(view.items)}
    safe = (_pinned_edit(edit, view, places, protected) for edit in edits)
    return tuple(edit for edit in safe if edit is not None)


def _pinned_edit(edit: Edit, view: View, places: dict[str, int], protected: frozenset[str]) -> Edit | None:
    match edit:
        case Mask(ids=ids):
            rest = tuple(name for name in ids if name not in protected)
            return replace(edit, ids=rest) if rest else None
        case Fold(first=first, last=last, into=into):
            if first not in places or last not in places:
                return edit
            run = view.items[places[first] : places[last] + 1]
            there = frozenset(kept(edit))
            lost = tuple(Keep(item.id) for item in run if item.id in protected and item.id not in there)
            # Behind the first piece, which as a rule is the user's, so that a view does not begin with a call.
            return replace(edit, into=(*into[:1], *lost, *into[1:])) if lost else edit
        case Unmask() | Insert():
            return edit


def without_lines(edits: Edits, situation: Situation) -> tuple[Edits, tuple[str, ...]]:
    """The edits without the lines of narratives that no cited event supports, and these lines."""
    removed: list[str] = []
    cleaned: list[Edit] = []
    for edit in edits:
        if isinstance(edit, Fold):
            into = _clean(edit.into, situation, removed)
            cleaned.append(edit if into == edit.into else replace(edit, into=into))
        elif isinstance(edit, Insert):
            contents = _clean(edit.contents, situation, removed)
            if contents:
                cleaned.append(edit if contents == edit.contents else replace(edit, contents=contents))
        else:
            cleaned.append(edit)
    return tuple(cleaned), tuple(removed)


def _clean(into: Into, situation: Situation, removed: list[str]) -> Into:
    if not any(_is_narrative(piece) for piece in into):
        return into
    pieces: list[Put | Keep] = []
    for piece in into:
        if isinstance(piece, Keep) or not isinstance(piece.content, Text) or not _is_narrative(piece):
            pieces.append(piece)
            continue
        text, gone = checked(piece.content.text, sources_of(situation.view.items))
        removed += gone
        if text == piece.content.text:
            pieces.append(piece)
        elif text:
            pieces.append(replace(piece, content=replace(piece.content, text=text)))
    return tuple(pieces)


def _is_narrative(piece: Put | Keep) -> bool:
    return isinstance(piece, Put) and piece.kind == "summary" and not is_computed(piece)


def left_out(count: int) -> str:
    """How many lines were left out, in words."""
    return "1 line without a valid citation was left out" if count == 1 else f"{count} lines without a valid citation were left out"
