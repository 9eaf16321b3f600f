"""Failed compactions under the profiles of Claude Code: the circuit breaker, and both fallbacks for prompts that are too long."""

import json
from itertools import pairwise

import pytest
from claude_work import MEASURED, SUMMARY, body_of, claude, edits, fill, texts
from every_case import every_case
from workplace import online, reply, say, use

from palimpsest.agent.calls import call
from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import Failed, ModelReplied, ToolReturned, Usage
from palimpsest.core.items import Text, ToolCall, ToolResult, rounds, unpaired
from palimpsest.policies.handoff import rounds_to_drop
from palimpsest.providers.scripted import Scripted


def failures(session: Session, what: str = "plan") -> list[str]:
    """The errors of plans, or of the calls that they made."""
    return [event.body.error for event in session.log.events() if isinstance(event.body, Failed) and event.body.what == what]


@pytest.mark.states("CC-09")
def test_three_failures_in_a_row_stop_automatic_attempts_a_success_closes_the_breaker_an_asked_compaction_ignores_it() -> None:
    session = fill(claude(), 160_000)
    provider = Scripted("", ProviderError("bad request", status=400), "  ", SUMMARY, SUMMARY)
    for asked in (1, 2, 3, 3, 3):
        assert not online(session, run_policies(session, "before_call"), provider).folded
        assert len(provider.requests) == asked
    assert failures(session) == ["no_summary", "provider", "no_summary"]
    assert failures(session, "call") == ["provider"]
    assert online(session, run_policies(session, "asked"), provider).folded
    use(session, "late", "Read", '{"file_path":"late.py"}', "late\n" * 2_000)
    reply(session, Text("more", "assistant"), usage=Usage(input=160_000))
    assert online(session, run_policies(session, "before_call"), provider).folded


@pytest.mark.states("CC-11")
def test_seven_failing_turns_make_seven_attempts_and_every_turn_is_still_sent() -> None:
    session = fill(claude(MEASURED), 168_000)
    said = ModelReplied((Text("still here", "assistant"),), usage=Usage(input=170_000))
    replies: list[ProviderError | ModelReplied] = [ProviderError("bad request", status=400), said]
    provider = Scripted(*replies * 7)
    for number in range(7):
        say(session, f"turn {number}")
        assert online(session, call(session), provider).parts == said.parts
    assert len(provider.requests) == 14
    assert failures(session) == failures(session, "call") == ["provider"] * 7


@pytest.mark.states("CC-12")
def test_a_conversation_of_one_exchange_is_not_folded_and_reports_too_few_groups_without_a_request() -> None:
    session = claude(MEASURED)
    say(session, "word " * 10_000)
    reply(session, Text("done", "assistant"), usage=Usage(input=170_000))
    say(session, "go on")
    provider = Scripted(SUMMARY)
    assert not online(session, run_policies(session, "before_call"), provider).folded
    assert (provider.requests, failures(session)) == ([], ["too_few_groups"])


def test_v_one_exchange_that_the_provider_finds_too_long_is_folded_from_the_log_so_that_the_session_lives() -> None:
    session = claude(MEASURED)
    say(session, "read all of it")
    for number in range(30):
        session.log.append(ModelReplied((ToolCall(f"p{number}", "Read", "{}"),)))
    for number in range(30):
        session.log.append(ToolReturned(ToolResult(f"p{number}", (Text("x = 1\n" * 2_000),)), tool="Read"))
    provider = Scripted(TOO_LONG, "done")
    online(session, call(session), provider)
    assert [edit.by for edit in edits(session)] == ["fold without a model"]


def longer(session: Session, count: int) -> None:
    """An opening, and so many rounds of a call with its result; the last is a pending prompt after a reply."""
    say(session, "opening " * 200)
    for number in range(count - 1):
        use(session, f"c{number}", "Bash", json.dumps({"command": f"make {number}"}), f"output {number}\n" * 400)
    reply(session, Text("and now?", "assistant"), usage=Usage(input=180_000))
    say(session, "the pending prompt")


TOO_LONG = PromptTooLong("prompt is too long")


@pytest.mark.states("CC-40")
def test_too_long_with_a_known_gap_drops_the_fewest_oldest_whole_rounds_that_cover_it() -> None:
    session = claude()
    longer(session, 10)
    items = session.log.view.items
    starts = rounds(items)
    sizes = [sum(session.counter.item(item) for item in items[start:end]) for start, end in pairwise(starts)]
    assert rounds_to_drop(items, starts, sizes[0], session.counter) == 1
    assert rounds_to_drop(items, starts, sizes[0] + 1, session.counter) == 2
    assert rounds_to_drop(items, starts, sum(sizes[:4]), session.counter) == 4
    assert rounds_to_drop(items, starts, 10**9, session.counter) == 9
    gap = sizes[0] + sizes[1]
    provider = Scripted(PromptTooLong("prompt is too long", gap=gap), SUMMARY)
    assert online(session, run_policies(session, "before_call"), provider).folded
    messages = body_of(provider.requests[1])["messages"]
    assert messages[0]["content"][0]["text"].startswith("[The oldest part of this conversation")
    assert messages[1]["content"][0]["input"] == {"command": "make 2"}


