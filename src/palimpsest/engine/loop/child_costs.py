"""What sub-agents cost, read from their files: the file of a session is the only account of its calls."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.format.texts import whole_number
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.projections.children import RUNNING, ChildRecord
from palimpsest.engine.loop.limits import Spent, recorded_spent
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import PriceBook, total_usd

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


def family_of(home: AnyHome, session: str) -> tuple[FamilyMember, ...]:
    """Return a session and all sub-agents below it, each followed by those that it started. Raises `PalimpsestError` if it cannot be read.

    A sub-agent whose file is missing or cannot be read is listed with what its parent knows.
    """
    return tuple(_members(home, FamilyMember(session), frozenset(), home.cards()))


def _members(home: AnyHome, member: FamilyMember, above: frozenset[str], cards: tuple[ModelCard, ...]) -> Iterator[FamilyMember]:
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
            spent = recorded_spent(child).usd if child.depth else 0.0
            known = FamilyMember(
                child.session, member.session, child.nickname, child.role, child.depth, state, usage=child.usage, cost_usd=spent
            )
            yield from _members(home, known, inside, cards)


def child_state(child: ChildRecord, *, is_open: bool) -> str:
    """Return the state of a sub-agent as its parent recorded it, or `UNKNOWN`. `is_open` is whether the parent has a writer."""
    # Imported sessions have no depth, and no process of ours.
    return UNKNOWN if child.status == RUNNING and child.depth > 0 and not is_open else child.status


class ChildAccounts:
    """What the sub-agents of a session had spent when their ends were recorded; dollars that a record lacks are read from files, once.

    An imported sub-agent without a file counts as nothing: most programs name those that they have kept nowhere.
    """

    def __init__(self, home: AnyHome) -> None:
        self._home = home
        self._read: dict[tuple[str, int | None], float | None] = {}

    def spent(self, log: Log) -> dict[str, Spent]:
        """What each sub-agent and those below it had spent, by session."""
        found = {child: recorded_spent(child) for child in log.children}
        return {child.session: each if each.usd is not None else Spent(each.tokens, self._usd(child)) for child, each in found.items()}

    def _usd(self, child: ChildRecord) -> float | None:
        key = child.session, child.ended
        if key not in self._read:
            spent = recorded_spending(self._home, child.session)
            is_left_out = not child.depth and not self._has_file(child.session)
            self._read[key] = 0.0 if is_left_out else total_usd((spent.usd, spent.children_usd))
        return self._read[key]

    def _has_file(self, session: str) -> bool:
        try:
            self._home.store.stat(session)
        except PalimpsestError:
            return False
        return True


def recorded_spending(home: AnyHome, session: str) -> FamilySpending:
    """What a session and those below it have cost by their files; dollars are not known if its file is missing or cannot be read."""
    try:
        own, *below = family_of(home, session)
    except PalimpsestError:
        return FamilySpending(usd=None)
    tokens = sum(member.usage.total for member in below)
    return FamilySpending(own.usage, own.cost_usd, total_usd(member.cost_usd for member in below), tokens)
