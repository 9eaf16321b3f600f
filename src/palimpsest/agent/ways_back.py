"""Names, in what hides something from the model, the id by which the tool `recall` gives it back."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.agent.archive import RECALL, SHORT_ADDRESS
from palimpsest.audit.fold_texts import EVIDENCE, NARRATIVE
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Edit, Fold, Item, Keep, Mask, Put, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.plans import Edits, Situation
from palimpsest.core.view import View
from palimpsest.peers.clearing import PERSISTED
from palimpsest.policies.limits import text_of_parts, with_text
from palimpsest.wire.request import Tool


class _Declared(Struct, frozen=True):
    properties: dict[str, Raw] = {}


_decode_schema: Final = msgspec.json.Decoder(_Declared).decode
_NAMES_ID: Final = re.compile(r"\bid \d+\.\d+")
_LINE: Final = "[What this hides is kept word for word: {} id {}..{}]"
_EARLIER: Final = re.compile(r"\[What this hides is kept word for word: \w+ id (\d{1,11})\.\.\d{1,11}\]")


def offers_recall(tools: Iterable[Tool]) -> bool:
    """Whether these tools have our `recall`, and not another program's tool of that name."""
    return any(tool.name == RECALL and _takes_id(tool.schema) for tool in tools)


def name_hidden(edits: Edits, situation: Situation) -> Edits:
    """Return edits whose masks and folds name what `recall` takes, where they do not name an id or a file already."""
    items = {item.id: item for item in situation.view.items}
    return tuple(named for edit in edits for named in _named(edit, items, situation))


def name_whole(returned: ToolReturned) -> ToolReturned:
    """Return a result with the short id of its kept whole, if it was shortened."""
    address = returned.result.blob
    if not address:
        return returned
    short = address[:SHORT_ADDRESS]
    text = text_of_parts(returned.result)
    return with_text(returned, f"{text}\n[the whole is kept: {RECALL} id {short}, with `lines` for a part]", address)


def _takes_id(schema: Raw) -> bool:
    try:
        return {"id", "words", "offset"} <= _decode_schema(schema).properties.keys()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _named(edit: Edit, items: Mapping[str, Item], situation: Situation) -> Iterator[Edit]:
    match edit:
        case Mask(text=text, form="shown") if text and not _names_way_back(text, situation.transcript):
            yield from _named_masks(edit, items)
        case Fold():
            yield edit if _names_transcript(edit, situation.transcript) else _named_fold(edit, situation.view)
        case _:
            yield edit


def _names_way_back(text: str, transcript: str) -> bool:
    # A session without a file has no saved results that a tool could read.
    return (PERSISTED in text and bool(transcript)) or _NAMES_ID.search(text) is not None


def _names_transcript(fold: Fold, transcript: str) -> bool:
    return bool(transcript) and any(isinstance(piece, Put) and transcript in text_of(piece.content) for piece in fold.into)


def _named_masks(mask: Mask, items: Mapping[str, Item]) -> Iterator[Mask]:
    """Yield a mask for each result or call, with its id, and one for the other items, whose text a mask may only frame."""
    hidden = [name for name in mask.ids if name in items and isinstance(items[name].content, ToolResult | ToolCall)]
    others = tuple(name for name in mask.ids if name not in hidden)
    if others:
        yield replace(mask, ids=others)
    for name in hidden:
        yield Mask((name,), f"{mask.text} [id {name}]")


def _named_fold(fold: Fold, view: View) -> Fold:
    """Add the events that a fold hides to its summary, or to a line of its own if it has none."""
    ids = [item.id for item in view.items]
    if fold.first not in ids or fold.last not in ids:
        return fold
    kept = {piece.id for piece in fold.into if not isinstance(piece, Put)}
    hidden = [item for item in view.items[ids.index(fold.first) : ids.index(fold.last) + 1] if item.id not in kept]
    if not hidden:
        return fold
    line = _LINE.format(RECALL, _first_event(hidden), max(seq_of(item.id) for item in hidden))
    into = list(fold.into)
    # The evidence is about all of what is hidden, other parts of our own folds about one message each.
    places = [place for place, piece in enumerate(into) if _is_about_hidden(piece)]
    if not places:
        return replace(fold, into=(*into, Put("reminder", Text(line))))
    place = next((place for place in places if getattr(into[place], "source", "") == EVIDENCE), places[0])
    piece = into[place]
    if isinstance(piece, Put) and isinstance(piece.content, Text):
        into[place] = replace(piece, content=replace(piece.content, text=f"{piece.content.text}\n\n{line}"))
    return replace(fold, into=tuple(into))


def _first_event(hidden: Sequence[Item]) -> int:
    """The first event that hidden items stand for: of items that an earlier fold made, the first that it hid, as far as they say it."""
    made = [item for item in hidden if item.id.count(".") == 2]
    earlier = [int(first) for item in made for first in _EARLIER.findall(text_of(item.content))]
    if not earlier and any(item.kind == "summary" for item in made):
        # Folds of other programs, and those that name a transcript, do not say it.
        return 1
    return min([*map(seq_of, (item.id for item in hidden)), *earlier])


def _is_about_hidden(piece: Keep | Put) -> bool:
    """Whether a piece is a summary in which a line may be added; each line of a narrative must cite."""
    return isinstance(piece, Put) and piece.kind == "summary" and piece.source != NARRATIVE and isinstance(piece.content, Text)
