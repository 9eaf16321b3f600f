"""Rent: what the calls since the last fold paid for tokens that a fold would remove."""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.pricing.metering import Metering
from palimpsest.audit.pricing.price import rent_of_call
from palimpsest.core.edits import Fold
from palimpsest.core.events import CallStarted, Event, ViewEdited
from palimpsest.core.projections.projection import Scope, Views

_sums = msgspec.json.Decoder(float)
_encode = msgspec.json.Encoder().encode


class RentProjection:
    """Projection of the rent in input tokens, summed over the calls since the last fold."""

    version: ClassVar = 1
    watches: ClassVar = frozenset({CallStarted, ViewEdited})
    scope: ClassVar[Scope] = "path"

    def __init__(
        self, views: Views, metering: Metering, evidence: EvidenceProjection, *, tools_tokens: Callable[[], int], parts: int
    ) -> None:
        self.name = f"rent/{parts}"
        self._views = views
        self._metering = metering
        self._evidence = evidence
        self._tools_tokens = tools_tokens
        self._parts = parts
        self.value = 0.0

    def take(self, event: Event) -> None:
        """Apply one event: add the rent of a turn call, or reset the sum at a fold."""
        match event.body:
            case CallStarted(purpose="turn"):
                counter, card = self._metering.counter, self._metering.card
                tools = self._tools_tokens()
                self.value += rent_of_call(self._views.view, self._evidence.value(), counter, card, tools=tools, parts=self._parts)
            case ViewEdited(edits=edits) if any(isinstance(edit, Fold) for edit in edits):
                self.value = 0.0
            case _:
                return

    def snapshot(self) -> bytes:
        """The sum as JSON."""
        return _encode(self.value)

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot."""
        self.value = _sums.decode(data)

    def reset(self) -> None:
        """Reset the sum."""
        self.value = 0.0
