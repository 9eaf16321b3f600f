"""One call: policies run, the request is sent, the reply is recorded, and a request that was too long is folded and sent again."""

import asyncio
from dataclasses import dataclass
from typing import Literal

import msgspec
import pytest
from workplace import answered_by, say, use, work

from palimpsest.agent.calls import call
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.session import Session
from palimpsest.core.budget import Budget
from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import CallStarted, Failed, ModelReplied
from palimpsest.core.items import Fold, Keep, Put, Text
from palimpsest.core.plans import Moment, Plan, Proposal, Situation
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.encode import past_request


@dataclass(frozen=True)
class FoldAll:
    """Folds everything but the first item."""

    name: str = "fold_all"
    moments: frozenset[Moment] = frozenset({"overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        items = situation.view.items
        return Proposal((Fold(items[0].id, items[-1].id, (Keep(items[0].id), Put("summary", Text("short")))),), notices=("folded",))


def session_of(profile: Profile) -> Session:
    session = work(profile)
    say(session, "read a.py")
    use(session, "c1", "Read", '{"file_path":"a.py"}', "x = 1\n" * 900)
    return session


def profile(block_at: int = 190_000, overflow: Literal["stop", "fold"] = "fold") -> Profile:
    return Profile("test", (FoldAll(),), lambda card: Budget(card.window, block_at=block_at), overflow=overflow)


def run(session: Session, provider: Scripted) -> ModelReplied:
    return asyncio.run(call(answered_by(session, provider)))


def test_a_request_is_recorded_before_it_is_sent_and_can_be_shown_again() -> None:
    session = session_of(profile())
    provider = Scripted("done")
    assert run(session, provider).parts == (Text("done", "assistant"),)
    past = past_request(session.log, 2, session.environment.blobs.get)
    assert past.verified
    assert past.request.body == provider.requests[0].body


def test_a_request_that_does_not_fit_is_not_sent() -> None:
    session = session_of(profile(block_at=100, overflow="stop"))
    provider = Scripted("done")
    with pytest.raises(PromptTooLong, match="prompt is too long: "):
        run(session, provider)
    assert provider.requests == []


def test_a_view_that_does_not_fit_is_folded_before_the_request_is_sent() -> None:
    session = session_of(profile(block_at=100))
    provider = Scripted("done")
    assert run(session, provider).parts == (Text("done", "assistant"),)
    assert len(provider.requests) == 1
    # Behind the line of the fold for the user.
    assert session.log.view.ids == ("1.0", "5.0.1", "8.0")


def test_a_request_that_the_provider_rejects_as_too_long_is_folded_and_sent_again() -> None:
    session = session_of(profile())
    provider = Scripted(PromptTooLong("too long", gap=10), "done")
    runs: list[tuple[Moment, PolicyRun]] = []
    reply = asyncio.run(call(answered_by(session, provider), after_policies=lambda *each: runs.append(each)))
    assert reply.parts == (Text("done", "assistant"),)
    assert [(moment, ran.notices) for moment, ran in runs] == [("before_call", ()), ("overflow", ("folded",)), ("after_call", ())]
    assert len(provider.requests[1].body) < len(provider.requests[0].body)
    bodies = [event.body for event in session.log.events()]
    assert [body.error for body in bodies if isinstance(body, Failed)] == ["too_long"]
    assert sum(isinstance(body, CallStarted) for body in bodies) == 3


def test_a_profile_may_end_the_turn_instead() -> None:
    session = session_of(profile(overflow="stop"))
    provider = Scripted(PromptTooLong("too long"), "done")
    with pytest.raises(PromptTooLong):
        run(session, provider)
    assert len(provider.requests) == 1


def test_a_failure_of_the_provider_is_recorded_and_reaches_the_caller() -> None:
    session = session_of(profile())
    with pytest.raises(ProviderError):
        run(session, Scripted(ProviderError("overloaded", status=529)))
    started, last = (session.log.event(session.log.tip - 1), session.log.event(session.log.tip))
    assert isinstance(started.body, CallStarted)
    assert last.body == Failed("call", "provider", "overloaded", call=started.seq, purpose="turn")


def test_the_reply_limit_is_at_most_the_free_room() -> None:
    wide = Profile("wide", (), lambda card: Budget(card.window))
    session = work(wide)
    say(session, "word " * 140_000)
    estimate = session.used
    provider = Scripted("done")
    run(session, provider)
    body = msgspec.json.decode(provider.requests[0].body)
    assert 1_024 < body["max_tokens"] < 64_000
    assert body["max_tokens"] + estimate == 200_000
