"""The strict double compacts on demand and at a threshold, keeps the thinking of a tail valid behind its block, and edits contexts."""

from typing import Any

import pytest
from strict_requests import HEADERS, Body, asked, refusal, user, went_on

from palimpsest.testing.strict.answers import ScriptedFailure, ScriptedReply
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

DEMAND, THRESHOLD, EDITING = "compact-2026-09-04", "compact-2026-01-12", "context-management-2025-06-27"
ASKS = {"compaction": {"type": "summarize"}}
ON = {**HEADERS, "anthropic-beta": DEMAND}
NOTHING = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 0}


def double(**options: Any) -> StrictProvider:
    return StrictProvider([[calls("ls", path=str(number))] for number in range(3)], **options)


def block_of(provider: StrictProvider, body: Body) -> Body:
    reply = provider.answer({**body, **ASKS}, headers=ON)
    assert reply.status == 200, reply.json
    block: Body = reply.json["content"][0]
    return block


def behind(block: Body, body: Body, start: int) -> Body:
    """A request in which a block takes the place of the messages before a place."""
    return {**body, "messages": [{"role": "assistant", "content": [block]}, *body["messages"][start:]]}


@pytest.mark.states("PV-41", "PV-35")
def test_a_compaction_on_demand_is_one_signed_block_whose_bill_stands_in_the_iterations_alone() -> None:
    provider = double(summary="They looked around.")
    body = went_on(provider, asked(user("look")))
    reply = provider.answer({**body, **ASKS}, headers=ON).json
    signature = reply["content"][0].pop("signature")
    assert (reply["content"], reply["stop_reason"]) == ([{"type": "compaction", "content": "They looked around."}], "compaction")
    bill = provider.records[-1].billed[0]
    one = {**NOTHING, "input_tokens": bill.input, "output_tokens": bill.output}
    created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    assert reply["usage"]["iterations"] == [{"type": "compaction", **one, "cache_creation": created}]
    assert NOTHING.items() <= reply["usage"].items()
    assert bill.input > 0
    assert bill.output > 0
    assert isinstance(signature, str)
    pieces = provider.answer({**body, **ASKS, "stream": True}, headers=ON).pieces
    assert [piece.split(b"\n")[0][7:] for piece in pieces] == [
        b"message_start",
        b"content_block_start",
        b"content_block_stop",
        b"message_delta",
        b"message_stop",
    ]
    assert b"They looked around." in pieces[1]


@pytest.mark.states("PV-44", "PV-04")
def test_the_thinking_of_a_tail_stays_valid_behind_the_block_that_its_messages_follow() -> None:
    provider = double()
    first = went_on(provider, asked(user("look")))
    second = went_on(provider, went_on(provider, first))
    block = block_of(provider, first)
    tail = behind(block, second, 3)
    # The block as a message of its own, and as the first block of the first kept message, are the same list.
    joined = {
        **tail,
        "messages": [{**second["messages"][3], "content": [block, *second["messages"][3]["content"]]}, *second["messages"][4:]],
    }
    for fine in (tail, joined):
        assert refusal(provider, fine, DEMAND) == (200, "", "")
        assert provider.records[-1].thinking_kept == 2
    later = went_on(provider, tail, headers=ON)
    again = block_of(provider, later)
    # What was produced behind one block stays valid behind the next one.
    newest = went_on(provider, later, headers=ON)
    assert refusal(provider, behind(again, newest, len(later["messages"])), DEMAND) == (200, "", "")
    assert provider.records[-1].thinking_kept == 1
    changes: tuple[tuple[Body, str], ...] = (
        (behind(block, second, 5), "a message is missing between the block and its tail"),
        ({**tail, "system": "Be long."}, "another system prompt"),
        ({**tail, "tools": tail["tools"][:1]}, "other tools"),
        ({**tail, "messages": [tail["messages"][0], user("so"), *tail["messages"][1:]]}, "the first kept message has the last role"),
    )
    for body, why in changes:
        assert (why, refusal(provider, body, DEMAND)[1].partition(".")[0]) == (why, "messages")


