"""Health of a session along its path."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from side_calls import side_reply

from palimpsest.core.calls import Health, HealthProjection, PendingCalls
from palimpsest.core.events import Body, Event, Failed, ModelReplied, ToolReturned, ToolStarted, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Mask, Text, ToolCall, ToolResult


def _projection(*bodies: Body) -> HealthProjection:
    projection = HealthProjection()
    for seq, body in enumerate(bodies):
        projection.take(Event(seq, seq - 1, 1_000 + seq, "", body))
    return projection


def _health(*bodies: Body) -> Health:
    return _projection(*bodies).value()


def _pending(*bodies: Body) -> tuple[tuple[str, ...], tuple[str, ...]]:
    calls = PendingCalls()
    for seq, body in enumerate(bodies):
        calls.take(Event(seq, seq - 1, 1_000 + seq, "", body))
    return calls.pending(), calls.started()


def _calls(*tools: str) -> ModelReplied:
    return ModelReplied(tuple(ToolCall(f"call-{tool}", tool, "{}") for tool in tools))


SAID = UserSaid((Text("go on"),))
FOLDED = ViewEdited((Fold("1.0", "2.0"),), by="summarize")
MASKED = ViewEdited((Mask(("1.0",), "gone"),), by="clear_results")
FAILED = Failed("summary", "provider", by="summarize")


def test_failures_in_a_row_open_the_circuit_at_three() -> None:
    assert [_health(*[FAILED] * times).is_circuit_open("summarize") for times in (2, 3)] == [False, True]


def test_a_success_of_the_same_policy_closes_the_circuit() -> None:
    assert _health(FAILED, FAILED, FAILED, FOLDED).failures == {}


def test_a_success_of_another_policy_changes_nothing() -> None:
    assert _health(FAILED, FAILED, MASKED, FAILED).failures == {"summarize": 3}


def test_a_failure_without_a_policy_counts_for_no_policy() -> None:
    assert _health(Failed("call", "provider")) == Health()


def test_beyond_its_limit_a_turn_may_fold_only_if_forced_and_after_a_reply() -> None:
    replied = ModelReplied((), call=None)
    assert _health(SAID, FOLDED, FOLDED).may_fold(2) is False
    assert _health(SAID, FOLDED, FOLDED).may_fold(0) is True
    assert _health(SAID, FOLDED, FOLDED, *[replied] * 500).may_fold(2) is False
    assert _health(SAID, FOLDED, FOLDED).may_fold(2, forced=True) is False
    assert _health(SAID, FOLDED, FOLDED, replied).may_fold(2, forced=True) is True
    again = _health(SAID, FOLDED, FOLDED, replied, FOLDED)
    assert (again.folds, again.folded, again.may_fold(2, forced=True)) == (3, 1, False)


def test_folds_are_counted_within_a_turn_and_masks_are_not() -> None:
    assert _health(SAID, FOLDED, MASKED, FOLDED).folds == 2
    assert _health(SAID, FOLDED, TurnEnded()).folds == 0
    assert _health(SAID, FOLDED, SAID).folds == 0


def test_steering_does_not_begin_a_turn() -> None:
    health = _health(SAID, FOLDED, UserSaid((Text("no, the other one"),), steering=True))
    assert (health.turns, health.folds) == (1, 1)


def test_a_requested_fold_does_not_count() -> None:
    assert _health(SAID, ViewEdited(FOLDED.edits, by="summarize", moment="asked")).folds == 0


def test_an_overflow_is_remembered_until_the_next_fold() -> None:
    too_long = Failed("call", "too_long")
    assert [_health(*bodies).overflow for bodies in ((too_long,), (too_long, MASKED), (too_long, FOLDED))] == [True, True, False]


def test_turns_calls_and_the_time_of_the_last_reply_are_known() -> None:
    health = _health(SAID, _calls(), _calls(), side_reply("title", "m"))
    assert (health.turns, health.calls, health.replied_at) == (1, 2, 1_002)


def test_tool_calls_are_pending_until_they_return_and_started_once_their_tool_is() -> None:
    replied, started = _calls("read", "bash", "grep"), ToolStarted("call-grep", "grep")
    returned = ToolReturned(ToolResult("call-bash"))
    assert _pending(replied) == (("call-read", "call-bash", "call-grep"), ())
    assert _pending(replied, started, returned) == (("call-read", "call-grep"), ("call-grep",))
    assert _pending(replied, started, ToolReturned(ToolResult("call-grep"))) == (("call-read", "call-bash"), ())
    assert _pending(returned) == ((), ())


def test_the_counter_of_a_tool_is_zero_after_a_round_that_called_it_and_grows_by_one_a_round() -> None:
    healths = [_health(*[_calls("todo", "read"), _calls("read"), _calls()][:rounds]) for rounds in (1, 2, 3)]
    assert [health.calls - health.called["todo"] for health in healths] == [0, 1, 2]


def test_an_irrelevant_event_leaves_the_identical_health() -> None:
    projection = _projection(SAID)
    before = projection.value()
    projection.take(Event(1, 0, 0, "", side_reply("title", "m")))
    assert projection.value() is before


_bodies = st.sampled_from(
    [
        SAID,
        FOLDED,
        MASKED,
        FAILED,
        TurnEnded(),
        Failed("call", "too_long"),
        _calls("read"),
        _calls("todo", "bash"),
        ToolReturned(ToolResult("call-read")),
    ]
)


@given(st.lists(_bodies, max_size=20), st.integers(0, 20))
def test_counting_in_two_steps_over_a_written_checkpoint_is_counting_in_one(bodies: list[Body], cut: int) -> None:
    events = [Event(seq, seq - 1, 1_000 + seq, "", body) for seq, body in enumerate(bodies)]
    first = HealthProjection()
    for event in events[:cut]:
        first.take(event)
    second = HealthProjection(msgspec.json.decode(msgspec.json.encode(first.value()), type=Health))
    for event in events[cut:]:
        second.take(event)
    assert second.value() == _health(*bodies)
