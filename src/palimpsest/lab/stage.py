"""A session at work with a simulated provider: everything it sends is billed, and what its plans ask for is imitated."""

from collections.abc import Callable
from time import perf_counter
from typing import Literal, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, PromptTooLong, TooFull
from palimpsest.core.events import CallStarted, Event, ModelReplied, SessionOpened, SideCalled, Usage
from palimpsest.core.items import Item, Text, ToolCall, text_of
from palimpsest.core.policy import Answer, Ask, Want, run_steps
from palimpsest.core.situation import Moment
from palimpsest.core.sizes import palimpsest_size
from palimpsest.core.token_counter import TokenCounter
from palimpsest.engine.flow import answer_without_model
from palimpsest.engine.moments import Looked, look
from palimpsest.engine.session import Session
from palimpsest.lab.imitation import Manner, Retelling, drawn, manner_of, reply_to
from palimpsest.lab.needs import Names
from palimpsest.lab.outcome import Called, Purpose
from palimpsest.lab.outside import Outside
from palimpsest.lab.recording import Recording
from palimpsest.lab.rereads import Sight
from palimpsest.lab.till import Till
from palimpsest.profiles.profile import Profile
from palimpsest.wire.caching import anchored
from palimpsest.wire.cards import ModelCard
from palimpsest.wire.prices import cost
from palimpsest.wire.request import MarkRule

Asking: TypeAlias = Callable[[Session, Ask], ModelReplied]
"""Asks a real model what a plan wants to know."""

_RULES: dict[str, MarkRule] = {rule: rule for rule in ("none", "palimpsest", "claude-code", "claude-code-2.1.325", "opencode")}


class Stage:
    """Where one recording is played under one profile."""

    def __init__(
        self,
        recording: Recording,
        names: Names,
        profile: Profile,
        card: ModelCard,
        ttl: Literal["5m", "1h"],
        *,
        asking: Asking | None = None,
    ) -> None:
        # A window is all that counts: with a limit for the prompt alone the same formula would trigger elsewhere for some cards.
        card = replace(card, input_limit=None)
        self.measure = recording.measure
        self.outside = Outside(recording.blobs)
        self.outside.clock.time = recording.steps[0].at if recording.steps else 0
        opened = SessionOpened(recording.session, cwd=recording.cwd)
        self.session = Session.create(opened, profile, card, self.outside.surroundings())
        self.session.params = replace(self.session.params, ttl=ttl)
        self.session.witness.ask_for_names(names.shown, names.told)
        self.counter = TokenCounter(palimpsest_size, self.measure.factor, drops_cached=card.cache_edits)
        self.till = Till(card, self.counter.item, ttl)
        self.sight = Sight(names)
        self.manner = manner_of(profile.name)
        self._asking = asking
        self.calls: list[Called] = []
        self.step = 0
        self.before = self.session.log.view
        self.plan_seconds = 0.0
        self.overflows = 0
        self.stopped = ""
        self._params = Raw(b'{"ttl":"1h"}' if ttl == "1h" else b"{}")
        self._asked = 0
        self._retelling: Retelling | None = None

    @property
    def now(self) -> int:
        """The time of the recording."""
        return self.outside.clock.now()

    def look(self, moment: Moment, incoming: int = 0) -> Looked:
        """Let the policies of the profile look; a view that nothing can make small enough stays as it is."""
        began = perf_counter()
        self.before = self.session.log.view
        try:
            return run_steps(look(self.session, moment, incoming=incoming), self._answer)
        except TooFull as error:
            self.stopped = self.stopped or error.message
            return Looked()
        finally:
            self.plan_seconds += perf_counter() - began

    def call(self, reply: ModelReplied, output: int, purpose: Purpose) -> Event:
        """Send the view as it is, be billed, and get a reply."""
        session, view = self.session, self.session.log.view
        params = anchored(session.params, session.witness.cache, self.now)
        slip = self.till.turn(view, params, self.now)
        usage = replace(slip.usage, output=output)
        self._book(usage, purpose)
        card = session.card
        # A digest says that these are all the marks there were.
        started = CallStarted(card.name, card.wire, self._params, digest="replayed", estimate=session.counter.raw(view), marks=slip.marks)
        event = session.record(started)
        replied = session.record(replace(reply, call=event.seq, usage=usage, model=card.name, foreign=Raw(b"null")))
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self.outside.called(part)
        return replied

    def too_long(self) -> bool:
        """Whether the view is longer than the window, by the measure that counts."""
        return self.till.size(self.session.log.view) > self.session.card.window

    def _book(self, usage: Usage, purpose: Purpose) -> None:
        self.calls.append(Called(self.step, self.now, purpose, usage, cost(usage, self.session.card)))

    def _answer(self, want: Want) -> Answer:
        """What a plan wants: a summary comes from a model where there is one, is imitated where it can be, and is refused else."""
        if not isinstance(want, Ask) or (self.manner is None and self._asking is None):
            return answer_without_model(self.session, want)
        if want.model and want.model != self.session.card.name:
            raise NoModel(f"the replay has no {want.model}; it goes on with the model it has", where=self.session.log.session)
        session, view = self.session, self.session.log.view
        head, items = _asked_items(want, view.head, view.seq)
        if self._tokens((*head, *items)) > session.card.window:
            raise PromptTooLong("the request for the summary is too long", where=session.log.session)
        usage = self.till.aside(head, items, _RULES.get(want.marks, session.params.mark_rule), self.now).usage
        reply = self._reply(want, usage)
        self._book(reply.usage, "summary")
        text = "\n".join(text_of(part) for part in reply.parts)
        session.record(SideCalled(want.purpose, session.card.name, reply.usage, text))
        return reply

    def _reply(self, want: Ask, usage: Usage) -> ModelReplied:
        """A real reply, billed as if it had shared our cache, or one in the manner of the imitated program."""
        session, manner, factor = self.session, self.manner, self.measure.factor
        if self._asking is not None:
            reply = self._asking(session, want)
            written = reply.usage.output or self.measure.scaled(sum(map(palimpsest_size, reply.parts)))
            return replace(reply, usage=replace(usage, output=written))
        if manner is None:
            raise NoModel("no model is at hand", where=session.log.session)
        usage = replace(usage, output=min(manner.written, want.reply or manner.written))
        return reply_to(want, self._summary(manner), session.card, usage, round(manner.kept / factor))

    def _tokens(self, items: tuple[Item, ...]) -> int:
        return sum(self.counter.item(item) for item in items)

    def _summary(self, manner: Manner) -> str:
        """A summary that remembers as much as those of the imitated program do."""
        self._asked += 1
        marker = f"summary {self._asked} of this session"
        evidence = self.session.witness.evidence
        self.sight.look(self.session.log.view)
        self.sight.draw(marker, drawn(self.sight.visible(), manner, evidence))
        self._retelling = self._retelling or Retelling(manner, self.measure.factor)
        return self._retelling.next(marker, self.session)


def _asked_items(want: Ask, head: tuple[Item, ...], seq: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Head and items of the request that asks, as the engine would make it."""
    if want.system:
        head = (Item(f"{seq + 1}.0", "context", Text(want.system, "system"), "summariser"),)
    elif not want.head:
        head = ()
    last = (Item(f"{seq + 1}.1", "user", Text(want.prompt)),) if want.prompt else ()
    return head, (*want.items, *last)
