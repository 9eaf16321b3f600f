from histories import new_log

from palimpsest.core.events import CallStarted, Interrupted, ModelReplied, ToolReturned, ToolStarted, UserSaid, UserTyped
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import NEVER_RAN, STOPPED, UNKNOWN_OUTCOME, Log, recover
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def test_a_tool_that_was_started_has_an_unknown_outcome_and_others_never_ran() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(ModelReplied((ToolCall("c1", "bash", '{"command":"make"}'), ToolCall("c2", "patch", "*** Begin", form="free"))))
    log.append(ToolStarted("c1", "bash"))
    log.close()
    with Log.open(store, "s", FixedClock(1, 1), write=True) as resumed:
        assert [event.body for event in recover(resumed)] == [
            ToolReturned(ToolResult("c1", (Text(UNKNOWN_OUTCOME),), error=True), tool="bash"),
            ToolReturned(ToolResult("c2", (Text(NEVER_RAN),), error=True, form="free"), tool="patch"),
        ]
        assert recover(resumed) == ()


def test_a_call_whose_reply_never_came_is_recorded_as_interrupted_once() -> None:
    log = new_log()
    log.append(UserSaid((Text("go"),)))
    log.append(CallStarted("m", "chat"))
    assert [event.body for event in recover(log)] == [Interrupted(2, why=STOPPED, model="m")]
    assert recover(log) == ()


def test_a_session_that_ended_normally_needs_no_recovery() -> None:
    log = new_log()
    log.append(CallStarted("m", "chat"))
    log.append(ModelReplied((Text("done", "assistant"),), call=1))
    assert recover(log) == ()


def test_typed_input_is_queued_until_it_enters_the_conversation() -> None:
    store = MemorySessions()
    log = new_log(store)
    first = log.append(UserTyped((Text("one"),))).seq
    second = log.append(UserTyped((Text("two"),))).seq
    assert (log.inbox, log.view.items) == ((first, second), ())
    log.append(UserSaid((Text("one"),), typed=first))
    log.close()
    resumed = Log.open(store, "s", FixedClock(1, 1))
    assert (resumed.inbox, resumed.view.ids) == ((second,), ("3.0",))
