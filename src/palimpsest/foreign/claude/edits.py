"""Reads the compactions and clearings of Claude Code as edits: a compaction is a fold, a clearing a mask."""

from collections.abc import Iterable, Iterator, Sequence

from palimpsest.core.edits import Edit, Fold, Insert, Keep, Mask, Put
from palimpsest.core.events import Body, ViewEdited
from palimpsest.core.items import Content
from palimpsest.core.view import View
from palimpsest.foreign.claude.events import EventBuilder, line_event
from palimpsest.foreign.claude.path import ConversationPath, LineGroup, SourceLine
from palimpsest.foreign.reading.transcript import ImportContext, ReadEvent
from palimpsest.wire.compaction import fold_into_block, is_compaction
from palimpsest.wire.json_reading import Json, number, table_at, tables_at, text

BY = "claude-code"
CLEARED = "[Old tool result content cleared]"


def fold_event(group: LineGroup, contents: Sequence[Content], path: ConversationPath) -> ReadEvent:
    """A compaction as a fold: the summary replaces everything except what was preserved, and what was stated since.

    A request shows statements before the text they came with, so the newest preserved text is last.
    """
    source_line = group.lines[0]
    details = table_at(group.boundary, "compactMetadata")
    kept_lines = list(preserved_lines(group.boundary, path))
    last = max((index for index, (_, kept) in enumerate(kept_lines) if kept.kind in {"reply", "result"}), default=-1)
    head, tail = kept_lines[: last + 1], kept_lines[last + 1 :]
    texts = [pair for pair in tail if pair[1].kind != "attachment"]
    attachments = [pair for pair in tail if pair[1].kind == "attachment"]
    summary = tuple(Put("summary", content) for content in contents)

    def build(context: ImportContext) -> Body:
        if group.only_adds:
            return _edit_body((Insert(summary),), details)
        early = _kept_items(context, group.kept_before)
        rest = _kept_items(context, [*head, *attachments, *_with_lines(group.kept_after), *texts])
        into: tuple[Put | Keep, ...] = tuple(dict.fromkeys([*early, *summary, *rest]))
        return _edit_body(_fold_into(into, context.view), details)

    return line_event(source_line, build)


def _fold_into(into: tuple[Put | Keep, ...], view: View) -> tuple[Edit, ...]:
    """A fold of the whole view. Items that an earlier fold removed and this one keeps are inserted first."""
    visible = frozenset(view.ids)
    removed = tuple(piece for piece in into if isinstance(piece, Keep) and piece.id not in visible)
    ids = (*view.ids, *(keep.id for keep in removed))
    restore: tuple[Edit, ...] = (Insert(removed),) if removed else ()
    return (*restore, Fold(ids[0], ids[-1], into)) if ids else (Insert(into),)


def _edit_body(edits: tuple[Edit, ...], details: Json) -> ViewEdited:
    trigger = text(details, "trigger")
    moment = "asked" if trigger == "manual" else "before_call"
    return ViewEdited(edits, BY, trigger, moment, number(details, "preTokens"), number(details, "postTokens"))


def folds_without_summary(boundary: Json) -> bool:
    """Whether a boundary folds without a summary: the preserved lines follow it directly."""
    details = table_at(boundary, "compactMetadata")
    anchors = (text(table_at(details, key), "anchorUuid") for key in ("preservedMessages", "preservedSegment"))
    return text(boundary, "uuid") in filter(None, anchors)


