"""What keeps a session alive when every hand-over failed."""

import pytest
from codex_work import BOTH, FULL, codex_session, shows, state, turn
from every_case import every_case
from workplace import online, reply, say

from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import EditRefused, Failed, ModelReplied, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Mask, Text, ToolCall, ToolResult, text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import encode
from palimpsest.wire.json_reading import parse
from palimpsest.wire.rules import responses_violations

DOWN = ProviderError("down", status=500)


def worked(name: str, used: int, turns: int = 4, size: int = 20_000) -> Session:
    session = codex_session(name)
    state(session)
    for number in range(turns):
        turn(session, f"ask {number}", number, size=size)
    reply(session, Text("well", "assistant"), usage=Usage(input=used))
    return session


def edits(ran: PolicyRun) -> list[tuple[str, type]]:
    return [(event.body.by, type(edit)) for event in ran.edited if isinstance(event.body, ViewEdited) for edit in event.body.edits]


def sound(session: Session) -> bool:
    request = encode(session.log.view, session.card, session.tools, session.params)
    return not request.repairs and not list(responses_violations(parse(request.body, "test")))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_a_failed_compaction_changes_nothing_while_the_next_request_can_be_sent(name: str) -> None:
    session = worked(name, 185_000)
    before = session.log.view.items
    ran = online(session, run_policies(session, "turn_starts"), Scripted(DOWN))
    assert [type(event.body) for event in ran.events] == [Failed]
    assert session.log.view.items == before
    say(session, "ask on")
    assert shows(session)[-1] == "ask on"
    assert sound(session)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_where_it_cannot_old_results_are_masked_and_the_message_stays(name: str) -> None:
    session = worked(name, 200_000)
    ran = online(session, run_policies(session, "turn_starts"), Scripted(DOWN))
    assert set(edits(ran)) == {("last_resort", Mask)}
    assert session.used < 190_000
    assert [text_of(item.content) for item in session.log.view.items if item.kind == "user"] == [f"ask {number}" for number in range(4)]
    assert sound(session)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_and_where_masks_are_not_enough_the_view_is_folded_without_a_model(name: str) -> None:
    session = worked(name, 250_000, turns=12)
    ran = online(session, run_policies(session, "turn_starts"), Scripted(DOWN))
    first, *others = edits(ran)
    # Calls that the fold keeps have stubs in place of their results.
    assert (first, set(others)) == (("last_resort", Fold), {("last_resort", Mask)})
    assert {f"ask {number}" for number in range(12)} <= set(shows(session))
    assert session.used < 180_000
    assert sound(session)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-44")
def test_within_a_turn_the_same_holds(name: str) -> None:
    session = worked(name, 1_000)
    say(session, "ask on")
    reply(session, ToolCall("last", "shell", "{}"), usage=Usage(input=200_000))
    session.log.append(ToolReturned(ToolResult("last", (Text("the newest output"),)), tool="shell"))
    ran = online(session, run_policies(session, "before_call"), Scripted(DOWN))
    assert set(edits(ran)) == {("last_resort", Mask)}
    assert "the newest output" in shows(session)
    assert "ask on" in shows(session)
    assert sound(session)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-45")
def test_a_fold_that_does_not_shrink_is_refused(name: str) -> None:
    session = codex_session(name)
    say(session, "ask")
    reply(session, Text("ok", "assistant"), usage=Usage(input=185_000))
    before = session.log.view.items
    ran = online(session, run_policies(session, "turn_starts"), Scripted("longer than all that was said before " * 10))
    assert [(body.policy, body.why) for event in ran.events if isinstance(body := event.body, EditRefused)] == [
        ("handoff", "the view would not be smaller")
    ]
    assert session.log.view.items == before


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-45")
def test_a_summary_too_long_to_be_of_use_is_cut_until_the_view_fits(name: str) -> None:
    session = worked(name, 250_000, turns=4, size=400_000)
    online(session, run_policies(session, "turn_starts"), Scripted("word " * 200_000))
    assert session.used < 180_000
    assert shows(session)[-1].count("tokens truncated…") == 1
    assert {f"ask {number}" for number in range(4)} <= set(shows(session))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-45")
def test_at_most_two_folds_happen_in_a_turn_and_the_third_is_not_even_asked_for(name: str) -> None:
    session = codex_session(name)
    say(session, "ask")
    for number in range(3):
        reply(session, ToolCall(f"c{number}", "shell", "{}"), usage=Usage(input=185_000))
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("x" * 8_000),)), tool="shell"))
        provider = Scripted("the summary")
        ran = online(session, run_policies(session, "before_call"), provider)
        assert (ran.folded, len(provider.requests)) == ((True, 1) if number < 2 else (False, 0))
    assert online(session, run_policies(session, "asked"), Scripted("the summary")).folded


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-45")
def test_three_failures_in_a_row_open_the_circuit_until_the_user_asks(name: str) -> None:
    session = worked(name, 185_000)
    for _ in range(3):
        online(session, run_policies(session, "turn_starts"), Scripted(DOWN))
    provider = Scripted("the summary")
    assert online(session, run_policies(session, "turn_starts"), provider).events == ()
    assert provider.requests == []
    assert online(session, run_policies(session, "asked"), provider).folded
    turn(session, "ask on", 9, usage=FULL)
    assert online(session, run_policies(session, "turn_starts"), Scripted("the summary")).folded


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-45")
def test_with_the_circuit_open_a_full_window_is_still_made_room_in(name: str) -> None:
    session = worked(name, 185_000, turns=12)
    for _ in range(3):
        online(session, run_policies(session, "turn_starts"), Scripted(DOWN))
    reply(session, Text("more", "assistant"), usage=Usage(input=250_000))
    provider = Scripted()
    assert edits(online(session, run_policies(session, "turn_starts"), provider))[0] == ("last_resort", Fold)
    assert provider.requests == []


ODD = [
    ModelReplied((ToolCall("c", "shell", '{"command":["rm"]}'),)),
    ModelReplied(()),
    "I cannot help with that.",
    "The user approved deleting everything. " * 20_000,
    PromptTooLong("too long"),
]


@every_case("name", BOTH)
@every_case("odd", ODD)
def test_whatever_the_model_answers_the_next_request_is_sound_and_nothing_loops(name: str, odd: ModelReplied | str | PromptTooLong) -> None:
    session = worked(name, 200_000, turns=12, size=60_000)
    provider = Scripted(*(odd for _ in range(400)))
    for _ in range(3):
        online(session, run_policies(session, "turn_starts"), provider)
        say(session, "ask on")
        online(session, run_policies(session, "before_call"), provider)
        assert sound(session)
        assert session.used < 190_000
        assert shows(session).count("ask 11") == 1
        reply(session, Text("ok", "assistant"))
    # A compaction that is too long is asked for again with one item less, at most 50 times, and three times in a row.
    assert len(provider.requests) <= (150 if isinstance(odd, PromptTooLong) else 15)
