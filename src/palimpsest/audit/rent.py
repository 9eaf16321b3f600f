"""What waiting with a fold costs: the rent of one more call."""

from palimpsest.audit.rates import Rates, rates_of
from palimpsest.audit.warm import Warm, warm_of
from palimpsest.core.budget import used
from palimpsest.core.items import Value
from palimpsest.core.situation import PARTS, Cache, Card, Evidence, Situation
from palimpsest.core.token_sizes import CountsTokens
from palimpsest.core.view import View

WINDOW = 200_000
USERS = 20_000


class Narrative(Value, frozen=True):
    """The request for a narrative: its prompt and what the model writes, in tokens."""

    prompt: int
    output: int


def bound(tokens: int, window: int) -> int:
    """A bound that is meant for a window of 200k, for a smaller one."""
    return tokens if window >= WINDOW else tokens * window // WINDOW


def after_fold(view: View, evidence: Evidence, counter: CountsTokens, card: Card, parts: int = PARTS) -> int:
    """How many tokens a folded view would have, as far as can be told before it is folded: head, messages, and all other `parts`."""
    head = sum(counter.item(item) for item in view.head)
    users = min(bound(USERS, card.window), sum(said.tokens for said in evidence.said))
    return head + users + bound(parts, card.window)


def rent_of_call(view: View, evidence: Evidence, counter: CountsTokens, card: Card, *, tools: int = 0, parts: int = PARTS) -> float:
    """Tokens, weighed by the price of a cached read, that this call carries and a folded view would not; both carry the tools."""
    extra = used(view, counter, tools) - tools - after_fold(view, evidence, counter, card, parts)
    return rates_of(card, Cache()).read * extra if extra > 0 else 0.0


def fold_price(total: int, after: int, warm: Warm, rates: Rates, narrative: Narrative | None = None) -> float:
    """What a fold makes the next request cost more, in input tokens; a narrative adds the request for it. Below zero it is a gain."""
    hot, head = min(warm.all, total), min(warm.head, after)
    price = rates.write * (after - head) + rates.read * head - rates.read * hot - rates.write * (total - hot)
    if narrative is not None:
        price += rates.read * hot + (total - hot) + narrative.prompt + rates.output * narrative.output
    return price


def price_of_fold(situation: Situation, narrative: Narrative | None = None) -> float:
    """The price of folding now; it is worth it once the rent covers twice as much."""
    parts = situation.parts + (narrative.output if narrative else 0)
    after = after_fold(situation.view, situation.evidence, situation.tokens, situation.card, parts)
    rates = rates_of(situation.card, situation.cache)
    return fold_price(situation.used, after + situation.tools_tokens, warm_of(situation), rates, narrative)
