"""Model card, cache lifetime and bill of a session as it was recorded."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from palimpsest.core.events import TURN, Event, ModelReplied, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.projections.ledger import LedgerProjection
from palimpsest.lab.outcome import NO_MODEL, RECORDED, BilledCall, Outcome, Purpose, ReplayedEdit
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.observer import kind_of
from palimpsest.lab.simulation.simulation import for_replay
from palimpsest.wire.models.cards import CARDS, ModelCard, card, find_card, resized, stand_in
from palimpsest.wire.models.prices import PriceBook, simulated_cost

# Bills sessions that name no model, or one of which not even the family is known.
DEFAULT_CARD = "claude-sonnet-4-5"
_LONG_WINDOW = 1_000_000
Ttl = Literal["5m", "1h"]


class OwnCard(Value, frozen=True):
    """The card that bills a session by default; `stand_in_for` says whose place it takes, and is empty if the card is the session's own."""

    card: ModelCard
    stand_in_for: str = ""


def own_card(loaded: LoadedSession, cards: Iterable[ModelCard] = CARDS, *, window: int | None = None) -> OwnCard:
    """Return the card of the model that made most replies of a session, with its own window unless another one is given.

    A session that had longer prompts than the window of the card had a larger one, so it gets that.
    """
    known = tuple(cards)
    models = Counter(step.reply.model for step in loaded.recording.steps if step.reply.model)
    name = max(models, key=lambda each: models[each], default=loaded.recording.model)
    found, missing = _priced_card(name, known)
    longest = max((step.reply.usage.prompt for step in loaded.recording.steps), default=0)
    if window is None and longest > found.window:
        found = card(f"{found.name}[1m]", known) if found.family == "claude" and longest <= _LONG_WINDOW else resized(found, longest)
    return OwnCard(for_replay(found, found.window if window is None else window), missing)


def own_ttl(events: Iterable[Event]) -> Ttl:
    """Return the cache lifetime with which a session wrote most tokens; five minutes if its file does not tell."""
    usages = [event.body.usage for event in events if isinstance(event.body, ModelReplied)]
    return "1h" if sum(usage.cache_write_long for usage in usages) > sum(usage.cache_write for usage in usages) else "5m"


def recorded_outcome(events: Sequence[Event], cards: Iterable[ModelCard] = CARDS) -> Outcome | None:
    """Return what a session really did: its calls with the recorded usage, each at its own price, and its edits.

    Returns None if no reply has usage. A model without known prices is billed by its stand-in.
    """
    known = tuple(cards)
    book, ledger = PriceBook(known), LedgerProjection()
    calls: list[BilledCall] = []
    edits: list[ReplayedEdit] = []
    for event in events:
        body = event.body
        before = ledger.value()
        ledger.take(event)
        for spent in ledger.value().since(before):
            if spent.usage.prompt:
                purpose: Purpose = "turn" if spent.purpose == TURN else "summary"
                bill = book.bill(spent) or simulated_cost(spent.usage, _priced_card(spent.model, known)[0])
                calls.append(BilledCall(len(calls), event.at, purpose, spent.usage, bill))
        if isinstance(body, ViewEdited):
            edits.append(ReplayedEdit(len(calls), event.at, event.seq, kind_of(body.edits), body.by, body.why))
    return Outcome(RECORDED, tuple(calls), tuple(edits)) if calls else None


def _priced_card(name: str, cards: tuple[ModelCard, ...]) -> tuple[ModelCard, str]:
    """Return the card for a model's bill, and the model if that card is a stand-in: without prices nothing can be compared."""
    own = find_card(name, cards)
    if own is not None and own.prices.are_known:
        return own, ""
    if own is not None:
        return resized(card(DEFAULT_CARD), own.window), name
    other = stand_in(name, cards) if name else None
    return replace(other if other is not None and other.prices.are_known else card(DEFAULT_CARD), api_name=""), name or NO_MODEL
