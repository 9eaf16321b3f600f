"""The provider refuses thinking: the request is sent once more without any, and what it answered without stays out."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from strict_session import strict_session, turn
from workplace import say

from palimpsest.agent.calls import send, turn_request
from palimpsest.agent.session import Session
from palimpsest.core.errors import PalimpsestError, ThinkingRefused
from palimpsest.core.events import Failed, ModelReplied, ViewEdited
from palimpsest.core.items import Mask, named_ids, text_of
from palimpsest.core.undo import undo
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.testing.strict.answers import ScriptedFailure
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider, says, thinks

ELSEWHERE = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". '
    "That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. "
    "The `system` prompt differs from the one this block was created with."
)
HEADER = {"anthropic-thinking-prefix-mismatch": "block=messages.1.content.0;kind=system;kind=tools"}
REFUSED = ScriptedFailure(400, "invalid_request_error", ELSEWHERE, HEADER)
OLDER = ScriptedFailure(400, "invalid_request_error", "messages.1.content.0: The block was not created in this conversation.")
DAMAGED = ScriptedFailure(400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block")
BUSY = ScriptedFailure(529, "overloaded_error", "Overloaded")
LIMITED = ScriptedFailure(429, "rate_limit_error", "slow down")
TOO_LONG = ScriptedFailure(400, "invalid_request_error", "prompt is too long: 2 tokens > 1 maximum")
FIRST, SECOND = (thinks("one"), says("first")), (thinks("two"), says("second"))


def asked_again(*answers: StrictAnswer, stream: bool = True, extra: dict[str, Any] | None = None) -> tuple[Session, StrictProvider]:
    """A session with one thinking block, behind which the user has spoken; `answers` come next."""
    double = StrictProvider([FIRST, *answers], thinks=False)
    session = strict_session(double)
    session.params = msgspec.structs.replace(session.params, stream=stream, extra=Raw(msgspec.json.encode(extra)))
    session.environment = replace(session.environment, retries=RetryPolicy(first=0, longest=0))
    say(session, "begin")
    turn(session)
    say(session, "go on")
    return session, double


def thinking_sent(double: StrictProvider) -> list[int]:
    return [record.thinking_sent for record in double.records]


def outcomes(session: Session) -> list[tuple[str, ...]]:
    """How each call ended: the kind of an error with its path and cause, or the words of a reply; and the edits between."""
    found: list[tuple[str, ...]] = []
    for event in session.log.events():
        match event.body:
            case Failed(error=error, path=path, cause=cause):
                found.append((error, path, cause))
            case ModelReplied(parts=parts):
                found.append((text_of(parts[-1]),))
            case ViewEdited(edits=edits, by=by):
                found.append((by, *(name for edit in edits for name in named_ids(edit))))
            case _:
                continue
    return found


@pytest.mark.states("PV-05", "PV-15")
@pytest.mark.parametrize("stream", [True, False])
def test_what_the_provider_refuses_is_left_out_once_and_stays_out_if_that_helps(stream: bool) -> None:
    refused = ("thinking_refused", "messages.1.content.0", "")
    told = ("thinking_refused", "messages.1.content.0", "system")
    withdrawn = ("recovery", "3.0")
    table: list[tuple[str, list[StrictAnswer], list[tuple[str, ...]], list[int]]] = [
        ("it helps", [REFUSED, SECOND], [told, ("second",), withdrawn], [0, 1, 0]),
        ("older words", [OLDER, SECOND], [refused, ("second",), withdrawn], [0, 1, 0]),
        ("a damaged signature", [DAMAGED, SECOND], [refused, ("second",), withdrawn], [0, 1, 0]),
        ("refused again", [REFUSED, DAMAGED, SECOND], [told, refused], [0, 1, 0]),
        ("then limited", [REFUSED, LIMITED, SECOND], [told, ("provider", "", "")], [0, 1, 0]),
        ("then too long", [REFUSED, TOO_LONG, SECOND], [told, ("too_long", "", "")], [0, 1, 0]),
        ("after a retry", [BUSY, REFUSED, SECOND], [("provider", "", ""), told, ("second",), withdrawn], [0, 1, 1, 0]),
    ]
    for name, answers, ended, thinking in table:
        session, double = asked_again(*answers, stream=stream)
        with suppress(PalimpsestError):
            asyncio.run(send(session, turn_request(session)))
        assert outcomes(session) == [("first",), *ended], name
        assert thinking_sent(double) == thinking, name


@pytest.mark.states("PV-15")
def test_a_request_without_thinking_or_one_that_asks_for_the_error_is_not_sent_again() -> None:
    asks = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}
    plain, plain_double = asked_again(REFUSED, SECOND)
    plain.log.append(ViewEdited((Mask(("3.0",)),), "test"))
    strict, strict_double = asked_again(REFUSED, SECOND, extra=asks)
    for session, double in ((plain, plain_double), (strict, strict_double)):
        with pytest.raises(ThinkingRefused, match="bound to a different conversation") as raised:
            asyncio.run(send(session, turn_request(session)))
        assert (raised.value.path, raised.value.cause) == ("messages.1.content.0", "system")
        assert len(double.records) == 2


@pytest.mark.states("PV-12", "PV-15")
def test_the_next_request_goes_on_from_the_second_attempt_and_an_undo_brings_the_thinking_back() -> None:
    session, double = asked_again(REFUSED, SECOND, (thinks("three"), says("third")), (says("fourth"),))
    turn(session)
    say(session, "and on")
    turn(session)
    second, third = (plain(body["messages"]) for body in double.bodies[2:4])
    assert third[: len(second)] == second
    assert [block["type"] for message in third for block in message["content"]] == ["text", "text", "text", "thinking", "text", "text"]
    (edit,) = [event.seq for event in session.log.events() if isinstance(event.body, ViewEdited)]
    undo(session.log, edit)
    say(session, "last")
    turn(session)
    # The thinking that was made without the first block stays valid only without it, and it is the newest.
    call = session.log.view.call
    assert call is not None
    assert call.withheld == ("3.0",)
    assert dict(double.counts.refused) == {"scripted": 1}


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages by value, without cache breakpoints."""
    return [
        {**message, "content": [{name: value for name, value in block.items() if name != "cache_control"} for block in message["content"]]}
        for message in messages
    ]
