"""The stub of a result by its place among the items of a view."""

from collections.abc import Sequence

from palimpsest.audit.uses import call_of_result, stub_text
from palimpsest.core.items import Item


def stub_of(items: Sequence[Item], place: int, tokens: int, factor: float = 1.0) -> str:
    """The stub that clearing the result at `place` would show; stubs are measured with a factor of two decimals."""
    return stub_text(call_of_result(items, place), tokens, items[place].id, round(factor, 2))
