"""Token counter: counts the items of a view by one size rule, and each item only once."""

from collections.abc import Sequence
from operator import attrgetter, ne
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING, Content, FrozenDict, Item, frozen, shared_prefix_length
from palimpsest.core.tokens import SizeRule, TokenSizes, is_same_shown, shown_size
from palimpsest.core.view import View

# Entries of `TokenSizes.newer` before they are merged into `older`.
_MAX_NEWER: Final = 32
_id = attrgetter("id")


class TokenCounter:
    """A cache of item sizes, owned by a session. `factor` may change at any time, because the cached sizes are unscaled.

    `drops_cached` is true for a model with cache edits: a result under a `cached` mask then has the size of the mask text.
    Policies get the immutable `sizes_of` a view, never the counter.
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
        """Return the tokens of the visible content of an item."""
        counted = self._memo.get(item.id)
        return self.scaled(counted[1] if counted is not None and counted[0] is item else self._unscaled(item))

    def unscaled_sizes(self, items: Sequence[Item]) -> list[int]:
        """Return the unscaled size of each item; fast for a prefix of the view that was counted last."""
        prefix = shared_prefix_length(self._items, items)
        return self._sizes[:prefix] + [self._unscaled(item) for item in items[prefix:]]

    def content(self, content: Content) -> int:
        """Return the tokens of a content that is not in the view; it is not cached."""
        return self.scaled(self.rule(content))

    def total(self, view: View) -> int:
        """Return the tokens of the head and all items."""
        return self.scaled(self.raw(view))

    def scaled(self, raw: int) -> int:
        """Return an unscaled size times the factor."""
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def raw(self, view: View) -> int:
        """Return the unscaled total of a view, which `CallStarted.estimate` records for the calibration."""
        if view.head is not self._head and view.head != self._head:
            self._head_size = sum(self._unscaled(item) for item in view.head)
        self._head = view.head
        items = view.items
        if items is not self._items:
            prefix = len(self._items)
            edited = items[:prefix] != self._items
            if edited:
                # The items before the first change of an edit keep their sizes.
                prefix = shared_prefix_length(self._items, items)
            # Counted before anything is changed: the rule of another author may raise.
            new = [self._unscaled(item) for item in items[prefix:]]
            self._items_size += sum(new) - sum(self._sizes[prefix:])
            self._sizes[prefix:] = new
            self._items = items
            self._unchanged = min(self._unchanged, prefix)
            if edited:
                self._forget_others(view)
        return self._head_size + self._items_size

    def sizes_of(self, view: View) -> TokenSizes:
        """Return the sizes of a view as a value; the same object while neither the view nor the factor changes."""
        newest, factor, head, items = self._newest, self.factor, view.head, view.items
        if newest.items is items and newest.head is head and newest.factor == factor:
            return newest
        raw = self.raw(view)
        head_sizes = newest.head_sizes if newest.head is head else tuple([self._unscaled(item) for item in head])
        older, newer = self._places_of(items)
        sizes = TokenSizes(self.rule, factor, self.drops_cached, head, items, head_sizes, tuple(self._sizes), raw, older, newer)
        self._newest, self._unchanged = sizes, len(items)
        return sizes

    @property
    def remembered(self) -> int:
        """Number of cached item sizes."""
        return len(self._memo)

    def _unscaled(self, item: Item) -> int:
        counted = self._memo.get(item.id)
        if counted is not None and is_same_shown(counted[0], item):
            return counted[1]
        size = shown_size(item, self.rule, drops_cached=self.drops_cached)
        self._memo[item.id] = (item, size)
        return size

    def _forget_others(self, view: View) -> None:
        memo = self._memo
        if len(memo) > len(view.items) + len(view.head):
            self._memo = {item.id: memo[item.id] for part in (view.head, view.items) for item in part if item.id in memo}

    def _places_of(self, items: tuple[Item, ...]) -> tuple[FrozenDict[str, int], FrozenDict[str, int]]:
        """Return `TokenSizes.older` and `newer`; `older` is shared with the newest value until `newer` has too many entries."""
        newest, prefix = self._newest, self._unchanged
        start = len(newest.items)
        # Ids are compared, because a mask changes an item but not its position.
        if prefix < start and (len(items) < start or any(map(ne, map(_id, newest.items[prefix:]), map(_id, items[prefix:start])))):
            return frozen({item.id: place for place, item in enumerate(items)}), EMPTY_MAPPING
        newer = FrozenDict(newest.newer, **{items[place].id: place for place in range(start, len(items))})
        return (newest.older, newer) if len(newer) <= _MAX_NEWER else (FrozenDict(newest.older, **newer), EMPTY_MAPPING)
