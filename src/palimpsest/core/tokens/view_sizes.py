"""Token sizes of a view as a frozen value, and what it shares with the counter that makes it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from palimpsest.core.items import EMPTY, Content, FrozenDict, Item, Value, shared_prefix_length
from palimpsest.core.tokens.sizes import SizeRule
from palimpsest.core.view import View, shown


class CountsTokens(Protocol):
    """Counts tokens by one size rule, scaled by one factor: a `TokenCounter` or the `TokenSizes` of a view."""

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
        ...

    def each(self, items: Sequence[Item]) -> list[int]:
        """Tokens of each of some items as it is shown."""
        ...

    def content(self, content: Content) -> int:
        """Tokens of a content that is not in the view yet."""
        ...

    def total(self, view: View) -> int:
        """Tokens of the head and all items of a view."""
        ...

    def scaled(self, raw: int) -> int:
        """An unscaled size times the factor."""
        ...


def scaled(raw: int, factor: float) -> int:
    """An unscaled size times a factor, in whole tokens."""
    return raw if factor == 1.0 else round(raw * factor)


def shown_size(item: Item, rule: SizeRule, *, drops_cached: bool = False) -> int:
    """The unscaled size of what the model sees of an item."""
    content = item.content if item.mask is None else shown(item, drops_cached=drops_cached)
    return 0 if content is None else rule(content)


def is_same_shown(one: Item, other: Item) -> bool:
    """Whether two items of one id show the same, and so have the same size. A log that is read again gives equal items, not the same."""
    return one is other or (one.content == other.content and one.mask == other.mask)


class TokenSizes(Value, frozen=True, eq=False):
    """The size of each item of one view, as a policy sees it; other items and views are counted by the rule when they are asked for.

    Sizes are unscaled: `sizes` has one for each of `items`, `head_sizes` one for each of `head`, and `raw_total` is the sum of both.
    `factor` and `drops_cached` are those of the `TokenCounter` that made it. `older` and `newer` together say where each of `items`
    stands, by its id: two dictionaries, so that a value for one more item need not copy thousands of entries.
    """

    rule: SizeRule
    factor: float = 1.0
    drops_cached: bool = False
    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    head_sizes: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    raw_total: int = 0
    older: FrozenDict[str, int] = EMPTY
    newer: FrozenDict[str, int] = EMPTY

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSizes) and self._basis() == other._basis()

    def __hash__(self) -> int:
        return hash(self._basis())

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        raw = self.sizes[place] if place is not None and self.items[place] is item else self._unscaled(item)
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def each(self, items: Sequence[Item]) -> list[int]:
        """Tokens of each of some items as it is shown."""
        sizes = self.sizes if items is self.items else [self._unscaled(item) for item in items]
        return [scaled(size, self.factor) for size in sizes]

    def content(self, content: Content) -> int:
        """Tokens of a content that is not in the view yet."""
        return scaled(self.rule(content), self.factor)

    def total(self, view: View) -> int:
        """Tokens of the head and all items of a view."""
        return scaled(self.raw(view), self.factor)

    def scaled(self, raw: int) -> int:
        """An unscaled size times the factor."""
        return scaled(raw, self.factor)

    def raw(self, view: View) -> int:
        """The unscaled total of a view."""
        if view.items is self.items and view.head is self.head:
            return self.raw_total
        return sum(map(self._unscaled, view.head)) + sum(self.in_order(view))

    def in_order(self, view: View) -> tuple[int, ...]:
        """The unscaled size of each item of a view."""
        if view.items is self.items:
            return self.sizes
        # Most other views that are asked for are this one after an edit: what stands before the edit is known by its place.
        start = shared_prefix_length(self.items, view.items)
        return (*self.sizes[:start], *map(self._unscaled, view.items[start:]))

    def places_in(self, view: View) -> Mapping[str, int]:
        """Where each item of a view stands, by its id."""
        if view.items is self.items:
            return self.older | self.newer if self.newer else self.older
        return {item.id: place for place, item in enumerate(view.items)}

    def _unscaled(self, item: Item) -> int:
        place = self.older.get(item.id)
        if place is None:
            place = self.newer.get(item.id)
        if place is not None and is_same_shown(self.items[place], item):
            return self.sizes[place]
        for known, size in zip(self.head, self.head_sizes, strict=True):
            if known.id == item.id and is_same_shown(known, item):
                return size
        return shown_size(item, self.rule, drops_cached=self.drops_cached)

    def _basis(self) -> tuple[object, ...]:
        """What everything else follows from."""
        return self.rule, self.factor, self.drops_cached, self.head, self.items
