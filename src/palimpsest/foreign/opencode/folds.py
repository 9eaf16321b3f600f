"""What OpenCode did to its context: summaries that fold, results that were cleared, and the point it went back to."""

from collections.abc import Iterator, Mapping, Sequence

from palimpsest.core.edits import Fold, Into, Keep, Mask, Put
from palimpsest.core.events import Body, ForeignNoted, ModelReplied, ViewEdited
from palimpsest.core.items import Item, kind_of
from palimpsest.foreign.opencode.parts import CLEARED, line_of, model_of, raw, said_by_model, usage_of
from palimpsest.foreign.opencode.rows import Message, Part
from palimpsest.foreign.reading.deferred import DeferredBody, ImportContext
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import text

FORMAT = "opencode"
# In place of the request for a summary the model sees this question, and the summary as its answer.
MARKER = "What did we do so far?"


def folds(message: Message) -> bool:
    """Whether a message is a summary that was finished and did not fail."""
    if message.data.get("summary") is not True or message.error or not text(message.data, "finish"):
        return False
    return not any(part.type == "tool" for part in message.parts)


def fold_facts(messages: Sequence[Message], suffixes: Mapping[str, str], summary: Message, suffix: str) -> Iterator[ReadEvent]:
    """The call that made a summary, and the fold."""
    model, at = model_of(summary), summary.completed or summary.created
    usage = usage_of(summary, summary.parts)
    yield ReadEvent(ModelReplied((), usage=usage, model=model, purpose="compaction"), summary.created, f"{summary.id}#call{suffix}")
    request = next((each for each in messages if each.id == text(summary.data, "parentID")), None)
    line = raw({"info": summary.data, "parts": [_line(part) for part in summary.parts], "tail_start_id": _tail_start(request)})
    into = tuple(
        Put("thinking" if kind_of(content) == "thinking" else "summary", content)
        for part in summary.parts
        if (content := said_by_model(part, model)) is not None
    )
    marker = keys_of(request, suffixes) if request is not None else ()
    tail = tuple(key for each in _tail(messages, request) for key in keys_of(each, suffixes))
    yield ReadEvent(_fold(into, marker, tail, request), at, summary.id + suffix, line=line)


def _line(part: Part) -> dict[str, object]:
    return line_of(part, "text") if part.type in {"text", "reasoning"} and text(part.data, "text") else line_of(part)


def keys_of(message: Message, suffixes: Mapping[str, str]) -> tuple[str, ...]:
    """Every key under which a message may have brought items."""
    suffix = suffixes.get(message.id, "")
    steps = (f"{message.id}#{place}" for place in range(1, len(message.parts)))
    parts = (name for part in message.parts for name in (part.id, f"{part.id}#result"))
    return tuple(f"{key}{suffix}" for key in (f"{message.id}#before", message.id, f"{message.id}#context", *steps, *parts))


def _compaction(message: Message) -> Part | None:
    return next((part for part in message.parts if part.type == "compaction"), None)


def _tail_start(request: Message | None) -> str:
    part = _compaction(request) if request is not None else None
    return text(part.data, "tail_start_id") if part is not None else ""


def _tail(messages: Sequence[Message], request: Message | None) -> Sequence[Message]:
    """The messages that stay as they are, without earlier summaries and the requests for them."""
    start = _tail_start(request)
    ids = [each.id for each in messages]
    if request is None or start not in ids:
        return ()
    return [each for each in messages[ids.index(start) : ids.index(request.id)] if _compaction(each) is None and not folds(each)]


def _fold(into: Into, marker: Sequence[str], tail: Sequence[str], request: Message | None) -> DeferredBody:
    part = _compaction(request) if request is not None else None
    overflow, auto = (part.data.get("overflow"), part.data.get("auto")) if part is not None else (False, True)
    why = "the request was too long" if overflow else "the room ran out" if auto else "the user asked for it"
    moment = "overflow" if overflow else "before_call" if auto else "asked"

    def made(context: ImportContext) -> Body:
        items = context.view.items
        asked = {item for key in marker for item in context.item_ids(key)}
        run = _run(items, asked)
        if not run:
            return ForeignNoted(FORMAT, (request.id,) if request is not None else ())
        stays = {item for key in tail for item in context.item_ids(key)}
        kept = tuple(Keep(item.id) for item in run if item.id in stays)
        question = tuple(Keep(item.id) for item in run if item.id in asked)
        fold = Fold(run[0].id, run[-1].id, (*question, *into, *kept))
        return ViewEdited((fold,), FORMAT, why, moment)

    return made


def _run(items: Sequence[Item], asked: set[str]) -> Sequence[Item]:
    """Everything up to the request for the summary."""
    ends = [place for place, item in enumerate(items) if item.id in asked]
    return items[: ends[-1] + 1] if ends else items


def cleared(result: str) -> DeferredBody:
    """The edit that clears a result."""

    def made(context: ImportContext) -> ViewEdited:
        return ViewEdited((Mask(context.item_ids(result), CLEARED),), FORMAT, "old results were cleared", "turn_ends")

    return made


def went_back(message: Message, hidden: Sequence[Part], suffix: str) -> DeferredBody:
    """What stands at the tip when the program went back into the middle of a message: its last parts are hidden."""
    shown = [part.id for part in message.parts if said_by_model(part, "") is not None]
    gone = {part.id for part in hidden}
    replies = [message.id, *(f"{message.id}#{place}" for place in range(1, len(message.parts)))]

    def made(context: ImportContext) -> ViewEdited:
        ids = [item for key in replies for item in context.item_ids(key + suffix)]
        masked = tuple(item for part, item in zip(shown, ids, strict=False) if part in gone)
        return ViewEdited((Mask(masked),), FORMAT, "the user went back", "asked")

    return made
