"""What Claude Code did to its own context, as edits of ours: compaction is a fold, clearing a mask."""

from collections.abc import Iterable, Iterator, Sequence

from palimpsest.core.edits import Edit, Fold, Insert, Keep, Mask, Put
from palimpsest.core.events import Body, ViewEdited
from palimpsest.core.items import Content
from palimpsest.core.view import View
from palimpsest.foreign.claude.facts import Facts, kept
from palimpsest.foreign.claude.graph import Entry, Held, Trail
from palimpsest.foreign.reading.deferred import ImportContext
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, number, table_at, text

BY = "claude-code"
CLEARED = "[Old tool result content cleared]"


def folded(entry: Entry, contents: Sequence[Content], trail: Trail) -> ReadEvent:
    """A compaction: everything gives way to the summary, but for what was preserved and what was stated since.

    A request shows statements before the words they came with, so the newest preserved words stand last.
    """
    held = entry.lines[0]
    details = table_at(entry.boundary, "compactMetadata")
    stays = list(preserved(entry.boundary, trail))
    last = max((place for place, (_, each) in enumerate(stays) if each.sort in {"reply", "result"}), default=-1)
    head, tail = stays[: last + 1], stays[last + 1 :]
    words = [pair for pair in tail if pair[1].sort != "attachment"]
    stated = [pair for pair in tail if pair[1].sort == "attachment"]
    summary = tuple(Put("summary", content) for content in contents)

    def made(context: ImportContext) -> Body:
        if entry.added:
            return _edited((Insert(summary),), details)
        early = _keeps(context, entry.early)
        rest = _keeps(context, [*head, *stated, *_whole(entry.late), *words])
        into: tuple[Put | Keep, ...] = tuple(dict.fromkeys([*early, *summary, *rest]))
        return _edited(_fold_into(into, context.view), details)

    return ReadEvent(made, held.at, held.key, line=kept(held))


def _fold_into(into: tuple[Put | Keep, ...], view: View) -> tuple[Edit, ...]:
    """A fold of everything that shows; what an earlier fold took out and this one keeps is brought back first."""
    there = frozenset(view.ids)
    gone = tuple(piece for piece in into if isinstance(piece, Keep) and piece.id not in there)
    ids = (*view.ids, *(keep.id for keep in gone))
    back: tuple[Edit, ...] = (Insert(gone),) if gone else ()
    return (*back, Fold(ids[0], ids[-1], into)) if ids else (Insert(into),)


def _edited(edits: tuple[Edit, ...], details: Json) -> ViewEdited:
    trigger = text(details, "trigger")
    moment = "asked" if trigger == "manual" else "before_call"
    return ViewEdited(edits, BY, trigger, moment, number(details, "preTokens"), number(details, "postTokens"))


def keeps_itself(boundary: Json) -> bool:
    """Whether what a boundary preserves stands right behind it, so that it folds by itself: a summary can only follow."""
    details = table_at(boundary, "compactMetadata")
    anchors = (text(table_at(details, key), "anchorUuid") for key in ("preservedMessages", "preservedSegment"))
    return text(boundary, "uuid") in filter(None, anchors)


def masked(held: Held, results: dict[str, str], trail: Trail, facts: Facts) -> ReadEvent:
    """Old results were cleared, and notes that had been recalled went with them; `results` are the facts that tell the results of calls."""
    details = table_at(held.line, "microcompactMetadata")
    calls = [each for each in _texts(details, "compactedToolIds") if each in results]
    dropped = [(uuid, entry) for uuid in _texts(details, "clearedAttachmentUUIDs") if (entry := trail.entry(uuid)) is not None]

    def made(context: ImportContext) -> Body | None:
        edits: list[Edit] = []
        plain: list[str] = []
        for call in calls:
            ids = context.item_ids(results[call])
            saved = next((name for name in (f"{call}.txt", f"{call}.json") if facts.saved(name) is not None), "")
            if saved:
                edits.append(Mask(ids, f"<persisted-output>Tool result saved to: {saved}\n\nUse Read to view</persisted-output>"))
            else:
                plain.extend(ids)
        if plain:
            edits.append(Mask(tuple(plain), CLEARED))
        gone = tuple(keep.id for keep in _keeps(context, dropped))
        if gone:
            edits.append(Mask(gone))
        before, less = number(details, "preTokens"), number(details, "tokensSaved")
        trigger = text(details, "trigger")
        return ViewEdited(tuple(edits), BY, trigger, "before_call", before, before - less) if edits else None

    return ReadEvent(made, held.at, f"{held.key}~mask")


def preserved(boundary: Json, trail: Trail) -> Iterator[tuple[str, Entry]]:
    """The lines that a compaction kept as they are, in order, with their entries."""
    details = table_at(boundary, "compactMetadata")
    messages, segment = table_at(details, "preservedMessages"), table_at(details, "preservedSegment")
    uuids = _texts(messages, "allUuids") or _texts(messages, "uuids")
    if uuids:
        yield from (found for uuid in uuids if (found := trail.named(uuid)) is not None)
    else:
        yield from _whole(trail.between(text(segment, "headUuid"), text(segment, "tailUuid")))


def _whole(entries: Iterable[Entry]) -> list[tuple[str, Entry]]:
    return [(uuid, entry) for entry in entries for uuid in ([uuid for uuid, _ in entry.spans] or [entry.key])]


def _keeps(context: ImportContext, lines: Iterable[tuple[str, Entry]]) -> list[Keep]:
    return [Keep(item_id) for uuid, entry in lines for item_id in _ids(context, uuid, entry)]


def _ids(context: ImportContext, uuid: str, entry: Entry) -> tuple[str, ...]:
    """The items that a line brought; a reply of several lines is one fact, of which each line brought a stretch."""
    if len(entry.spans) > 1:
        return _stretch(context, uuid, entry)
    if uuid != entry.key:
        # The line only follows the entry: it brought nothing itself.
        return ()
    found = context.item_ids(uuid)
    place = 1
    while more := context.item_ids(f"{uuid}#{place}"):
        found += more
        place += 1
    return found


def _stretch(context: ImportContext, uuid: str, entry: Entry) -> tuple[str, ...]:
    found = context.item_ids(entry.key)
    # An earlier import may have met the file in the middle of the reply: then its first lines are facts of their own.
    start = len(found) - sum(size for _, size in entry.spans)
    for each, size in entry.spans:
        if each == uuid:
            return found[start : start + size] if start >= 0 else context.item_ids(uuid)
        start += size
    return ()


def _texts(table: Json, key: str) -> list[str]:
    value = table.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
