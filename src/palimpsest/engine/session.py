"""A session at work: its log, the settings it works under, and what policies may look at."""

from threading import RLock
from typing import Self

import msgspec
from msgspec.structs import replace

from palimpsest.audit.derived import AuditProjections
from palimpsest.audit.tools.calls import declared_classes
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, ModelSwitched, Pinned, ProfileChanged, SessionOpened
from palimpsest.core.log.log import Log
from palimpsest.core.log.recovery import recover
from palimpsest.core.log.undo import plan_undo
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.engine.environment import Environment, RequestEncoder
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard, card, recorded_card
from palimpsest.wire.request import Params, Tool

_encode = msgspec.json.Encoder().encode


class Session:
    """One log under one profile, for one model. Everything that happens goes through `log.append`.

    The projections of audit are registered with the log: `derived` when it was opened, else here.
    """

    def __init__(
        self,
        log: Log,
        profile: Profile,
        model: ModelCard,
        environment: Environment,
        tools: tuple[Tool, ...] = (),
        *,
        derived: AuditProjections | None = None,
    ) -> None:
        self.log = log
        # Policies and syncs run in threads while input is recorded on the event loop.
        log.share(RLock())
        self.profile = profile
        self.environment = environment
        self.params: Params = replace(profile.params, cache_key=log.session)
        self._model = model
        self._encoder: tuple[ModelCard, RequestEncoder] | None = None
        self._tools_address: tuple[tuple[Tool, ...], str] = ((), "")
        if derived is None:
            derived = _derived(profile, model, environment, tools)
            log.register(derived)
        self._derived = derived
        self.tools = tools

    @classmethod
    def create(
        cls, opened: SessionOpened, profile: Profile, model: ModelCard, environment: Environment, tools: tuple[Tool, ...] = ()
    ) -> Self:
        """A new session."""
        opened = replace(opened, profile=profile.name, model=model.name)
        derived = _derived(profile, model, environment, tools)
        return cls(Log.create(environment.store, opened, environment.clock, derived), profile, model, environment, tools, derived=derived)

    @classmethod
    def resume(cls, session: str, profile: Profile, model: ModelCard, environment: Environment, tools: tuple[Tool, ...] = ()) -> Self:
        """A session as it was left; what a crash left open is closed, and another model or profile than before is recorded."""
        derived = _derived(profile, model, environment, tools)
        log = Log.open(environment.store, session, environment.clock, write=True, derived=derived)
        try:
            recover(log)
            if log.view.profile != profile.name:
                log.append(ProfileChanged(profile.name, log.view.profile))
            if log.view.model != model.name:
                log.append(ModelSwitched(model.name, log.view.model))
            return cls(log, profile, model, environment, tools, derived=derived)
        except BaseException:
            log.close()
            raise

    @property
    def card(self) -> ModelCard:
        """The card of the model that answers now."""
        return self._model

    @property
    def derived(self) -> AuditProjections:
        """The projections of audit, up to date."""
        self.log.catch_up()
        return self._derived

    @property
    def counter(self) -> TokenCounter:
        """Counts tokens by the profile's rule, with the factor that the replies so far have taught."""
        return self.derived.metering.counter

    @property
    def budget(self) -> Budget:
        """The room that the model leaves under this profile."""
        return self.profile.budget(self.card)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools on offer."""
        return self._tools

    @tools.setter
    def tools(self, tools: tuple[Tool, ...]) -> None:
        self._tools = tools
        self.derived.offer(tools_bytes(tools), declared_classes(tools))

    @property
    def tools_tokens(self) -> int:
        """Tokens of the list of tools in a request."""
        return self.derived.tools_tokens

    @property
    def used(self) -> int:
        """Tokens that the next request would carry, as this profile counts."""
        return self.profile.count(self.log.view, self.counter, self.tools_tokens)

    def encoder(self, model: ModelCard, tools: tuple[Tool, ...], params: Params) -> RequestEncoder:
        """An encoder of requests to a model; it takes over what the last one to that model has encoded."""
        known = self._encoder
        if known is not None and known[0] is model:
            encoder = known[1].revised(params, tools)
        else:
            encoder = self.environment.encoder(model, tools, params, self.environment.blobs.get)
        self._encoder = (model, encoder)
        return encoder

    def keep_tools(self, tools: tuple[Tool, ...]) -> str:
        """The address of the blob with the declarations of tools, written once for each set of them."""
        if not tools:
            return ""
        if self._tools_address[0] != tools:
            self._tools_address = (tools, self.environment.blobs.put(_encode(tools)))
        return self._tools_address[1]

    def situation(
        self, moment: Moment, *, asked: str = "", incoming: int = 0, previous: Card | None = None, used: int | None = None
    ) -> Situation:
        """All that a policy may look at, now; `used` is given where it is better known than the view says."""
        with self.log.held():
            return self._situation(moment, asked, incoming, previous, used)

    def _situation(self, moment: Moment, asked: str, incoming: int, previous: Card | None, used: int | None) -> Situation:
        log, derived, budget = self.log, self.derived, self.budget
        # Each of these brings all projections up to the newest event, so that each is asked for once.
        counter, tools_tokens = self.counter, self.tools_tokens
        view, health = log.view, log.health
        known = (self.profile.count(view, counter, tools_tokens) if used is None else used) + incoming
        room = budget.block_at or budget.window
        forced = moment == "overflow" or 0 < room <= known
        return Situation(
            view=view,
            budget=budget,
            card=self.card,
            moment=moment,
            tokens=counter.sizes_of(view),
            used=known,
            now=self.environment.clock.now(),
            health=health,
            ledger=log.ledger,
            cache=derived.cache.value(),
            uses=derived.uses.value(),
            rent=derived.rent.value,
            evidence=derived.evidence.value(),
            asked=asked,
            tools_tokens=tools_tokens,
            parts=self.profile.parts,
            incoming=incoming,
            previous=previous,
            session=log.session,
            child=log.opened.opener is not None,
            may_fold=moment == "asked" or health.may_fold(self.profile.folds_per_turn, forced=forced),
        )

    def undo(self, seq: int, edits: tuple[int, ...] = (), why: str = "") -> tuple[Event, ...]:
        """Take back an edit and all that rests on it, unless the view would then no longer fit."""
        undoing = plan_undo(self.log, seq, edits, why)
        room = self.budget.block_at or self.budget.window
        tokens = self.counter.total(undoing.view) + self.tools_tokens
        if tokens > room:
            raise BadInput(f"without edit {seq} the view has {tokens:,} tokens and {room:,} fit; undo less, or fork before it")
        return tuple([self.log.append(body) for body in undoing.undone])

    def pin(self, *, ids: tuple[str, ...] = (), paths: tuple[str, ...] = (), on: bool = True) -> Event:
        """Keep items or files in the view whatever policies want, or stop doing so."""
        unknown = next((name for name in ids if self.log.find(name) is None), None)
        if unknown is not None:
            raise BadInput(f"there is no item {unknown} on this branch; `pal context` lists them", where=self.log.session)
        return self.log.append(Pinned(ids, paths, on))

    def fork(self, session: str, seq: int | None = None) -> "Session":
        """A new session that goes on from an event of this one."""
        derived = _derived(self.profile, self.card, self.environment, self.tools)
        log = self.log.fork(self.environment.store, session, seq, derived)
        return Session(log, self.profile, self.card, self.environment, self.tools, derived=derived)

    def switch(self, model: ModelCard) -> Event:
        """Go on with another model."""
        previous, self._model = self._model, model
        self.derived.card = model
        return self.log.append(ModelSwitched(model.name, previous.name))

    def change_profile(self, profile: Profile) -> Event:
        """Go on under another profile; what follows from the log by its rules is worked out again."""
        event = self.log.append(ProfileChanged(profile.name, self.profile.name))
        self.profile = profile
        self.params = replace(profile.params, cache_key=self.log.session)
        self._derived = _derived(profile, self.card, self.environment, self.tools)
        self.log.register(self._derived)
        return event

    def close(self) -> None:
        """Make everything durable and let the session go."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def named_card(self, name: str) -> ModelCard:
        """The card of a model that a plan names. Raises `BadInput` if there is none."""
        return self.card if name == self.card.name else card(name, self.environment.cards)


def tools_bytes(tools: tuple[Tool, ...]) -> list[bytes]:
    """What counts of each tool in a request: its schema and its description."""
    return [bytes(tool.schema) + tool.description.encode() for tool in tools]


def _derived(profile: Profile, model: ModelCard, environment: Environment, tools: tuple[Tool, ...]) -> AuditProjections:
    cards = tuple(environment.cards)
    derived = AuditProjections(model, lambda name: recorded_card(name, cards), profile.size_rule, profile.parts)
    derived.offer(tools_bytes(tools), declared_classes(tools))
    return derived