def mask_event(source_line: SourceLine, results: dict[str, str], path: ConversationPath, builder: EventBuilder) -> ReadEvent:
    """Clearing of old results and recalled notes, as masks. `results` has the event keys of results by call id."""
    details = table_at(source_line.json, "microcompactMetadata")
    calls = [call_id for call_id in _texts(details, "compactedToolIds") if call_id in results]
    cleared_notes = [(uuid, group) for uuid in _texts(details, "clearedAttachmentUUIDs") if (group := path.group_of(uuid)) is not None]

    def build(context: ImportContext) -> Body | None:
        edits: list[Edit] = []
        plain: list[str] = []
        for call in calls:
            ids = context.item_ids(results[call])
            saved_name = next((name for name in (f"{call}.txt", f"{call}.json") if builder.saved_output(name) is not None), "")
            if saved_name:
                edits.append(Mask(ids, f"<persisted-output>Tool result saved to: {saved_name}\n\nUse Read to view</persisted-output>"))
            else:
                plain.extend(ids)
        if plain:
            edits.append(Mask(tuple(plain), CLEARED))
        removed = tuple(keep.id for keep in _kept_items(context, cleared_notes))
        if removed:
            edits.append(Mask(removed))
        tokens_before, saved_tokens = number(details, "preTokens"), number(details, "tokensSaved")
        trigger = text(details, "trigger")
        return ViewEdited(tuple(edits), BY, trigger, "before_call", tokens_before, tokens_before - saved_tokens) if edits else None

    return ReadEvent(build, source_line.at, f"{source_line.key}~mask")


def compaction_event(group: LineGroup) -> Iterator[ReadEvent]:
    """The fold that a compaction block in a reply stands for: the provider read nothing of what came before it."""
    blocks = [block for line in group.lines for block in tables_at(table_at(line.json, "message"), "content")]
    if not any(text(block, "type") == "compaction" for block in blocks):
        return

    def build(context: ImportContext) -> Body | None:
        items, own = context.view.items, frozenset(context.item_ids(group.key))
        place = next((place for place, item in enumerate(items) if item.id in own and is_compaction(item.content)), 0)
        edit = fold_into_block(items, place)
        return None if edit is None else ViewEdited((edit,), "anthropic", "the provider compacted by itself", "after_call")

    yield ReadEvent(build, group.lines[-1].at, f"{group.key}~compaction")


def preserved_lines(boundary: Json, path: ConversationPath) -> Iterator[tuple[str, LineGroup]]:
    """The lines that a compaction preserved, in order, with their groups."""
    details = table_at(boundary, "compactMetadata")
    messages, segment = table_at(details, "preservedMessages"), table_at(details, "preservedSegment")
    uuids = _texts(messages, "allUuids") or _texts(messages, "uuids")
    if uuids:
        yield from (found for uuid in uuids if (found := path.origin(uuid)) is not None)
    else:
        yield from _with_lines(path.between(text(segment, "headUuid"), text(segment, "tailUuid")))


def _with_lines(groups: Iterable[LineGroup]) -> list[tuple[str, LineGroup]]:
    return [(uuid, group) for group in groups for uuid in ([uuid for uuid, _ in group.part_counts] or [group.key])]


def _kept_items(context: ImportContext, lines: Iterable[tuple[str, LineGroup]]) -> list[Keep]:
    return [Keep(item_id) for uuid, group in lines for item_id in _line_item_ids(context, uuid, group)]


def _line_item_ids(context: ImportContext, uuid: str, group: LineGroup) -> tuple[str, ...]:
    """Ids of the items of a line. The lines of a reply are one event, of which each line has a range."""
    if len(group.part_counts) > 1:
        return _reply_item_ids(context, uuid, group)
    if uuid != group.key:
        # The line has no content of its own; it only follows the group.
        return ()
    found = context.item_ids(uuid)
    index = 1
    while more := context.item_ids(f"{uuid}#{index}"):
        found += more
        index += 1
    return found


def _reply_item_ids(context: ImportContext, uuid: str, group: LineGroup) -> tuple[str, ...]:
    found = context.item_ids(group.key)
    # An earlier import may have read only the first lines of the reply; those are events of their own.
    start = len(found) - sum(size for _, size in group.part_counts)
    for line_id, size in group.part_counts:
        if line_id == uuid:
            return found[start : start + size] if start >= 0 else context.item_ids(uuid)
        start += size
    return ()


def _texts(table: Json, key: str) -> list[str]:
    value = table.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
