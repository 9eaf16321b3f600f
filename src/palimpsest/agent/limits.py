"""Limits of a turn: model calls, tool calls, seconds, US dollars and tokens, measured against the log."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.ledger import is_job_purpose, is_priced_apart
from palimpsest.core.log import Log
from palimpsest.core.spending import RUNNING, ChildRecord, Spending, total_of
from palimpsest.core.text import whole_number
from palimpsest.stores.home import Home
from palimpsest.wire.models import ModelCard, PriceBook, Tariff, total_usd
from palimpsest.wire.request import Params

LimitName: TypeAlias = Literal["max_calls", "max_tools", "max_seconds", "max_usd", "max_total_tokens", "price_unknown"]
"""The stop reason of a turn that reached a limit; `price_unknown` if there is a limit in dollars and a call has no known price."""
PRICED_APART: Final = "the tier, speed, place or search that requests ask for"
_NUMBERS: Final = ("calls", "tools", "seconds", "usd", "tokens")


class Limits(Struct, frozen=True):
    """The most that one turn may use; `None` means no limit. `calls` counts model calls, `tools` tool calls, `tokens` all of its calls."""

    calls: int | None = None
    tools: int | None = None
    seconds: float | None = None
    usd: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and isfinite(value) and value > 0):
                raise BadInput(f"the limit {name} must be a number above 0, not {value!r}")

    def check(self, card: ModelCard, params: Params) -> None:
        """Raise `BadInput` if there is a limit in dollars that cannot be kept: the price of the model, or of the tier, is not known."""
        if self.usd is None:
            return
        instead = "limit tokens instead (--max-tokens, max_tokens)"
        price_of_limit(card, self.usd, instead, "max_usd")
        if is_priced_apart(msgspec.json.encode(params)):
            why = f"the limit of ${self.usd:g} cannot be kept, because no price is known for {PRICED_APART}"
            raise BadInput(f"{why}; {instead}, or ask for the standard one", where="max_usd")


NO_LIMITS: Final = Limits()


def price_of_limit(card: ModelCard, usd: float, instead: str, where: str) -> Tariff:
    """Return the prices by which a limit in dollars is kept. Raises `BadInput` if none are known, with what to do `instead`."""
    tariff = Tariff.of(card)
    if tariff is None:
        why = f"the limit of ${usd:g} cannot be kept, because no price is known for {card.name}"
        raise BadInput(f"{why}; {instead}, or write its prices into cards.toml (0 for a free model)", where=where)
    return tariff


class Spent(Struct, frozen=True):
    """Tokens and US dollars of calls; `None` if the price of one of them is unknown."""

    tokens: int = 0
    usd: float | None = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.tokens + other.tokens, total_usd((self.usd, other.usd)))

    def since(self, earlier: "Spent") -> "Spent":
        """What was spent after an earlier state."""
        if self == earlier:
            return NOTHING
        known = self.usd is not None and earlier.usd is not None
        return Spent(self.tokens - earlier.tokens, (self.usd or 0.0) - (earlier.usd or 0.0) if known else None)


NOTHING: Final = Spent()


def price_book(session: Session) -> PriceBook:
    """The prices of the models that a session knows, its own among them."""
    return PriceBook((*session.environment.cards, session.card))


def session_usd(session: Session) -> float | None:
    """US dollars of all calls of a session so far; `None` if they are not known. Sub-agents are not included."""
    return price_book(session).ledger_usd(session.log.ledger)


class TurnMeter:
    """What a turn has used since it started: the ledger of the log now, less that at the start.

    `children` returns what each sub-agent of the session has spent so far. Raises `BadInput` if a limit in dollars cannot be kept.
    """

    def __init__(self, session: Session, limits: Limits, children: Callable[[], Mapping[str, Spent]] = dict) -> None:
        limits.check(session.card, session.params)
        self._session = session
        self._limits = limits
        self._children = children
        self._children_before = children()
        self._calls = session.log.health.calls
        self._start = session.log.ledger
        self._unmeasured = self._estimated = 0
        self.tools = 0

    @property
    def tools_left(self) -> int | None:
        """How many more tool calls the turn may make; `None` means any number."""
        return None if self._limits.tools is None else max(0, self._limits.tools - self.tools)

    def reached(self) -> LimitName | None:
        """Return the first limit that the turn has reached, or `None`; the loop itself keeps the time limit, also within a call."""
        limits, session = self._limits, self._session
        if limits.calls is not None and session.log.health.calls - self._calls >= limits.calls:
            return "max_calls"
        if limits.tools is not None and self.tools >= limits.tools:
            return "max_tools"
        return self.spent_out()

    def spent_out(self) -> LimitName | None:
        """Return the limit of tokens or dollars that the turn has reached, or `None`."""
        limits = self._limits
        if limits.tokens is None and limits.usd is None:
            return None
        spent = self.spent()
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return "max_total_tokens"
        if limits.usd is None:
            return None
        if spent.usd is None:
            return "price_unknown"
        return "max_usd" if spent.usd >= limits.usd else None

    def spent(self) -> Spent:
        """What the turn has cost so far, side calls and sub-agents included; jobs beside it have budgets of their own."""
        own = [each for each in self._session.log.ledger.since(self._start) if not is_job_purpose(each.purpose)]
        return sum(
            (now.since(self._children_before.get(name, NOTHING)) for name, now in self._children().items()),
            Spent(self._tokens(own), price_book(self._session).usd(own)),
        )

    def _tokens(self, spendings: list[Spending]) -> int:
        """Tokens of calls; those of a call whose usage was not reported are taken to be those of the next request."""
        unmeasured = sum(each.unmeasured for each in spendings)
        self._estimated += (unmeasured - self._unmeasured) * self._session.used
        self._unmeasured = unmeasured
        return total_of(each.usage for each in spendings).total + self._estimated


async def within_seconds(seconds: float | None, work: Coroutine[Any, Any, str]) -> str:
    """Return the stop reason of a turn, or `max_seconds` if it takes longer: a call or a tool that runs then is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        return "max_seconds"