@pytest.mark.states("CC-40")
def test_without_a_known_gap_a_fifth_of_the_rounds_goes_and_at_least_one() -> None:
    session = claude()
    longer(session, 10)
    items = session.log.view.items
    earlier = {count: items[: rounds(items)[count]] if count < 10 else items for count in (2, 4, 9, 10)}
    assert [rounds_to_drop(some, range(count), None, session.counter) for count, some in earlier.items()] == [1, 1, 1, 2]
    provider = Scripted(TOO_LONG, SUMMARY)
    assert online(session, run_policies(session, "before_call"), provider).folded
    assert body_of(provider.requests[1])["messages"][1]["content"][0]["input"] == {"command": "make 2"}
    assert len(texts(session)) == 1


@pytest.mark.states("CC-41")
def test_after_three_retries_the_compaction_fails_and_no_retry_splits_a_call_from_its_result() -> None:
    session = claude()
    longer(session, 12)
    provider = Scripted(*[TOO_LONG] * 9)
    before = session.log.view.items
    assert not online(session, run_policies(session, "before_call"), provider).folded
    assert len(provider.requests) == 4
    for request in provider.requests:
        blocks = [block for message in body_of(request)["messages"] for block in message["content"]]
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert called == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert failures(session) == ["too_long_to_compact"]
    assert session.log.view.items == before


@pytest.mark.parametrize(("count", "seen"), [(13, [25, 13, 7, 3]), (15, [29, 15, 7, 3]), (17, [33, 17, 9, 5, 3])])
@pytest.mark.states("CC-42")
def test_too_long_folds_n_half_of_n_and_so_on_to_1_rounds_then_reports_exhausted_and_no_round_is_lost(count: int, seen: list[int]) -> None:
    session = claude(MEASURED)
    longer(session, count)
    provider = Scripted(*[TOO_LONG] * 9)
    before = session.log.view.items
    assert not online(session, run_policies(session, "before_call"), provider).folded
    assert [len(body_of(request)["messages"]) for request in provider.requests] == seen
    assert failures(session) == ["exhausted"]
    assert session.log.view.items == before
    provider = Scripted(*[TOO_LONG] * 2, SUMMARY)
    assert online(session, run_policies(session, "asked"), provider).folded
    left = session.log.view.items
    assert left[1:] == before[len(before) - len(left) + 1 :]
    assert len(body_of(provider.requests[2])["messages"]) == seen[2]
    assert unpaired(left) == frozenset()


@pytest.mark.states("CC-43")
def test_a_turn_refused_as_too_long_is_folded_from_the_older_half_and_sent_again_unseen() -> None:
    session = claude(MEASURED)
    longer(session, 8)
    reply(session, Text("well", "assistant"), usage=Usage(input=100_000))
    say(session, "on")
    before = len(rounds(session.log.view.items))
    provider = Scripted(TOO_LONG, TOO_LONG, SUMMARY, "done")
    assert online(session, call(session), provider).parts == (Text("done", "assistant"),)
    counts = [len(body_of(request)["messages"]) for request in provider.requests]
    assert before == 9
    assert counts[1:3] == [2 * 4 + 1, 2 * 2 + 1]
    assert edits(session)[0].moment == "overflow"
    assert texts(session)[-2:] == ["on", "done"]


@pytest.mark.states("CC-43")
def test_of_eight_rounds_three_are_folded_first_and_then_one() -> None:
    session = claude(MEASURED)
    longer(session, 8)
    provider = Scripted(TOO_LONG, SUMMARY)
    assert online(session, run_policies(session, "overflow"), provider).folded
    assert [len(body_of(request)["messages"]) for request in provider.requests] == [7, 3]


@pytest.mark.states("CC-43")
def test_claude_code_ends_the_turn() -> None:
    session = fill(claude(), 100_000)
    say(session, "on")
    provider = Scripted(TOO_LONG, SUMMARY, "done")
    with pytest.raises(PromptTooLong):
        online(session, call(session), provider)
    assert (len(provider.requests), edits(session)) == (1, [])


@every_case("name", ["claude-code", MEASURED])
@every_case(
    "answer",
    [
        ModelReplied((ToolCall("x", "Read", "{}"),)),
        ModelReplied((Text("I will look.", "assistant"), ToolCall("x", "Read", "{}"))),
        "<analysis>only thoughts</analysis>",
        "<analysis>thoughts that never",
        "<summary>" + "longer than all before " * 20_000 + "</summary>",
        ProviderError("overloaded", status=529),
    ],
)
def test_a_model_that_does_not_sum_up_harms_nothing(name: str, answer: str | ModelReplied | ProviderError) -> None:
    session = fill(claude(name), 170_000, 6)
    before = session.log.view.items
    ran = online(session, run_policies(session, "before_call"), Scripted(answer))
    assert (ran.folded, ran.notices) == (False, ())
    assert session.log.view.items == before
    assert session.log.health.failures == {"summarize": 1}
