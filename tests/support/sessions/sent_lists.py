"""The lists that the calls of a session sent, one after the other, and whether anything in them moved."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    ModelReplied,
    ModelSwitched,
    Rewound,
    ToolReturned,
    ViewEdited,
)
from palimpsest.core.items import ToolCall
from palimpsest.core.log import Log
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.encode import Encoder, recorded_tools
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import Params

_params = msgspec.json.Decoder(Params)
_THINKING = frozenset({"thinking", "redacted_thinking"})


class SentCall(NamedTuple):
    """The body of a call, the digest of what was sent, and the events between the call before it and itself."""

    seq: int
    body: bytes
    is_as_sent: bool
    since: tuple[Event, ...]


def sent_calls(log: Log, model: ModelCard, fetch: Fetch) -> Iterator[SentCall]:
    """Encode every turn call along the path of a log for one model, from its view, tools and parameters."""
    projection, encoder = ViewProjection(reader=log.reader), Encoder(model, fetch=fetch)
    since: list[Event] = []
    for event in log.events():
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == TURN:
            encoder = encoder.revised(_params.decode(body.params), recorded_tools(body.tools, fetch))
            withheld = frozenset(body.withheld)
            view = projection.view
            shown = msgspec.structs.replace(view, items=tuple(item for item in view.items if item.id not in withheld))
            request = encoder.encode(shown)
            yield SentCall(event.seq, request.body, request.digest == body.digest, tuple(since))
            since = []
        else:
            since.append(event)
        projection.take(event)


def moves(calls: Iterator[SentCall]) -> list[str]:
    """What moved between neighbours although nobody edited it. An edit that costs no thinking may move only what is behind the last one."""
    found: list[str] = []
    for older, newer in pairwise(calls):
        if any(_changes_the_list(event) for event in newer.since) or _answers_late(newer.since):
            continue
        edits = [event.body for event in newer.since if isinstance(event.body, ViewEdited) and event.body.edits]
        if any(edit.reasoning_lost is None or edit.reasoning_lost.blocks for edit in edits):
            continue
        if moved := what_moved(older.body, newer.body, to_last_thinking=bool(edits)):
            found.append(f"{newer.seq}: {moved}")
    return found


def _changes_the_list(event: Event) -> bool:
    """Whether an event itself says that the list is another one: what the user or the recorded program did."""
    body = event.body
    return isinstance(body, EditUndone | Rewound | ModelSwitched) or (isinstance(body, ContextStated) and body.head is not None)


def _answers_late(since: tuple[Event, ...]) -> bool:
    """Whether a recorded program sent a call without its result, which no agent of ours does."""
    called = {
        part.call_id for event in since if isinstance(event.body, ModelReplied) for part in event.body.parts if isinstance(part, ToolCall)
    }
    return any(isinstance(event.body, ToolReturned) and event.body.result.call_id not in called for event in since)


def what_moved(older: bytes, newer: bytes, *, to_last_thinking: bool = False) -> str:
    """The first part of a request that the next one has otherwise; empty if the next one only adds to it. Marks of the cache may move."""
    before, after = _parts(older), _parts(newer)
    if to_last_thinking:
        last = max((place for place, (_, _, block) in enumerate(before) if _is_thinking(block)), default=1)
        before = before[: last + 1]
    for place, part in enumerate(before):
        if place >= len(after) or after[place] != part:
            other = json.dumps(after[place])[:300] if place < len(after) else "nothing"
            return f"{json.dumps(part)[:300]} became {other}"
    return ""


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _THINKING


def _parts(body: bytes) -> list[tuple[Any, str, Any]]:
    """System prompt, tools, and the blocks of all messages with the number of their message; a message may go on in the next request."""
    request = json.loads(body)
    parts: list[tuple[Any, str, Any]] = [(None, name, _unmarked(request.get(name))) for name in ("system", "tools")]
    for number, message in enumerate(request["messages"]):
        parts += [(number, message["role"], _unmarked(block)) for block in message["content"]]
    return parts


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    return {key: each for key, each in value.items() if key != "cache_control"} if isinstance(value, dict) else value
