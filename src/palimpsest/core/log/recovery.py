"""Recovery after a crash: records an outcome for open calls, a result for pending tool calls and the end of an open turn."""

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


def recover(log: Log, *, turn_goes_on: bool = False) -> tuple[Event, ...]:
    """Record outcomes for everything that was open when the session ended, and return these events; nothing is run again.

    If the `turn_goes_on`, it stays open, and calls whose tools had not started stay pending: the loop runs them.
    """
    turn_end = () if turn_goes_on or log.health.turn is None else (TurnEnded("interrupted"),)
    bodies = (*_call_outcomes(log), *_tool_results(log, started_only=turn_goes_on), *turn_end)
    return log.extend(bodies) if bodies else ()


def _call_outcomes(log: Log) -> tuple[Body, ...]:
    """Return `Interrupted` for each open call of the path; imported calls, which have no digest, are skipped."""
    path = log.path
    outcomes: list[Body] = []
    for call in log.ledger.open:
        if call.seq not in path:
            continue
        body = log.event(call.seq).body
        if call.seq == log.open_call or (isinstance(body, CallStarted) and body.digest):
            outcomes.append(Interrupted(call.seq, why=STOPPED, model=call.model, purpose=call.purpose))
    return tuple(outcomes)


def _tool_results(log: Log, *, started_only: bool) -> tuple[Body, ...]:
    started = set(log.health.started)
    results: list[Body] = []
    for item in pending_calls(log.view.items):
        call = item.content
        if isinstance(call, ToolCall) and (call.call_id in started or not started_only):
            text = Text(UNKNOWN_OUTCOME if call.call_id in started else NEVER_RAN)
            results.append(ToolReturned(ToolResult(call.call_id, (text,), error=True, form=call.form), tool=call.tool))
    return tuple(results)
