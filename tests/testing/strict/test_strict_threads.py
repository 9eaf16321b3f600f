"""The strict double holds conversations for five minutes, and continues each once from each reply."""

import pytest
from strict_requests import Body, asked, refusal, user, went_on

from palimpsest.testing.strict.provider import StrictProvider, calls

BETA = "message-threads-2026-08-12"
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key", "anthropic-beta": BETA}
CREATE = {"thread": {"type": "create"}}


def continued(previous: str, *messages: Body, **more: object) -> Body:
    thread = {"type": "continue", "previous_message_id": previous}
    return {"model": "claude-opus-5-5", "max_tokens": 4_096, "thread": thread, "messages": list(messages), **more}


def result(call: str) -> Body:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "a"}]}


@pytest.mark.states("PV-20")
def test_a_continuation_sends_only_what_is_new_and_its_thinking_is_bound_to_the_whole() -> None:
    provider = StrictProvider([[calls("ls")], "Done.", "Again."])
    first = provider.answer(asked(user("look"), **CREATE), headers=HEADERS).json
    new = result(first["content"][1]["id"])
    second = provider.answer(continued(first["id"], new), headers=HEADERS).json
    record = provider.records[-1]
    assert [len(record.request.body["messages"]), len(record.request.messages), record.thinking_kept] == [1, 3, 1]
    # The same list, sent whole, is the list that the thinking of both replies is bound to.
    replies = ({"role": "assistant", "content": reply["content"]} for reply in (first, second))
    whole = asked(user("look"), next(replies), new, next(replies), user("and?"))
    assert refusal(provider, whole) == (200, "", "")
    assert provider.records[-1].thinking_kept == 2


@pytest.mark.states("PV-20")
def test_each_continuation_has_breakpoints_of_its_own() -> None:
    def marked(text: str, key: str = "content") -> Body:
        return {"role": "user", key: [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}

    provider = StrictProvider()
    system = marked("Be brief. " * 400, "system")["system"]
    answered = provider.answer(asked(marked("look"), system=system, **CREATE), headers=HEADERS)
    for number in range(5):
        previous, read = answered.json["id"], answered.json["usage"]["cache_read_input_tokens"]
        # A client may send the system prompt again, with its breakpoint, or not.
        again = {"system": system} if number % 2 else {}
        answered = provider.answer(continued(previous, marked(f"go on {number}"), **again), headers=HEADERS)
        assert answered.status == 200
        assert answered.json["usage"]["cache_read_input_tokens"] > read
    assert dict(provider.counts.refused) == {}


@pytest.mark.states("PV-20")
def test_a_thread_that_is_gone_was_continued_or_differs_is_refused_with_its_code() -> None:
    provider = StrictProvider()
    first = provider.answer(asked(user("look"), **CREATE), headers=HEADERS).json["id"]
    fine = continued(first, user("more"))
    provider.now = 299
    differing: tuple[tuple[Body, str], ...] = (
        ({**fine, "system": "Be long."}, "system"),
        ({**fine, "tools": []}, "tools"),
        ({**fine, "model": "claude-fable-5-1"}, "model"),
    )
    for body, field in differing:
        said = f"`{field}` differs from the one the thread was created with."
        assert refusal(provider, body, BETA) == (400, said, "thread_fingerprint_mismatch")
    assert refusal(provider, fine, BETA, path="/v1/messages/count_tokens")[2] == "thread_unsupported_request"
    assert refusal(provider, {**fine, "compaction": {"type": "summarize"}}, BETA, "compact-2026-09-04")[2] == "thread_unsupported_request"
    assert refusal(provider, fine, BETA, x_api_key="other")[::2] == (404, "thread_not_found")
    assert refusal(provider, continued("msg_9", user("more")), BETA) == (404, "Thread not found.", "thread_not_found")
    # Sent again by value, system and tools are no difference; and the thread lives on from its last request.
    again = {**fine, "system": [{"type": "text", "text": "Be brief."}], "tools": asked()["tools"]}
    second = provider.answer(again, headers=HEADERS).json["id"]
    assert refusal(provider, fine, BETA)[::2] == (400, "thread_already_continued")
    provider.now = 598
    third = provider.answer(continued(second, user("more")), headers=HEADERS).json["id"]
    provider.now = 598 + 300
    assert refusal(provider, continued(third, user("more")), BETA)[::2] == (404, "thread_not_found")


@pytest.mark.states("PV-20")
def test_a_thread_without_its_header_or_of_no_known_kind_is_refused_and_one_of_null_is_none() -> None:
    provider = StrictProvider()
    body = went_on(provider, asked(user("look")), user("more"))
    assert refusal(provider, {**body, **CREATE}) == (400, "thread: Extra inputs are not permitted", "")
    for thread in ("create", ["create"], {"type": "fork"}, {"type": "continue"}):
        assert refusal(provider, {**body, "thread": thread}, BETA)[0] == 400
    assert refusal(provider, {**body, "thread": None}, BETA) == (200, "", "")
