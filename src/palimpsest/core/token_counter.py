"""Weighs items and views by one size rule, each item once."""

from typing import Final

from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Value, same_start
from palimpsest.core.masking import shown
from palimpsest.core.sizes import SizeRule
from palimpsest.core.view import View

# The lab takes `shown` from here.
__all__ = ["Covering", "TokenCounter", "shown"]


class Covering(Value, frozen=True):
    """A mask that was written for an item of so many tokens at that factor, what its text weighs unscaled, and the tokens that it frees."""

    item: Item
    factor: float
    tokens: int
    mask: Mask
    weight: int
    gain: int


class TokenCounter:
    """A memo round a rule. `factor` may be changed at any time: what is remembered is unscaled.

    `drops_cached` says of the model's card that it has cache edits: then results under a `cached` cover weigh that cover.
    `coverings` are masks by the item they were written for, so that looking again does not write them again; like sizes they are
    forgotten with the items.
    """

    __slots__ = ("_head", "_head_size", "_items", "_items_size", "_memo", "_sizes", "coverings", "drops_cached", "factor", "rule")

    def __init__(self, rule: SizeRule, factor: float = 1.0, *, drops_cached: bool = False) -> None:
        self.rule = rule
        self.factor = factor
        self.drops_cached: Final = drops_cached
        self.coverings: dict[str, Covering] = {}
        self._memo: dict[str, tuple[Item, int]] = {}
        self._head: tuple[Item, ...] = ()
        self._head_size = 0
        self._items: tuple[Item, ...] = ()
        self._items_size = 0
        self._sizes: list[int] = []

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
        known = self._memo.get(item.id)
        return self.scaled(known[1] if known is not None and known[0] is item else self._weigh(item))

    def total(self, view: View) -> int:
        """Tokens of the head and all items."""
        return self.scaled(self.raw(view))

    def scaled(self, raw: int) -> int:
        """An unscaled size times the factor."""
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def raw(self, view: View) -> int:
        """The unscaled total, which is what `CallStarted.estimate` keeps: a calibration compares it with reported usage."""
        if view.head is not self._head and view.head != self._head:
            self._head_size = sum(self._weigh(item) for item in view.head)
        self._head = view.head
        items = view.items
        if items is not self._items:
            known = len(self._items)
            edited = items[:known] != self._items
            if edited:
                # An edit leaves what stands before the first place that it changed.
                known = same_start(self._items, items)
                self._items_size -= sum(self._sizes[known:])
                del self._sizes[known:]
            new = [self._weigh(item) for item in items[known:]]
            self._sizes += new
            self._items_size += sum(new)
            self._items = items
            if edited:
                self._forget_others(view)
        return self._head_size + self._items_size

    def sizes(self, view: View) -> tuple[int, ...]:
        """The unscaled size of each item, in order."""
        self.raw(view)
        return tuple(self._sizes)

    @property
    def remembered(self) -> int:
        """How many items are in the memo."""
        return len(self._memo)

    def _weigh(self, item: Item) -> int:
        known = self._memo.get(item.id)
        if known is not None and (known[0] is item or (known[0].content is item.content and known[0].mask == item.mask)):
            return known[1]
        content = shown(item, drops_cached=self.drops_cached)
        size = 0 if content is None else self.rule(content)
        self._memo[item.id] = (item, size)
        return size

    def _forget_others(self, view: View) -> None:
        memo = self._memo
        if len(memo) > len(view.items) + len(view.head):
            self._memo = {item.id: memo[item.id] for part in (view.head, view.items) for item in part if item.id in memo}
            self.coverings = {name: known for name, known in self.coverings.items() if name in self._memo}
