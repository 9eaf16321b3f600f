"""A session at work: its log, what policies may look at, and everything that is recorded through it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace

from palimpsest.audit.tools import declared_classes
from palimpsest.audit.witness import Witness
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Body, Event, ModelReplied, ModelSwitched, Pinned, Rewound, SessionOpened
from palimpsest.core.log import Log
from palimpsest.core.policy import Look
from palimpsest.core.ports import Blobs, Clock, SessionStore
from palimpsest.core.recovery import recover
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.core.sizes import SIZE_RULES, tool_list_size
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.undo import plan_undo
from palimpsest.profiles.profile import Profile
from palimpsest.wire.cards import CARDS, ModelCard, card
from palimpsest.wire.request import Params, Tool


def nothing_there(_: Look) -> str | None:
    """A world in which there is nothing to see."""
    return None


@dataclass(frozen=True, slots=True)
class Environment:
    """What a session has around it: where logs, blobs and files go, the time, what can be looked at, and which models are known."""

    store: SessionStore
    blobs: Blobs
    clock: Clock
    keep: Callable[[str, bytes], str] | None = None
    look: Callable[[Look], str | None] = nothing_there
    cards: Iterable[ModelCard] = CARDS


class Session:
    """One log under one profile, for one model."""

    def __init__(self, log: Log, profile: Profile, model: ModelCard, around: Environment, tools: tuple[Tool, ...] = ()) -> None:
        self.log = log
        self.profile = profile
        self.card = model
        self.environment = around
        self.tools = tools
        self.params: Params = replace(profile.params, cache_key=log.session)
        self.counter = self._counter()
        self._witness_again()

    @classmethod
    def create(cls, opened: SessionOpened, profile: Profile, model: ModelCard, around: Environment, tools: tuple[Tool, ...] = ()) -> Self:
        """A new session."""
        opened = replace(opened, profile=profile.name, model=model.name)
        return cls(Log.create(around.store, opened, around.clock), profile, model, around, tools)

    @classmethod
    def resume(cls, session: str, profile: Profile, model: ModelCard, around: Environment, tools: tuple[Tool, ...] = ()) -> Self:
        """A session as it was left; what a crash left open is closed."""
        log = Log.open(around.store, session, around.clock, write=True)
        try:
            recover(log)
            return cls(log, profile, model, around, tools)
        except BaseException:
            log.close()
            raise

    @property
    def budget(self) -> Budget:
        """The room that the model leaves under this profile."""
        return self.profile.budget(self.card)

    @property
    def tools_tokens(self) -> int:
        """What the list of tools weighs in a request."""
        return self.counter.scaled(sum(tool_list_size(bytes(tool.schema) + tool.description.encode()) for tool in self.tools))

    @property
    def used(self) -> int:
        """What the next request would carry, as this profile counts."""
        return self.profile.count(self.log.view, self.counter, self.tools_tokens)

    def record(self, body: Body) -> Event:
        """Append an event, and let everything that follows from events follow."""
        event = self.log.append(body)
        if isinstance(body, Rewound):
            self._witness_again()
        else:
            self.witness.take(event, self.log.view)
        if isinstance(body, ModelReplied):
            self.counter.factor = self._factor()
        return event

    def situation(
        self, moment: Moment, *, asked: str = "", incoming: int = 0, previous: Card | None = None, used: int | None = None
    ) -> Situation:
        """All that a policy may look at, now; `used` is told where it is better known than the view says."""
        log, view, witness, budget = self.log, self.log.view, self.witness, self.budget
        known = (self.used if used is None else used) + incoming
        room = budget.block_at or budget.window
        forced = moment == "overflow" or 0 < room <= known
        return Situation(
            view=view,
            budget=budget,
            card=self.card,
            moment=moment,
            tokens=self.counter.sizes_of(view),
            used=known,
            now=self.environment.clock.now(),
            health=log.health,
            ledger=log.ledger,
            cache=witness.cache,
            uses=witness.uses,
            rent=witness.rent,
            evidence=witness.evidence,
            asked=asked,
            tools_tokens=self.tools_tokens,
            parts=self.profile.parts,
            incoming=incoming,
            previous=previous,
            session=log.session,
            child=log.opened.opener is not None,
            may_fold=moment == "asked" or log.health.may_fold(self.profile.folds, forced=forced),
        )

    def undo(self, seq: int, edits: tuple[int, ...] = (), why: str = "") -> tuple[Event, ...]:
        """Take back an edit and all that rests on it, unless the view would then no longer fit."""
        undoing = plan_undo(self.log, seq, edits, why)
        room = self.budget.block_at or self.budget.window
        tokens = self.counter.total(undoing.view) + self.tools_tokens
        if tokens > room:
            raise BadInput(f"without edit {seq} the view has {tokens:,} tokens and {room:,} fit; undo less, or fork before it")
        return tuple([self.record(body) for body in undoing.undone])

    def pin(self, *, ids: tuple[str, ...] = (), paths: tuple[str, ...] = (), on: bool = True) -> Event:
        """Keep items or files in the view whatever policies want, or stop doing so."""
        unknown = next((name for name in ids if self.log.find(name) is None), None)
        if unknown is not None:
            raise BadInput(f"there is no item {unknown} on this branch; `pal context` lists them", where=self.log.session)
        return self.record(Pinned(ids, paths, on))

    def fork(self, session: str, seq: int | None = None) -> "Session":
        """A new session that goes on from an event of this one."""
        return Session(self.log.fork(self.environment.store, session, seq), self.profile, self.card, self.environment, self.tools)

    def switch(self, model: ModelCard) -> Event:
        """Go on with another model."""
        event = self.record(ModelSwitched(model.name, self.card.name))
        self.card = model
        self.counter = self.witness.counter = self._counter()
        self.witness.card = model
        return event

    def close(self) -> None:
        """Make everything durable and let the session go."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def named_card(self, name: str) -> ModelCard:
        """The card of a model that a plan names."""
        return card(name, self.environment.cards)

    def _counter(self) -> TokenCounter:
        return TokenCounter(SIZE_RULES[self.profile.size], self._factor(), drops_cached=self.card.cache_edits)

    def _factor(self) -> float:
        """Only our own estimate learns from what providers report; the others count as their originals do."""
        return self.log.ledger.calibration.factor(self.card.name) if self.profile.size == "palimpsest" else 1.0

    def _witness_again(self) -> None:
        declared = declared_classes(self.tools)
        self.witness = Witness.of(self.log, self.counter, self.card, self.tools_tokens, self.profile.parts, declared=declared)
        self.log.memo = self.witness.memo
