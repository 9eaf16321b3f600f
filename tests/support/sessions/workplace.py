"""A session at work in memory: any profile, any model, a scripted provider."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from typing import Any, TypeVar

from palimpsest.agent.calls import carry_out, carry_out_now
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import CallStarted, Event, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.plans import Answer, Ask, Outcome, Plan, Policy, Proposal, Save, Situation, Want, run_steps, steps_of
from palimpsest.core.ports import Provider
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import ModelCard, card

Result = TypeVar("Result")
START = 1_700_000_000_000
NOTHING = Usage()


def work(profile: Profile, model: str | ModelCard = "claude-sonnet-4-5", session: str = "s", *, clock: FixedClock | None = None) -> Session:
    """A new session under a profile, for a model or the one of that name."""
    clock = clock or FixedClock(START, 1_000)
    around = Environment(MemorySessions(), MemoryBlobs(), clock, offload=inline, retries=NO_RETRIES, transcript=f"/logs/{session}.jsonl")
    return Session.create(SessionOpened(session, cwd="/repo"), profile, card(model) if isinstance(model, str) else model, around)


def say(session: Session, text: str) -> Event:
    """The user says something."""
    return session.log.append(UserSaid((Text(text),)))


def reply(session: Session, *parts: Text | ToolCall, usage: Usage = NOTHING) -> Event:
    """A call is made and the model replies."""
    started = session.log.append(CallStarted(session.card.name, session.card.wire, estimate=session.counter.raw(session.log.view)))
    return session.log.append(ModelReplied(parts, call=started.seq, usage=usage, stop="end_turn"))


def use(session: Session, call_id: str, tool: str, args: str, output: str, *, exit_code: int | None = None) -> tuple[Event, Event]:
    """The model calls a tool and gets its result."""
    asked = reply(session, ToolCall(call_id, tool, args))
    returned = session.log.append(ToolReturned(ToolResult(call_id, (Text(output),)), tool=tool, exit=exit_code))
    return asked, returned


def first_ask(policy: Policy, situation: Situation) -> Ask:
    """What a plan asks a model first; files are not there and everything is kept."""
    steps = steps_of(policy.plan(situation))
    want = next(steps)
    while not isinstance(want, Ask):
        want = steps.send("kept" if isinstance(want, Save) else None)
    return want


def run_plan(plan: Plan, answer: Callable[[Want], Answer | PalimpsestError]) -> Outcome:
    """Runs a plan to its end without an event loop."""
    return plan if isinstance(plan, tuple | Proposal) else run_steps(plan, answer)


def offline(session: Session, steps: Generator[Want, Answer, Result]) -> Result:
    """Drive steps with no model at hand."""
    return carry_out_now(steps, session)


def online(session: Session, steps: Generator[Want, Answer, Result] | Coroutine[Any, Any, Result], provider: Provider) -> Result:
    """Drive steps, or what the engine does by itself, with a scripted model; the session keeps it from here on."""
    answered_by(session, provider)
    return asyncio.run(carry_out(steps, session) if isinstance(steps, Generator) else steps)


def answered_by(session: Session, provider: Provider) -> Session:
    """The session with a provider that stands behind every card."""
    session.environment = replace(session.environment, provider=lambda *_: provider)
    return session
