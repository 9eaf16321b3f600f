"""Edits that OpenCode made to its context: summaries that fold, cleared results, and reverts."""

from collections.abc import Iterator, Mapping, Sequence

from palimpsest.core.edits import Fold, Into, Keep, Mask, Put
from palimpsest.core.events import Body, ForeignNoted, ModelReplied, ViewEdited
from palimpsest.core.items import kind_of
from palimpsest.foreign.opencode.parts import model_content, model_of, usage_of, visible_line
from palimpsest.foreign.opencode.rows import MessageRow, PartRow
from palimpsest.foreign.reading.files import raw_of
from palimpsest.foreign.reading.transcript import DeferredBody, ImportContext, ReadEvent
from palimpsest.wire.json_reading import text

FORMAT = "opencode"
# The model sees this question instead of the request for a summary, and the summary as its answer.
SUMMARY_QUESTION = "What did we do so far?"


def is_summary(message: MessageRow) -> bool:
    """Whether a message is a summary that is complete and did not fail."""
    if message.data.get("summary") is not True or message.error or not text(message.data, "finish"):
        return False
    return not any(part.type == "tool" for part in message.parts)


def fold_events(messages: Sequence[MessageRow], suffixes: Mapping[str, str], summary: MessageRow, suffix: str) -> Iterator[ReadEvent]:
    """The call that wrote a summary, and the fold."""
    model, at = model_of(summary), summary.completed or summary.created
    usage = usage_of(summary, summary.parts)
    yield ReadEvent(ModelReplied((), usage=usage, model=model, purpose="compaction"), summary.created, f"{summary.id}#call{suffix}")
    request = next((each for each in messages if each.id == text(summary.data, "parentID")), None)
    line = raw_of({"info": summary.data, "parts": [visible_line(part) for part in summary.parts], "tail_start_id": _tail_start(request)})
    into = tuple(
        Put("thinking" if kind_of(content) == "thinking" else "summary", content)
        for part in summary.parts
        if (content := model_content(part, model)) is not None
    )
    request_keys = keys_of(request, suffixes) if request is not None else ()
    tail_keys = tuple(key for each in _tail(messages, request) for key in keys_of(each, suffixes))
    yield ReadEvent(_fold(into, request_keys, tail_keys, request), at, summary.id + suffix, line=line)


def keys_of(message: MessageRow, suffixes: Mapping[str, str]) -> tuple[str, ...]:
    """All keys under which a message may have added items."""
    suffix = suffixes.get(message.id, "")
    steps = (f"{message.id}#{index}" for index in range(1, len(message.parts)))
    parts = (name for part in message.parts for name in (part.id, f"{part.id}#result"))
    return tuple(f"{key}{suffix}" for key in (f"{message.id}#before", message.id, f"{message.id}#context", *steps, *parts))


def _compaction(message: MessageRow) -> PartRow | None:
    return next((part for part in message.parts if part.type == "compaction"), None)


def _tail_start(request: MessageRow | None) -> str:
    part = _compaction(request) if request is not None else None
    return text(part.data, "tail_start_id") if part is not None else ""


def _tail(messages: Sequence[MessageRow], request: MessageRow | None) -> Sequence[MessageRow]:
    """The messages that a fold keeps, without earlier summaries and their requests."""
    start = _tail_start(request)
    ids = [each.id for each in messages]
    if request is None or start not in ids:
        return ()
    return [each for each in messages[ids.index(start) : ids.index(request.id)] if _compaction(each) is None and not is_summary(each)]


def _fold(into: Into, request_keys: Sequence[str], tail_keys: Sequence[str], request: MessageRow | None) -> DeferredBody:
    part = _compaction(request) if request is not None else None
    overflow, auto = (part.data.get("overflow"), part.data.get("auto")) if part is not None else (False, True)
    why = "the request was too long" if overflow else "the room ran out" if auto else "the user asked for it"
    moment = "overflow" if overflow else "before_call" if auto else "asked"

    def build(context: ImportContext) -> Body:
        items = context.view.items
        request_items = {item for key in request_keys for item in context.item_ids(key)}
        # The items up to the request for the summary.
        ends = [index for index, item in enumerate(items) if item.id in request_items]
        folded = items[: ends[-1] + 1] if ends else items
        if not folded:
            return ForeignNoted(FORMAT, (request.id,) if request is not None else ())
        tail_items = {item for key in tail_keys for item in context.item_ids(key)}
        kept = tuple(Keep(item.id) for item in folded if item.id in tail_items)
        question = tuple(Keep(item.id) for item in folded if item.id in request_items)
        fold = Fold(folded[0].id, folded[-1].id, (*question, *into, *kept))
        return ViewEdited((fold,), FORMAT, why, moment)

    return build


def hide_reverted_parts(message: MessageRow, hidden: Sequence[PartRow], suffix: str) -> DeferredBody:
    """The edit for a revert into the middle of a message: it hides the parts after the target."""
    visible_parts = [part.id for part in message.parts if model_content(part, "") is not None]
    hidden_ids = {part.id for part in hidden}
    replies = [message.id, *(f"{message.id}#{index}" for index in range(1, len(message.parts)))]

    def build(context: ImportContext) -> ViewEdited:
        ids = [item for key in replies for item in context.item_ids(key + suffix)]
        masked = tuple(item for part, item in zip(visible_parts, ids, strict=False) if part in hidden_ids)
        return ViewEdited((Mask(masked),), FORMAT, "the user went back", "asked")

    return build
