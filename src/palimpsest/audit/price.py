"""What an edit costs once and saves on every call, under the cache rules of the model's card."""

from palimpsest.core.items import Value
from palimpsest.core.situation import Situation
from palimpsest.core.view import View


class Price(Value, frozen=True):
    """Dollars: what the next request costs more (or less) because of an edit, and what every later one costs less."""

    usd: float = 0.0
    saved_usd_per_call: float = 0.0


def price_of(before: View, after: View, situation: Situation) -> Price:
    """The difference of two bills for the next request, with and without an edit."""
    return Price()
