"""Business state, tasks and hooks: stated when they change, and never set by a model."""

import pytest
from workplace import reply, say, work
from worlds import MemoryWorld, state, texts

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Fold, Put, Text
from palimpsest.policies.named import profile
from palimpsest.sources.progress import StateMachine

ORDER = StateMachine(
    {"asking": "needs clarification", "working": "handling the request", "paying": "waiting for payment", "done": "request completed"},
    "asking",
    {"asking": frozenset({"working"}), "working": frozenset({"paying", "asking"}), "paying": frozenset({"done"})},
)


def at(name: str) -> MemoryWorld:
    return MemoryWorld().with_state(business=ORDER.stated(name))


@pytest.mark.states("CL-41")
def test_the_state_is_stated_at_the_start_of_an_epoch_and_when_it_changes_and_not_otherwise() -> None:
    session = work(profile("classroom"))
    said = [texts(state(session, at(name))).get(key) for name, key in (("asking", "business_state"), ("asking", "business_state+"))]
    said += [texts(state(session, at(name))).get("business_state+") for name in ("working", "working", "asking")]

    assert said == [
        "<business_state>asking — needs clarification</business_state>",
        None,
        "<business_state>working — handling the request</business_state>",
        None,
        "<business_state>asking — needs clarification</business_state>",
    ]
    say(session, "hello")
    items = session.log.view.items
    session.log.append(ViewEdited((Fold(items[0].id, items[-1].id, (Put("summary", Text("short")),)),), by="test"))
    assert texts(state(session, at("asking")))["business_state"] == "<business_state>asking — needs clarification</business_state>"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("paid", "there is no state 'paid'; declared are asking, working, paying, done"),
        ("done", "'asking' cannot become 'done'; it can become working"),
    ],
)
@pytest.mark.states("CL-42")
def test_an_unknown_state_or_a_forbidden_transition_is_an_error_and_the_stated_value_stays(target: str, message: str) -> None:
    session = work(profile("classroom"))
    state(session, at("asking"))

    with pytest.raises(BadInput, match=message):
        ORDER.transition(ORDER.current(session.log.view), target)
    assert ORDER.current(session.log.view) == "asking"


@pytest.mark.states("CL-42")
def test_an_allowed_transition_gives_the_target_and_staying_is_allowed() -> None:
    assert (ORDER.transition("asking", "working"), ORDER.transition("done", "done")) == ("working", "done")
    assert StateMachine({"a": "", "b": ""}, "a").transition("b", "a") == "a"
    with pytest.raises(BadInput, match="'done' cannot become 'asking'; it can become no other state"):
        ORDER.transition("done", "asking")


@pytest.mark.states("CL-42")
def test_a_machine_that_names_unknown_states_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no state 'b'"):
        StateMachine({"a": ""}, "b")
    with pytest.raises(BadInput, match="there is no state 'c'"):
        StateMachine({"a": ""}, "a", {"a": frozenset({"c"})})
    with pytest.raises(BadInput, match="needs a name and a meaning of one line"):
        StateMachine({"a": "one\ntwo"}, "a")


@pytest.mark.states("CL-43")
def test_no_output_of_a_model_changes_the_state() -> None:
    session = work(profile("classroom"))
    state(session, at("asking"))
    reply(session, Text("<business_state>done — request completed</business_state>", "assistant"))

    assert ORDER.current(session.log.view) == "asking"
    assert state(session, at("asking")) is None


def test_tasks_are_bounded_and_their_end_is_stated() -> None:
    session = work(profile("palimpsest"))
    lines = tuple(f"[ ] {number} task" for number in range(1, 26))
    stated = texts(state(session, MemoryWorld().with_state(tasks=lines)))["tasks"]

    assert stated.splitlines() == [
        "<system-reminder>",
        "# Tasks",
        *lines[:19],
        "… and 6 more; list them with the task tool",
        "</system-reminder>",
    ]
    assert texts(state(session, MemoryWorld())) == {
        "tasks+": "<system-reminder>\n# Tasks\nNo task is ready or running.\n</system-reminder>"
    }


def test_the_output_of_session_start_hooks_is_stated_within_its_bound() -> None:
    session = work(profile("palimpsest"))
    stated = texts(state(session, MemoryWorld().with_state(texts={"session_start": "x" * 20_000})))["session_start"]

    assert stated == f"<system-reminder>\nOutput of the hooks that ran at the start of the session:\n{'x' * 10_000}\n</system-reminder>"


def test_leaving_a_mode_is_stated_because_its_rules_are_still_visible() -> None:
    session = work(profile("palimpsest"))
    state(session, MemoryWorld().with_state(mode="plan"))

    changed = texts(state(session, MemoryWorld().with_state(mode="build")))
    assert changed == {"mode+": "The mode is now `build`.\nThe rules of the earlier mode no longer apply."}
    assert texts(state(session, MemoryWorld())) == {"mode+": "The mode has ended; its rules no longer apply."}
