"""Counts the tokens of items and views by one size rule, each item once."""

from collections.abc import Sequence
from operator import attrgetter, ne
from typing import Final

from palimpsest.core.items import EMPTY, Content, FrozenDict, Item, frozen, shared_prefix_length
from palimpsest.core.tokens.sizes import SizeRule
from palimpsest.core.tokens.view_sizes import TokenSizes, is_same_shown, shown_size
from palimpsest.core.view import View

# How many places are copied for each new value before they are put with all the others.
_NEWER: Final = 32
_id = attrgetter("id")


class TokenCounter:
    """A cache of sizes, owned by a session. `factor` may be changed at any time: what is remembered is unscaled.

    `drops_cached` says of the model's card that it has cache edits: then results under a `cached` cover weigh that cover.
    A policy gets `sizes_of` a view, which nothing can change, and never the counter.
    """

    __slots__ = (
        "_head",
        "_head_size",
        "_items",
        "_items_size",
        "_memo",
        "_newest",
        "_sizes",
        "_unchanged",
        "drops_cached",
        "factor",
        "rule",
    )

    def __init__(self, rule: SizeRule, factor: float = 1.0, *, drops_cached: bool = False) -> None:
        self.rule: Final = rule
        self.factor = factor
        self.drops_cached: Final = drops_cached
        self._memo: dict[str, tuple[Item, int]] = {}
        self._head: tuple[Item, ...] = ()
        self._head_size = 0
        self._items: tuple[Item, ...] = ()
        self._items_size = 0
        self._sizes: list[int] = []
        self._unchanged = 0
        self._newest = TokenSizes(rule, factor, drops_cached)

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
        known = self._memo.get(item.id)
        return self.scaled(known[1] if known is not None and known[0] is item else self._weigh(item))

    def each(self, items: Sequence[Item]) -> list[int]:
        """Tokens of each of some items as it is shown; fast for those that the view which was counted last begins with."""
        known = shared_prefix_length(self._items, items)
        sizes = self._sizes[:known] + [self._weigh(item) for item in items[known:]]
        factor = self.factor
        return sizes if factor == 1.0 else [round(size * factor) for size in sizes]

    def content(self, content: Content) -> int:
        """Tokens of a content that is not in a view yet; it is not remembered."""
        return self.scaled(self.rule(content))

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
                known = shared_prefix_length(self._items, items)
                self._items_size -= sum(self._sizes[known:])
                del self._sizes[known:]
            new = [self._weigh(item) for item in items[known:]]
            self._sizes += new
            self._items_size += sum(new)
            self._items = items
            self._unchanged = min(self._unchanged, known)
            if edited:
                self._forget_others(view)
        return self._head_size + self._items_size

    def sizes_of(self, view: View) -> TokenSizes:
        """The sizes of a view as a value; the same object while neither the view nor the factor changes."""
        newest, factor, head, items = self._newest, self.factor, view.head, view.items
        if newest.items is items and newest.head is head and newest.factor == factor:
            return newest
        raw = self.raw(view)
        head_sizes = newest.head_sizes if newest.head is head else tuple([self._weigh(item) for item in head])
        older, newer = self._places_of(items)
        made = TokenSizes(self.rule, factor, self.drops_cached, head, items, head_sizes, tuple(self._sizes), raw, older, newer)
        self._newest, self._unchanged = made, len(items)
        return made

    @property
    def remembered(self) -> int:
        """How many items are in the memo."""
        return len(self._memo)

    def _weigh(self, item: Item) -> int:
        known = self._memo.get(item.id)
        if known is not None and is_same_shown(known[0], item):
            return known[1]
        size = shown_size(item, self.rule, drops_cached=self.drops_cached)
        self._memo[item.id] = (item, size)
        return size

    def _forget_others(self, view: View) -> None:
        memo = self._memo
        if len(memo) > len(view.items) + len(view.head):
            self._memo = {item.id: memo[item.id] for part in (view.head, view.items) for item in part if item.id in memo}

    def _places_of(self, items: tuple[Item, ...]) -> tuple[FrozenDict[str, int], FrozenDict[str, int]]:
        """Where each item stands, by its id, in two parts: the first is that of the newest value until the second has many entries."""
        newest, known = self._newest, self._unchanged
        start = len(newest.items)
        # A mask changes an item and leaves it at its place.
        if known < start and (len(items) < start or any(map(ne, map(_id, newest.items[known:]), map(_id, items[known:start])))):
            return frozen({item.id: place for place, item in enumerate(items)}), EMPTY
        newer = FrozenDict(newest.newer, **{items[place].id: place for place in range(start, len(items))})
        return (newest.older, newer) if len(newer) <= _NEWER else (FrozenDict(newest.older, **newer), EMPTY)
