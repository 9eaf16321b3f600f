"""Replays a recording under a profile, call by call, as if the profile had been at work when it was recorded."""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from palimpsest.core.events import ContextStated, Event, ModelReplied, Statement, ToolReturned, TurnEnded, UserSaid
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.policy import run_steps
from palimpsest.core.situation import Moment
from palimpsest.core.sizes import palimpsest_size
from palimpsest.engine.flow import answer_without_model
from palimpsest.lab.bystander import Bystander
from palimpsest.lab.needs import Names
from palimpsest.lab.outcome import Outcome, Reread
from palimpsest.lab.padding import padding
from palimpsest.lab.recording import Arrived, Recording, Step
from palimpsest.lab.rereads import Missing, source_of
from palimpsest.lab.stage import Asking, Stage
from palimpsest.profiles.profile import Profile
from palimpsest.wire.cards import ModelCard

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
    asking: Asking | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Outcome:
    """What becomes of a recording under a profile; `names` of the same recording may be shared between replays.

    With `asking` a real model writes the summaries. Without, those of profiles that imitate a program are imitated.
    """
    names = names or Names(recording.steps)
    run = _Run(Stage(recording, names, profile, card, ttl, asking=asking), names, _unseen(recording))
    for step in recording.steps:
        run.take(step)
        if tell is not None:
            tell(step.number + 1, len(recording.steps))
    return run.outcome(timing=timing)


class _Run:
    """A replay under way."""

    def __init__(self, stage: Stage, names: Names, head: tuple[Statement, ...]) -> None:
        self._stage = stage
        self._profile = stage.session.profile
        self._needs = names.needs
        self._by = Bystander(stage, names)
        self._head = head
        self._rereads: list[Reread] = []
        self._offloads = 0
        self._again = 0

    def take(self, step: Step) -> None:
        """One recorded call, with what arrived before it and what follows from it."""
        stage = self._stage
        stage.step = step.number
        stage.outside.clock.time = step.at
        if not step.number and not any(isinstance(each.body, ContextStated) and each.body.head is not None for each in step.arrived):
            stage.session.record(ContextStated(head=self._head))
        opened = False
        for arrived in step.arrived:
            if step.turn and not opened and isinstance(arrived.body, UserSaid) and not arrived.body.steering:
                opened = True
                self._look("turn_starts", incoming=_tokens(arrived.body, stage))
            self._arrive(arrived)
        self._look("before_call")
        for missing in self._missing(step):
            self._read_again(step, missing)
        self._fit()
        self._by.map(stage.call(step.reply, step.output, "turn"), step.seq)
        self._look("after_call")
        if step.ends:
            stage.session.record(TurnEnded())
            self._look("turn_ends")
        self._by.watch()

    def outcome(self, *, timing: bool) -> Outcome:
        """All that was found."""
        stage = self._stage
        self._by.check()
        return Outcome(
            profile=self._profile.name,
            calls=tuple(stage.calls),
            edits=tuple(self._by.edits),
            rereads=tuple(self._rereads),
            census=self._by.census(),
            offloads=self._offloads,
            invalid=self._by.invalid,
            refused=self._by.refused,
            faults=tuple(self._by.faults),
            overflows=stage.overflows,
            too_long=sum(call.tokens > stage.session.card.window for call in stage.calls),
            plan_ms=stage.plan_seconds * 1_000 if timing else None,
            stopped=stage.stopped,
        )

    def _look(self, moment: Moment, incoming: int = 0) -> None:
        self._by.note(self._stage.look(moment, incoming))

    def _arrive(self, arrived: Arrived) -> None:
        """Record what arrived; a large result is bounded first, as the profile does it."""
        stage, body = self._stage, arrived.body
        if isinstance(body, ToolReturned):
            event = self._return(body)
        elif isinstance(body, ContextStated) and body.head is not None:
            event = stage.session.record(replace(body, head=(*self._head[:-1], *body.head)))
        else:
            event = stage.session.record(body)
        self._by.map(event, arrived.seq)

    def _return(self, returned: ToolReturned) -> Event:
        stage = self._stage
        bounded = run_steps(self._profile.arrival(stage.session.card)(returned), lambda want: answer_without_model(stage.session, want))
        stage.outside.returned(returned.result)
        event = stage.session.record(bounded)
        if bounded.result is not returned.result:
            self._offloads += 1
            stage.sight.look(stage.session.log.view)
            stage.sight.beyond(f"{event.seq}.0", returned.result)
        return event

    def _missing(self, step: Step) -> list[Missing]:
        need = self._needs[step.number]
        if not need.names and not need.edited:
            return []
        self._stage.sight.look(self._stage.session.log.view)
        return self._stage.sight.missing(need)

    def _read_again(self, step: Step, missing: Missing) -> None:
        """One more call that fetches what was hidden, and its result."""
        stage = self._stage
        self._again += 1
        call_id = f"again_{self._again}"
        call = replace(missing.call, call_id=call_id, ref="")
        self._fit()
        output = stage.measure.scaled(palimpsest_size(call))
        asked = stage.call(ModelReplied((call,), stop="tool_use"), output, "reread")
        result = ToolResult(call_id, missing.content.parts)
        event = self._return(ToolReturned(result, tool=call.tool))
        recorded = self._by.recorded(source_of(missing))
        self._by.map(asked, recorded)
        self._by.map(event, recorded)
        tokens = stage.counter.item(stage.session.log.view.items[-1])
        self._rereads.append(Reread(step.number, stage.now, missing.names, recorded, tokens))
        self._look("before_call")

    def _fit(self) -> None:
        """What is longer than the window is refused by the provider, and the profile may do something about it."""
        stage = self._stage
        if stage.too_long():
            stage.overflows += 1
            if self._profile.overflow == "fold":
                self._look("overflow")


def _tokens(said: UserSaid, stage: Stage) -> int:
    counter = stage.session.counter
    return sum(counter.scaled(counter.rule(part)) for part in said.parts)


def _unseen(recording: Recording) -> tuple[Statement, ...]:
    """A head of three blocks, as programs have it, that weighs what the recording does not show."""
    small = sum(palimpsest_size(Text(text)) for text in (_OPENING, _CLOSING))
    raw = round(recording.measure.unseen / recording.measure.factor) - small
    text = padding(_FILLER, raw) or _FILLER.strip()
    return tuple(Statement(f"{UNSEEN}_{number}", text, "system") for number, text in enumerate((_OPENING, text, _CLOSING)))
