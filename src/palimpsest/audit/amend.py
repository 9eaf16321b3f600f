"""Changes that the gate makes to proposed edits: pinned items stay, and lines that nothing supports go."""

from msgspec.structs import replace

from palimpsest.audit.frames import quoted_commands
from palimpsest.audit.parts import STAND_IN, is_computed
from palimpsest.audit.pins import pinned
from palimpsest.audit.provenance import clean
from palimpsest.core.edits import Edit, Fold, Insert, Into, Keep, Mask, Put, Unmask, kept
from palimpsest.core.items import Text, ToolResult, text_of
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
    """The edits without those lines of a narrative that no event supports or that only a tool's result said, and these lines."""
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
        text, gone = supported(piece.content.text, situation)
        removed += gone
        if not gone:
            pieces.append(piece)
        elif text.strip():
            pieces.append(replace(piece, content=replace(piece.content, text=text)))
    return tuple(pieces)


def _is_narrative(piece: Put | Keep) -> bool:
    return isinstance(piece, Put) and piece.kind == "summary" and not is_computed(piece)


def supported(text: str, situation: Situation) -> tuple[str, tuple[str, ...]]:
    """A narrative without the lines that claim a wish of the user which no event shows, or that repeat commands of a result; and these."""
    items = situation.view.items
    said = [text_of(item.content) for item in items if item.kind in ("user", "steering") or item.source.startswith(STAND_IN)]
    kept, removed = clean(text, [*said, *_remembered(situation)])
    results = (text_of(item.content) for item in items if isinstance(item.content, ToolResult) and item.mask is None)
    quoted = frozenset(quoted_commands(kept, results, said))
    lines = kept.split("\n")
    return "\n".join(line for line in lines if line not in quoted), (*removed, *(line for line in lines if line in quoted))


def left_out(count: int) -> str:
    """What is told of lines that went."""
    return "1 line that nothing supports was left out" if count == 1 else f"{count} lines that nothing supports were left out"


def _remembered(situation: Situation) -> list[str]:
    """What is known of messages that do not show any more: their openings, and what binds in them."""
    shown = frozenset(situation.view.ids)
    evidence = situation.evidence
    return [*(said.opening for said in evidence.said if said.id not in shown), *(quote.text for quote in evidence.quotes)]
