"""What a crash left open: calls without a reply and tools without a result are said to be interrupted, and never run again."""

from palimpsest.core.events import Body, Event, Failed, ModelReplied, ToolReturned
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.pairs import waiting

RAN = "Interrupted: the session ended while this tool was running. It may have done part of its work; look before you run it again."
NEVER_RAN = "Interrupted: the session ended before this tool was run."


def recover(log: Log) -> tuple[Event, ...]:
    """Close what was open when the session ended; a second time there is nothing to do."""
    bodies = (*_unanswered(log), *_unreturned(log))
    return log.extend(bodies) if bodies else ()


def _unanswered(log: Log) -> tuple[Body, ...]:
    """The newest call, if neither a reply nor a failure came after it."""
    newest = max((call.seq for call in log.ledger.open if call.seq in log.path), default=None)
    if newest is None:
        return ()
    later = [event.body for event in log.reader.run(newest + 1, log.tip)]
    if any(isinstance(body, ModelReplied) and body.call in {None, newest} for body in later):
        return ()
    if any(isinstance(body, Failed) and body.what == "call" for body in later):
        return ()
    return (Failed("call", "interrupted", f"the session ended before the reply to call {newest} came"),)


def _unreturned(log: Log) -> tuple[Body, ...]:
    started = set(log.health.started)
    results: list[Body] = []
    for item in waiting(log.view.items):
        call = item.content
        if isinstance(call, ToolCall):
            text = Text(RAN if call.call_id in started else NEVER_RAN)
            results.append(ToolReturned(ToolResult(call.call_id, (text,), error=True, form=call.form), tool=call.tool))
    return tuple(results)
