"""A session at work in memory: any profile, any model, a scripted provider."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

from palimpsest.core.events import CallStarted, Event, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.policy import Answer, Ask, Policy, Save, Want, run_steps, steps_of
from palimpsest.core.ports import Provider
from palimpsest.core.situation import Situation
from palimpsest.engine.flow import answer_without_model, carry_out
from palimpsest.engine.moments import Looked
from palimpsest.engine.session import Environment, Session
from palimpsest.profiles.profile import Profile
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.cards import card

Result = TypeVar("Result")
START = 1_700_000_000_000
NOTHING = Usage()


def work(profile: Profile, model: str = "claude-sonnet-4-5", session: str = "s", *, clock: FixedClock | None = None) -> Session:
    """A new session under a profile."""
    around = Environment(MemorySessions(), MemoryBlobs(), clock or FixedClock(START, 1_000))
    return Session.create(SessionOpened(session, cwd="/repo"), profile, card(model), around)


def say(session: Session, text: str) -> Event:
    """The user says something."""
    return session.record(UserSaid((Text(text),)))


def reply(session: Session, *parts: Text | ToolCall, usage: Usage = NOTHING) -> Event:
    """A call is made and the model replies."""
    started = session.record(CallStarted(session.card.name, session.card.wire, estimate=session.counter.raw(session.log.view)))
    return session.record(ModelReplied(parts, call=started.seq, usage=usage, stop="end_turn"))


def use(session: Session, call_id: str, tool: str, args: str, output: str, *, exit_code: int | None = None) -> tuple[Event, Event]:
    """The model calls a tool and gets its result."""
    asked = reply(session, ToolCall(call_id, tool, args))
    returned = session.record(ToolReturned(ToolResult(call_id, (Text(output),)), tool=tool, exit=exit_code))
    return asked, returned


def first_ask(policy: Policy, situation: Situation) -> Ask:
    """What a plan asks a model first; files are not there and everything is kept."""
    steps = steps_of(policy.plan(situation))
    want = next(steps)
    while not isinstance(want, Ask):
        want = steps.send("kept" if isinstance(want, Save) else None)
    return want


def offline(session: Session, steps: Generator[Want, Answer, Result]) -> Result:
    """Drive steps with no model at hand."""
    return run_steps(steps, lambda want: answer_without_model(session, want))


def online(session: Session, steps: Generator[Want, Answer, Looked], provider: Provider) -> Looked:
    """Drive steps with a scripted model."""
    return asyncio.run(carry_out(steps, session, provider))