UNKNOWN: Final = "unknown"
"""The state of a sub-agent whose parent has not recorded its end, and is not open in any process."""


class FamilySpending(Value, frozen=True):
    """Tokens and US dollars of one session, and those of the sub-agents below it; dollars are `None` if they are not known."""

    usage: Usage = Usage()
    usd: float | None = 0.0
    children_usd: float | None = 0.0
    children_tokens: int = 0


class FamilyMember(Value, frozen=True):
    """A session of a tree. `cost_usd` and `usage` are those of its own file; `state` is the last that its parent has recorded.

    It is `UNKNOWN` for a sub-agent that was running when the process of its parent ended without recording how.
    """

    session: str
    parent: str = ""
    nickname: str = ""
    role: str = ""
    depth: int = 0
    state: str = ""
    model: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0


def family_of(home: Home, session: str) -> tuple[FamilyMember, ...]:
    """Return a session and all sub-agents below it, each followed by those that it started. Raises `PalimpsestError` if it cannot be read.

    A sub-agent whose file is missing or cannot be read is listed with what its parent knows.
    """
    return tuple(_members(home, FamilyMember(session), frozenset(), home.cards()))


def _members(home: Home, member: FamilyMember, above: frozenset[str], cards: tuple[ModelCard, ...]) -> Iterator[FamilyMember]:
    try:
        with Log.open(home.store, member.session, home.clock) as log:
            ledger, children = log.ledger, log.children
            own = {"model": log.view.model, "usage": ledger.usage, "cost_usd": PriceBook(cards).ledger_usd(ledger)}
            meta = log.opened.meta if log.opened.opener is not None else {}
            is_open = home.store.has_writer(member.session) if any(child.status == RUNNING for child in children) else False
    except PalimpsestError:
        if not above:
            raise
        yield member
        return
    depth = meta.get("depth", "")
    named = {"nickname": meta.get("nickname", ""), "role": meta.get("role", ""), "depth": whole_number(depth) or 0}
    yield replace(member, **own) if above else replace(member, **own, **named)
    inside = above | {member.session}
    for child in children:
        # Files that name each other must end too.
        if child.session not in inside:
            state = child_state(child, is_open=is_open)
            known = FamilyMember(child.session, member.session, child.nickname, child.role, child.depth, state, usage=child.usage)
            yield from _members(home, replace(known, cost_usd=child.recorded_usd), inside, cards)


def child_state(child: ChildRecord, *, is_open: bool) -> str:
    """Return the state of a sub-agent as its parent recorded it, or `UNKNOWN`. `is_open` is whether the parent has a writer."""
    # Imported sessions have no depth, and no process of ours.
    return UNKNOWN if child.status == RUNNING and child.depth > 0 and not is_open else child.status


class ChildAccounts:
    """What the sub-agents of a session have spent: dollars by their files, or, without one that can be read, as their ends were recorded.

    A file is read when its sub-agent starts or has ended, and again if it has grown since that end.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._read: dict[tuple[str, int | None, int], float | None] = {}

    def spent(self, log: Log) -> dict[str, Spent]:
        """What each sub-agent and those below it had spent, by session."""
        return {child.session: Spent(child.usage.total + child.children_tokens, self._usd(child)) for child in log.children}

    def _usd(self, child: ChildRecord) -> float | None:
        try:
            size = self._home.store.stat(child.session).size
        except PalimpsestError:
            return child.recorded_usd
        key = child.session, child.ended, 0 if child.status == RUNNING else size
        if key not in self._read:
            try:
                self._read[key] = total_usd(member.cost_usd for member in family_of(self._home, child.session))
            except PalimpsestError:
                self._read[key] = child.recorded_usd
        return self._read[key]


def recorded_spending(home: Home, session: str) -> FamilySpending:
    """What a session and those below it have cost by their files; dollars are not known if its file is missing or cannot be read."""
    try:
        own, *below = family_of(home, session)
    except PalimpsestError:
        return FamilySpending(usd=None)
    tokens = sum(member.usage.total for member in below)
    return FamilySpending(own.usage, own.cost_usd, total_usd(member.cost_usd for member in below), tokens)
