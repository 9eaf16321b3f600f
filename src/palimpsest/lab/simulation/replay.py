"""Replays a recording under a profile, call by call, as if the profile had been at work when it was recorded."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Event, ModelReplied, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.policy import complete
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.engine.plans import carry_out_now
from palimpsest.lab.outcome import Outcome, Purpose, Reread
from palimpsest.lab.simulation.imitation import padding
from palimpsest.lab.simulation.observer import Observer
from palimpsest.lab.simulation.recording import Arrived, Recording, Step
from palimpsest.lab.simulation.rereads import Missing, Names, source_of
from palimpsest.lab.simulation.simulation import Simulation
from palimpsest.lab.simulation.unsent import RealSummaries
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard

UNSEEN = "unseen"
_FILLER = "What this program sent with every request and did not record: its instructions and its list of tools. "
_OPENING = "You work on the task of the user with the tools that are at hand."
_CLOSING = "Today is the day of the recording."


def replay(
    recording: Recording,
    profile: Profile,
    card: ModelCard,
    *,
    ttl: Literal["5m", "1h"] = "5m",
    names: Names | None = None,
    timing: bool = False,
    real: RealSummaries | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Outcome:
    """What becomes of a recording under a profile; `names` of the same recording may be shared between replays.

    With `real` a model writes the summaries. Without, those of profiles that imitate a program are imitated.
    """
    names = names or Names(recording.steps)
    run = _Run(Simulation(recording, names, profile, card, ttl, real=real), names, _unseen(recording))
    work = run.take_all(recording.steps, tell)
    # Only a real model makes a replay wait.
    if real is None:
        complete(work)
    else:
        asyncio.run(work)
    return run.outcome(timing=timing)


class _Run:
    """A replay under way."""

    def __init__(self, simulation: Simulation, names: Names, head: tuple[Statement, ...]) -> None:
        self._simulation = simulation
        self._session = simulation.session
        self._needs = names.needs
        self._observer = Observer(simulation, names)
        self._head = head
        self._rereads: list[Reread] = []
        self._offloads = 0
        self._again = 0
        self._step: Step | None = None
        self._missing: list[Missing] | None = None
        self._fetching: Missing | None = None
        simulation.answer = self._answer
        simulation.ran = self._observer.note

    async def take_all(self, steps: Sequence[Step], tell: Callable[[int, int], None] | None) -> None:
        """All recorded calls, in order."""
        for step in steps:
            await self._take(step)
            if tell is not None:
                tell(step.number + 1, len(steps))

    async def _take(self, step: Step) -> None:
        """One recorded call, with what arrived before it and what follows from it."""
        simulation, log = self._simulation, self._session.log
        simulation.step = step.number
        simulation.outside.clock.time = step.at
        if not step.number and not any(isinstance(each.body, ContextStated) and each.body.head is not None for each in step.arrived):
            log.append(ContextStated(head=self._head))
        opened = False
        for arrived in step.arrived:
            if step.turn and not opened and isinstance(arrived.body, UserSaid) and not arrived.body.steering:
                opened = True
                await simulation.start_turn(_tokens(arrived.body, simulation))
            self._arrive(arrived)
        self._step, self._missing = step, None
        while await self._call(step):
            pass
        if step.ends:
            await simulation.end_turn()
        self._observer.watch()

    async def _call(self, step: Step) -> bool:
        """One call through the engine; true if the model had to fetch something that was hidden, and is to be called again."""
        reply = await self._simulation.call()
        # Nothing is recorded between the start of a call and its reply.
        seq = (reply.call or 0) + 1
        missing, self._fetching = self._fetching, None
        if missing is None:
            self._observer.map(seq, step.seq)
            return False
        self._fetch(step, seq, missing)
        return True

    def outcome(self, *, timing: bool) -> Outcome:
        """All that was found."""
        simulation = self._simulation
        self._observer.check()
        return Outcome(
            profile=self._session.profile.name,
            calls=tuple(simulation.calls),
            edits=tuple(self._observer.edits),
            rereads=tuple(self._rereads),
            census=self._observer.census(),
            offloads=self._offloads,
            invalid=self._observer.invalid,
            refused=self._observer.refused,
            faults=tuple(self._observer.faults),
            overflows=simulation.billing.overflows,
            too_long=sum(call.tokens > self._session.card.window for call in simulation.calls),
            plan_ms=simulation.plan_seconds * 1_000 if timing else None,
            stopped=simulation.stopped,
        )

    def _answer(self, view: View) -> tuple[ModelReplied, int, Purpose]:
        """What the model says to a view: it fetches what the recorded reply needed and the view does not show, one thing at a time."""
        step = self._step
        if step is None:
            raise BadInput("a replay was asked for a reply before its first step")
        if self._missing is None:
            self._missing = self._hidden(step, view)
        if not self._missing:
            return step.reply, step.output, "turn"
        self._fetching = missing = self._missing.pop(0)
        self._again += 1
        call = replace(missing.call, call_id=f"again_{self._again}", ref="", given="")
        return ModelReplied((call,), stop="tool_use"), self._simulation.measure.scaled(palimpsest_size(call)), "reread"

    def _hidden(self, step: Step, view: View) -> list[Missing]:
        need = self._needs[step.number]
        if not need.names and not need.edited:
            return []
        self._simulation.sight.look(view)
        return self._simulation.sight.missing(need)

    def _fetch(self, step: Step, seq: int, missing: Missing) -> None:
        """The result of a call that fetched what was hidden."""
        simulation = self._simulation
        result = ToolResult(f"again_{self._again}", missing.content.parts)
        event = self._return(ToolReturned(result, tool=missing.call.tool))
        recorded = self._observer.recorded(source_of(missing))
        self._observer.map(seq, recorded)
        self._observer.map(event.seq, recorded)
        tokens = simulation.counter.item(self._session.log.view.items[-1])
        self._rereads.append(Reread(step.number, simulation.now, missing.names, recorded, tokens))

    def _arrive(self, arrived: Arrived) -> None:
        """Record what arrived; a large result is bounded first, as the profile does it."""
        log, body = self._session.log, arrived.body
        if isinstance(body, ToolReturned):
            event = self._return(body)
        elif isinstance(body, ContextStated) and body.head is not None:
            event = log.append(replace(body, head=(*self._head[:-1], *body.head)))
        else:
            event = log.append(body)
        self._observer.map(event.seq, arrived.seq)

    def _return(self, returned: ToolReturned) -> Event:
        session, simulation = self._session, self._simulation
        bounded = carry_out_now(session.profile.limiter(session.card)(returned), session)
        simulation.outside.returned(returned.result)
        event = session.log.append(bounded)
        if bounded.result is not returned.result:
            self._offloads += 1
            simulation.sight.look(session.log.view)
            simulation.sight.beyond(f"{event.seq}.0", returned.result)
        return event


def _tokens(said: UserSaid, simulation: Simulation) -> int:
    counter = simulation.session.counter
    return sum(counter.scaled(counter.rule(part)) for part in said.parts)


def _unseen(recording: Recording) -> tuple[Statement, ...]:
    """A head of three blocks, as programs have it, that weighs what the recording does not show."""
    small = sum(palimpsest_size(Text(text)) for text in (_OPENING, _CLOSING))
    raw = round(recording.measure.unseen / recording.measure.factor) - small
    text = padding(_FILLER, raw) or _FILLER.strip()
    return tuple(Statement(f"{UNSEEN}_{number}", text, "system") for number, text in enumerate((_OPENING, text, _CLOSING)))