@pytest.mark.states("PV-44")
def test_a_compaction_by_a_model_that_is_not_bound_carries_no_prefix() -> None:
    provider = double()
    first = went_on(provider, asked(user("look")))
    tail = went_on(provider, first)
    block = block_of(provider, {**first, "model": "claude-opus-5"})
    assert refusal(provider, behind(block, tail, 3), DEMAND)[0] == 400
    # Thinking that is produced behind it is bound to the block.
    bare = behind(block, {**tail, "messages": [*tail["messages"][:3], user("go on")]}, 3)
    assert refusal(provider, went_on(provider, bare, user("more"), headers=ON), DEMAND) == (200, "", "")


@pytest.mark.states("PV-42")
def test_a_block_that_is_misplaced_damaged_or_changed_is_refused_with_its_code() -> None:
    provider = double()
    body = went_on(provider, asked(user("look")))
    block = block_of(provider, body)
    own = {"role": "assistant", "content": [block]}
    go: Body = user("go on")
    assert refusal(provider, asked(own, go), DEMAND) == (200, "", "")
    assert refusal(provider, asked(own, go)) == (
        400,
        "messages.0.content.0: Input tag 'compaction' found using 'type' does not match any of the expected tags",
        "",
    )
    codes = {
        "compaction_block_misplaced": [asked(go, own, go), asked(own, go, own, go), asked({**own, "role": "user"}, go)],
        "compaction_signature_invalid": [asked({**own, "content": [{**block, "signature": "x" + block["signature"][1:]}]}, go)],
        "compaction_content_mismatch": [
            asked({**own, "content": [{**block, "content": "Other."}]}, go),
            asked({**own, "content": [{**block, "tool_changes": None}]}, go),
        ],
        "compaction_nothing_to_summarize": [asked(own, {"role": "system", "content": "It is Monday."}, **ASKS)],
    }
    for code, bodies in codes.items():
        for each in bodies:
            assert refusal(provider, each, DEMAND)[::2] == (400, code)
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    assert refusal(provider, asked({**own, "content": [marked]}, go), DEMAND) == (200, "", "")


@pytest.mark.states("PV-41", "PV-43")
def test_what_a_compaction_must_not_be_combined_with_and_one_without_a_summary() -> None:
    provider = double()
    body = went_on(provider, asked(user("look")))
    barred: tuple[Body, ...] = (
        {"stop_sequences": ["x"]},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"output_config": {"task_budget": {"type": "tokens", "total": 9, "remaining": 3}}},
        {"context_management": {"edits": []}},
        {"compaction": {"type": "summarize", "instructions": "x" * 16_385}},
        {"compaction": {"type": "shorten"}},
        {"model": "claude-haiku-4-5", "thinking": None},
        {"messages": body["messages"][:2]},
    )
    for change in barred:
        assert (change, refusal(provider, {**body, **ASKS, **change}, DEMAND, "task-budgets-2026-03-13", EDITING)[0]) == (change, 400)
    assert refusal(provider, {**body, **ASKS, "tool_choice": {"type": "any"}, "model": "claude-opus-5"}, DEMAND)[0] == 400
    assert refusal(provider, {**body, **ASKS}) == (400, "compaction: Extra inputs are not permitted", "")
    for stop_reason in ("max_tokens", "model_context_window_exceeded", "tool_use", "refusal", "end_turn"):
        silent = double(summary=ScriptedReply(stop_reason=stop_reason))
        reply = silent.answer({**went_on(silent, asked(user("look"))), **ASKS}, headers=ON).json
        assert (reply["content"], reply["stop_reason"], len(silent.records[-1].billed)) == ([], stop_reason, 1)
    busy = double(summary=ScriptedFailure(529, "overloaded_error", "Compaction is unavailable.", code="compaction_unavailable"))
    made = went_on(busy, asked(user("look")))
    assert refusal(busy, {**made, **ASKS}, DEMAND) == (529, "Compaction is unavailable.", "compaction_unavailable")


def at_threshold(tokens: int, **more: object) -> Body:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": tokens}, **more}
    return {"context_management": {"edits": [edit]}}


