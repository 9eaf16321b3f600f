"""What the provider says of its cache: asked for where it is known, recorded, and compared with what was expected."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from official_types import accept
from openai.types.responses.response_create_params import PromptCacheOptions
from strict_session import StrictlyAnswered, strict_session, turn
from workplace import answered_by, say

from palimpsest.agent.session import Session
from palimpsest.audit.cache import cache_checks
from palimpsest.core.events import CacheDiagnosis, CallStarted, ModelReplied, Usage, ViewEdited
from palimpsest.core.items import Mask, Text
from palimpsest.providers.scripted import Scripted
from palimpsest.testing.strict.provider import StrictProvider, calls, says
from palimpsest.wire.encode import next_request, past_request

PAGE = "a long line of the question that is read. " * 1_000


class DirectlyAnswered(StrictlyAnswered):
    """The double at the address of the maker of the model."""

    is_direct = True


class DirectScript(Scripted):
    """A script at the address of the maker of the model."""

    is_direct = True


def asked(double: StrictProvider) -> list[Any]:
    return [body.get("diagnostics", "nothing") for body in double.bodies]


def replies(session: Session) -> list[ModelReplied]:
    return [event.body for event in session.log.events() if isinstance(event.body, ModelReplied)]


@pytest.mark.states("PV-56")
def test_each_call_names_the_reply_before_it_and_what_the_provider_says_is_compared_with_what_was_expected() -> None:
    double = StrictProvider([[calls("ls", path="."), calls("cat", path="a")]])
    session = answered_by(strict_session(double, "claude-opus-4-8"), DirectlyAnswered(double))
    question = say(session, PAGE)
    for _ in range(3):
        turn(session)
    session.log.append(ViewEdited((Mask((f"{question.seq}.0",)),), "user", "not needed"))
    for _ in range(2):
        turn(session)

    assert asked(double) == [{"previous_message_id": each} for each in (None, "msg_1", "msg_2", "msg_3", "msg_4")]
    found = [reply.diagnosis and (reply.diagnosis.found, reply.diagnosis.reason) for reply in replies(session)]
    assert found == [None, ("same", ""), ("same", ""), ("changed", "messages_changed"), ("same", "")]
    assert [check.agrees for check in cache_checks(session.log.events())] == [True] * 4
    missed = replies(session)[3].diagnosis
    assert missed is not None
    assert missed.missed is not None
    assert missed.missed > 5_000
    numbers = range(1, len(double.bodies) + 1)
    past = [past_request(session.log, number, session.environment.blobs.get) for number in numbers]
    assert [(each.verified, msgspec.json.decode(each.request.body)) for each in past] == [(True, body) for body in double.bodies]
    # What is exported does not ask on behalf of others.
    assert b"diagnostics" not in next_request(session.log.view, session.environment.blobs.get).body


@pytest.mark.states("PV-56")
def test_a_change_that_nobody_expected_is_a_disagreement() -> None:
    double = StrictProvider([[says("Yes.")]])
    session = answered_by(strict_session(double, "claude-opus-4-8"), DirectlyAnswered(double))
    say(session, PAGE)
    turn(session)
    double.now += 400
    say(session, "And?")
    turn(session)
    (check,) = cache_checks(session.log.events())

    assert (check.agrees, check.read) == (False, 0)
    assert check.expected > 5_000


@pytest.mark.states("PV-56")
def test_a_server_at_another_address_and_another_model_and_a_side_call_get_no_field_that_they_may_refuse() -> None:
    double = StrictProvider([[says("Yes.")]])
    session = strict_session(double, "claude-opus-4-8")
    for words in ("one", "two"):
        say(session, words)
        turn(session)
    assert asked(double) == ["nothing"] * 2
    assert [reply.diagnosis for reply in replies(session)] == [None] * 2
    assert list(cache_checks(session.log.events())) == []

    script = DirectScript(*(ModelReplied((Text("yes", "assistant"),), stop="end_turn", message=f"resp_{number}") for number in (1, 2)))
    older = answered_by(strict_session(double, "gpt-5.5"), script)
    for words in ("one", "two"):
        say(older, words)
        turn(older)
    assert all(b"prompt_cache_options" not in request.body and b"diagnostics" not in request.body for request in script.requests)


@pytest.mark.states("PV-57", "PV-90")
def test_openai_is_asked_from_the_second_call_on_and_a_switch_of_models_begins_anew() -> None:
    hit, miss = CacheDiagnosis("same", "cache_hit"), CacheDiagnosis("changed", "tools_changed", 4_000)
    said = [(hit, 0), (hit, 0), (miss, 0), (None, 0)]
    script = DirectScript(
        *(
            ModelReplied(
                (Text("yes", "assistant"),),
                stop="end_turn",
                message=f"resp_{number}",
                usage=Usage(input=10_000, cache_read=read),
                diagnosis=diagnosis,
            )
            for number, (diagnosis, read) in enumerate(said, 1)
        )
    )
    session = answered_by(strict_session(StrictProvider(), "gpt-6-sol"), script)
    for words in ("one", "two", "three", "four"):
        say(session, words)
        turn(session)
    bodies = [msgspec.json.decode(request.body) for request in script.requests]

    compared = [body.get("prompt_cache_options") for body in bodies]
    assert compared == [None, *({"comparison_response_id": f"resp_{number}"} for number in (1, 2, 3))]
    assert not any("prompt_cache_retention" in body for body in bodies)
    assert [accept(PromptCacheOptions, options) for options in compared[1:]] == compared[1:]
    # What is said without having been asked is not a comparison.
    assert [reply.diagnosis for reply in replies(session)] == [None, hit, miss, None]
    assert [check.agrees for check in cache_checks(session.log.events())] == [False, False, None]
    assert session.derived.cache.comparable_reply("gpt-6-sol") == "resp_4"
    assert session.derived.cache.comparable_reply("gpt-6.1-sol") == ""


@pytest.mark.states("PV-55")
def test_what_a_request_wrote_to_the_cache_is_read_by_the_next_one_of_every_model_and_behind_many_blocks() -> None:
    many = [calls("cat", path=f"{number}.py") for number in range(15)]
    for model in ("claude-opus-5-5", "claude-sonnet-5", "claude-opus-4-7", "claude-haiku-4-5"):
        double = StrictProvider([[calls("ls", path=".")], many, [calls("ls", path=".")], many, many])
        session = strict_session(double, model)
        say(session, PAGE)
        for _ in range(6):
            turn(session)
        bills = [record.billed[0] for record in double.records]
        behind = [bill.read - before.read - before.written - before.written_long for before, bill in pairwise(bills)]
        assert (model, double.counts.refused, [tokens >= 0 for tokens in behind]) == (model, {}, [True] * 5)
        assert all(started.breakpoints for started in _calls(session))


def _calls(session: Session) -> list[CallStarted]:
    return [event.body for event in session.log.events() if isinstance(event.body, CallStarted)]
