"""Any message list goes through a conversation: valid by the rules of the provider, or unchanged with a reason, and never an exception."""

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_lists import WIRES, Messages, odd_list, rewritten, tool_round

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Failed
from palimpsest.follow.conversation import Conversation
from palimpsest.follow.output import Elements, new_violations
from palimpsest.follow.shapes import copied, digest_of_message, plain_value, snapshot
from palimpsest.wire.models import WireName


def plain_list(messages: Sequence[object]) -> list[Any]:
    return [plain_value(message) for message in messages]


def is_readable(messages: Sequence[object]) -> bool:
    """Whether every message is an object that JSON can say."""
    try:
        return all(digest_of_message(snapshot(message).plain) for message in messages)
    except BadInput:
        return False


def check_any_list(chance: Random) -> None:
    wire, messages = odd_list(chance)
    # Each is made when it is due, because some are made by changing messages that were given before.
    makers: list[Callable[[], Messages]] = [
        lambda: messages[: len(messages) // 2],
        lambda: messages,
        lambda: rewritten(chance, messages),
        lambda: rewritten(chance, messages),
        lambda: messages,
    ]
    check_lists(wire, chance.choice(["2000", "20000"]), (make() for make in makers))


def check_lists(wire: WireName, compact_at: str, lists: Iterable[Messages]) -> None:
    """Check the successive lists of one conversation."""
    with Conversation.open(model=WIRES[wire], shape=wire, settings={"PAL_COMPACT_AT": compact_at}) as conversation:
        for given_list in lists:
            before = copied(given_list)
            sent = conversation.prepare(given_list)
            assert given_list == before
            assert sent is given_list or not new_violations(wire, plain_list(given_list), plain_list(sent))
            assert conversation.reason or is_readable(given_list)
            assert conversation.prepare(given_list) == sent
            assert Elements(conversation.session.log.events()).known == conversation._followed._mirror.elements.known
        failed = [event.body for event in conversation.session.log.events() if isinstance(event.body, Failed)]
    assert [failure for failure in failed if failure.error == "internal"] == []


@settings(max_examples=75)
@given(st.randoms(use_true_random=False))
def test_any_list_comes_back_valid_or_unchanged_with_a_reason_and_without_an_exception(chance: Random) -> None:
    check_any_list(chance)


def test_a_folded_list_begins_with_the_user_once_that_of_its_owner_does() -> None:
    source = "def f(): return a.py\n" * 300
    results = [{"type": "tool_result", "tool_use_id": None, "content": text} for text in (source, "fix it")]
    odd: Messages = [
        {"role": "", "content": [{"type": "text", "text": source}]},
        {"role": "user"},
        {"role": "tool", "content": results},
        {"role": "", "content": 3},
        {"role": "", "content": [results[1], {"type": "text", "text": source}, {**results[1], "tool_use_id": "none"}]},
    ]
    new = {"role": "user", "content": "What was said so far, in short."}
    check_lists("anthropic", "2000", [odd[:2], odd, [odd[0], new, *odd[1:]], [new, *odd], odd])


@pytest.mark.long
def test_five_thousand_lists_come_back_valid_or_unchanged_with_a_reason_and_without_an_exception() -> None:
    for seed in range(5_000):
        check_any_list(Random(seed))


@pytest.mark.parametrize(
    "messages", [[3], [None], ["text"], [object()], [{"role": "user", "content": {1: {2: 3}}}], [[]], ({"role": "user"},)]
)
def test_what_is_no_message_comes_back_as_it_is(messages: object) -> None:
    with Conversation.open(model="claude-sonnet-4-5") as conversation:
        assert conversation.prepare(messages) is messages  # type: ignore[arg-type]  # wrong on purpose


def test_a_message_that_holds_itself_comes_back_as_it_is_with_a_reason() -> None:
    message: dict[str, object] = {"role": "user"}
    message["content"] = [message]
    messages = [message]
    with Conversation.open(model="claude-sonnet-4-5") as conversation:
        assert conversation.prepare(messages) is messages
        assert conversation.reason == "a message is nested deeper than 64 levels"


@pytest.mark.long
def test_two_thousand_requests_of_a_list_that_grows_and_is_compacted_by_its_owner_hold_memory_flat(tmp_path: Path) -> None:
    sizes: list[int] = []
    messages: list[Any] = [{"role": "user", "content": "Begin."}]
    with Conversation.open(model="claude-sonnet-4-5", home=tmp_path) as conversation:
        tracemalloc.start()
        for number in range(3_500):
            messages += tool_round("anthropic", number, 100)
            if len(messages) > 200:
                messages = [{"role": "user", "content": f"Part {number} comes next."}, *messages[-20:]]
            conversation.prepare(list(messages))
            if number in (1_500, 3_499):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert conversation.reason == ""
    # The caches of the audit, which have a bound in bytes, are full after 1,500 results of 6 kB. Then only the places of lines in the file
    # are added, at most 2 kB a request.
    assert sizes[1] - sizes[0] < 2_000 * 2_000