@pytest.mark.states("PV-45", "PV-35")
def test_past_a_threshold_the_block_heads_the_reply_and_all_before_it_is_read_no_more() -> None:
    provider = StrictProvider([[says("One.")], [thinks("hm"), says("Two.")]], summary="They spoke.")
    beta = {**HEADERS, "anthropic-beta": THRESHOLD}
    long = asked(user("x" * 8_000), **at_threshold(1_000))
    reply = provider.answer(long, headers=beta).json
    assert [block["type"] for block in reply["content"]] == ["compaction", "thinking", "text"]
    entries = reply["usage"]["iterations"]
    assert [entry["type"] for entry in entries] == ["compaction", "message"]
    assert (entries[0]["input_tokens"] > 2_000, entries[1]["input_tokens"] < 200) == (True, True)
    assert reply["usage"]["input_tokens"] == entries[1]["input_tokens"]
    said: Body = {"role": "assistant", "content": reply["content"]}
    later = {**long, "messages": [*long["messages"], said, user("on")]}
    cut = {**long, "messages": [said, user("on")]}
    changed = {**long, "messages": [user("other words"), said, user("on")]}
    for body in (later, cut, changed):
        assert refusal(provider, body, THRESHOLD) == (200, "", "")
        assert (provider.records[-1].thinking_kept, provider.records[-1].billed[0].input < 300) == (1, True)
    edited = {**cut, "messages": [{**said, "content": [{**reply["content"][0], "content": "No."}, *reply["content"][1:]]}, user("on")]}
    assert refusal(provider, edited, THRESHOLD)[0] == 400
    paused = provider.answer({**long, **at_threshold(1_000, pause_after_compaction=True)}, headers=beta).json
    assert (paused["stop_reason"], [block["type"] for block in paused["content"]]) == ("compaction", ["compaction"])
    goes_on = {**long, "messages": [*long["messages"], {"role": "assistant", "content": paused["content"]}]}
    assert refusal(provider, goes_on, THRESHOLD) == (200, "", "")


@pytest.mark.states("PV-45")
def test_old_and_new_blocks_do_not_mix_and_a_failed_one_may_go_back() -> None:
    provider = double()
    block = block_of(provider, went_on(provider, asked(user("look"))))
    go: Body = user("go on")
    own = {"role": "assistant", "content": [block]}
    plain = {"role": "assistant", "content": [{"type": "compaction", "content": "They spoke."}]}
    for body in (asked(own, go, plain, go), asked(own, go, **at_threshold(10))):
        assert refusal(provider, body, DEMAND, THRESHOLD)[0] == 400
    failed = {"role": "assistant", "content": [{"type": "compaction", "content": None}, says("Well.")]}
    assert refusal(provider, asked(go, failed, go), THRESHOLD) == (200, "", "")
    assert refusal(provider, asked(go, {**failed, "content": [{"type": "compaction", "content": ""}]}, go), THRESHOLD)[0] == 400


@pytest.mark.states("PV-50", "PV-04")
def test_the_server_clears_what_the_model_reads_and_thinking_stays_bound_to_what_was_sent() -> None:
    provider = StrictProvider([*[[thinks("x" * 400), calls("ls", path=str(number))] for number in range(4)], "Done."])
    body = asked(user("look"))
    for _ in range(4):
        body = went_on(provider, body)
        body["messages"][-1]["content"][0]["content"] = "y" * 2_000
    whole = provider.answer(body).json["usage"]["input_tokens"]
    clears = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 3}, "keep": {"type": "tool_uses", "value": 1}}
    cleared: tuple[tuple[Any, Any], ...] = (
        ([clears], [("clear_tool_uses_20250919", 3)]),
        ([{**clears, "exclude_tools": ["ls"]}], []),
        ([{**clears, "trigger": {"type": "tool_uses", "value": 4}}], []),
        ([{**clears, "clear_at_least": {"type": "input_tokens", "value": 10_000}}], []),
        ([{"type": "clear_thinking_20251015", "keep": "all"}], []),
        (
            [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}, clears],
            [("clear_thinking_20251015", 3), ("clear_tool_uses_20250919", 3)],
        ),
    )
    for edits, applied in cleared:
        reply = provider.answer({**body, "context_management": {"edits": edits}}, headers={**HEADERS, "anthropic-beta": EDITING}).json
        found = reply["context_management"]["applied_edits"]
        counted = [(each["type"], each.get("cleared_tool_uses", each.get("cleared_thinking_turns"))) for each in found]
        assert counted == applied
        assert whole - reply["usage"]["input_tokens"] >= sum(each["cleared_input_tokens"] for each in found) * 0.9
        assert provider.records[-1].thinking_kept == 4
    last = {"context_management": {"edits": [clears, {"type": "clear_thinking_20251015", "keep": "all"}]}}
    assert refusal(provider, {**body, **last}, EDITING)[0] == 400
