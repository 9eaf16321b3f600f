"""Token sizes of a view as a frozen value, and the protocol that it shares with the token counter."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from palimpsest.core.items import EMPTY_MAPPING, Content, FrozenDict, Item, Value, shared_prefix_length
from palimpsest.core.tokens.sizes import SizeRule
from palimpsest.core.view import View, shown


class CountsTokens(Protocol):
    """Counts tokens by one size rule and one factor: a `TokenCounter`, or the `TokenSizes` of a view."""

    @property
    def factor(self) -> float:
        """What an unscaled size is multiplied by."""
        ...

    def item(self, item: Item) -> int:
        """Return the tokens of the visible content of an item."""
        ...

    def unscaled_sizes(self, items: Sequence[Item]) -> list[int]:
        """Return the unscaled size of each item; a sum of sizes is scaled once, because the rounding of many small ones adds up."""
        ...

    def content(self, content: Content) -> int:
        """Return the tokens of a content that is not in the view."""
        ...

    def total(self, view: View) -> int:
        """Return the tokens of the head and all items of a view."""
        ...

    def scaled(self, raw: int) -> int:
        """Return an unscaled size times the factor."""
        ...


def scaled(raw: int, factor: float) -> int:
    """Return an unscaled size times a factor, in whole tokens."""
    return raw if factor == 1.0 else round(raw * factor)


def shown_size(item: Item, rule: SizeRule, *, drops_cached: bool = False) -> int:
    """Return the unscaled size of the visible content of an item; 0 if it is hidden."""
    content = item.content if item.mask is None else shown(item, drops_cached=drops_cached)
    return 0 if content is None else rule(content)


def is_same_shown(one: Item, other: Item) -> bool:
    """Whether two items of one id have the same visible content, compared by value, because reading a log again creates new objects."""
    return one is other or (one.content == other.content and one.mask == other.mask)


class TokenSizes(Value, frozen=True, eq=False):
    """The sizes of the items of one view, for policies; other items and views are counted on demand.

    `sizes`, `head_sizes` and their sum `raw_total` are unscaled. `factor` and `drops_cached` are those of the `TokenCounter` that made
    the value. `older` and `newer` map the id of each item to its index: two dictionaries, so that the value for one more item does not
    copy thousands of entries.
    """

    rule: SizeRule
    factor: float = 1.0
    drops_cached: bool = False
    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    head_sizes: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    raw_total: int = 0
    older: FrozenDict[str, int] = EMPTY_MAPPING
    newer: FrozenDict[str, int] = EMPTY_MAPPING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSizes) and self._basis() == other._basis()

    def __hash__(self) -> int:
        return hash(self._basis())

    def item(self, item: Item) -> int:
        """Return the tokens of the visible content of an item."""
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        raw = self.sizes[place] if place is not None and self.items[place] is item else self._unscaled(item)
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def unscaled_sizes(self, items: Sequence[Item]) -> list[int]:
        """Return the unscaled size of each item."""
        return list(self.sizes) if items is self.items else [self._unscaled(item) for item in items]

    def content(self, content: Content) -> int:
        """Return the tokens of a content that is not in the view."""
        return scaled(self.rule(content), self.factor)

    def total(self, view: View) -> int:
        """Return the tokens of the head and all items of a view."""
        return scaled(self.raw(view), self.factor)

    def scaled(self, raw: int) -> int:
        """Return an unscaled size times the factor."""
        return scaled(raw, self.factor)

    def raw(self, view: View) -> int:
        """Return the unscaled total of a view."""
        if view.items is self.items and view.head is self.head:
            return self.raw_total
        return sum(map(self._unscaled, view.head)) + sum(self.in_order(view))

    def in_order(self, view: View) -> tuple[int, ...]:
        """Return the unscaled size of each item of a view."""
        if view.items is self.items:
            return self.sizes
        # Most other views are this one after an edit: the items before the edit have the same index.
        start = shared_prefix_length(self.items, view.items)
        return (*self.sizes[:start], *map(self._unscaled, view.items[start:]))

    def places_in(self, view: View) -> Mapping[str, int]:
        """Return the index of each item of a view, by its id."""
        if view.items is self.items:
            return self.older | self.newer if self.newer else self.older
        return {item.id: place for place, item in enumerate(view.items)}

    def _unscaled(self, item: Item) -> int:
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        if place is not None and is_same_shown(self.items[place], item):
            return self.sizes[place]
        for head_item, size in zip(self.head, self.head_sizes, strict=True):
            if head_item.id == item.id and is_same_shown(head_item, item):
                return size
        return shown_size(item, self.rule, drops_cached=self.drops_cached)

    def _basis(self) -> tuple[object, ...]:
        """Return the fields that determine all others."""
        return self.rule, self.factor, self.drops_cached, self.head, self.items
