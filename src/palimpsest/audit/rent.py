"""What waiting with a fold costs: the rent of one more call."""

from palimpsest.core.scale import Scale
from palimpsest.core.situation import Card, Evidence
from palimpsest.core.view import View


def rent_of_call(view: View, evidence: Evidence, scale: Scale, card: Card) -> float:
    """Tokens, weighed by the price of a cached read, that this call carries and a folded view would not."""
    return 0.0
