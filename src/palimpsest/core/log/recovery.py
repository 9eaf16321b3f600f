"""Closes what a crash left open: calls without an outcome, tools without a result, a turn without an end; nothing is run again."""

from palimpsest.core.events import Body, CallStarted, Event, Interrupted, ToolReturned, TurnEnded
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import pending_calls

UNKNOWN_OUTCOME = (
    "Interrupted: the session ended while this tool was running, and its outcome is unknown. "
    "It may have done all, part or none of its work; look before you run it again."
)
NEVER_RAN = "Interrupted: the session ended before this tool was run."
STOPPED = "the session ended before the reply came"


def recover(log: Log) -> tuple[Event, ...]:
    """Close what was open when the session ended; a second time there is nothing to do."""
    bodies = (*_unanswered(log), *_unreturned(log), *_unended(log))
    return log.extend(bodies) if bodies else ()


def _unanswered(log: Log) -> tuple[Body, ...]:
    """The calls of this path that left and have no outcome; those in files of other programs have no digest and are no calls of ours."""
    path = log.path
    found: list[Body] = []
    for call in log.ledger.open:
        if call.seq not in path:
            continue
        body = log.event(call.seq).body
        if call.seq == log.open_call or (isinstance(body, CallStarted) and body.digest):
            found.append(Interrupted(call.seq, why=STOPPED, model=call.model, purpose=call.purpose))
    return tuple(found)


def _unreturned(log: Log) -> tuple[Body, ...]:
    started = set(log.health.started)
    results: list[Body] = []
    for item in pending_calls(log.view.items):
        call = item.content
        if isinstance(call, ToolCall):
            text = Text(UNKNOWN_OUTCOME if call.call_id in started else NEVER_RAN)
            results.append(ToolReturned(ToolResult(call.call_id, (text,), error=True, form=call.form), tool=call.tool))
    return tuple(results)


def _unended(log: Log) -> tuple[Body, ...]:
    return () if log.health.turn is None else (TurnEnded("interrupted"),)
