"""The recorded events that some profile hid, in words, so that a page can name and link them."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from palimpsest.core.events import Body, ContextStated, ModelReplied, Recalled, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, text_of
from palimpsest.core.sizes import palimpsest_size
from palimpsest.foreign.showing import gist_of, headline
from palimpsest.lab.outcome import Line, Outcome, Replayed
from palimpsest.lab.recording import Recording

_WIDTH = 200


def with_lines(replayed: Replayed, recording: Recording) -> Replayed:
    """The same, with a line for every recorded event that an edit hid or a re-read needed."""
    return replace(replayed, lines=tuple(lines_of(recording, replayed.profiles.values())))


def lines_of(recording: Recording, outcomes: Iterable[Outcome]) -> Iterator[Line]:
    """A line for every recorded event that is named by an edit or a re-read, in their order."""
    wanted: set[int] = set()
    for outcome in outcomes:
        wanted |= {event for edit in outcome.edits for event in edit.hides}
        wanted |= {reread.event for reread in outcome.rereads}
    calls: dict[str, ToolCall] = {}
    for step in recording.steps:
        for arrived in step.arrived:
            if arrived.seq in wanted:
                yield _line(arrived.seq, arrived.body, calls, recording)
        calls |= {part.call_id: part for part in step.reply.parts if isinstance(part, ToolCall)}
        if step.seq in wanted:
            yield _line(step.seq, step.reply, calls, recording)


def _line(seq: int, body: Body, calls: dict[str, ToolCall], recording: Recording) -> Line:
    contents, about = _shown(body, calls)
    text = " ".join(text_of(content) for content in contents if not isinstance(content, ToolCall))
    tokens = recording.measure.scaled(sum(map(palimpsest_size, contents)))
    return Line(seq, str(body.__struct_config__.tag), headline(about, 60), headline(text, _WIDTH), tokens)


def _shown(body: Body, calls: dict[str, ToolCall]) -> tuple[tuple[Content, ...], str]:
    """What an event brought into the view, and what it is about."""
    match body:
        case ToolReturned():
            call = calls.get(body.result.call_id)
            return (body.result,), f"{body.tool} {gist_of(call)}" if call is not None else body.tool
        case ModelReplied():
            return body.parts, ", ".join(f"{part.tool} {gist_of(part)}" for part in body.parts if isinstance(part, ToolCall))
        case UserSaid():
            return body.parts, ""
        case ContextStated():
            stated = (*(body.head or ()), *body.items)
            return tuple(Text(one.text) for one in stated), ", ".join(one.source for one in stated)
        case Recalled():
            return body.parts, body.query
        case _:
            return (), ""
