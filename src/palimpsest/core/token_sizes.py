"""Token sizes of a view as a frozen value, and what it shares with the counter that makes it."""

from dataclasses import dataclass, field
from typing import Protocol

from palimpsest.core.frozen import EMPTY, FrozenDict
from palimpsest.core.items import Content, Item, same_start, shown
from palimpsest.core.sizes import SizeRule
from palimpsest.core.view import View


class CountsTokens(Protocol):
    """Counts tokens by one size rule, scaled by one factor: a `TokenCounter` or the `TokenSizes` of a view."""

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
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


def shown_size(item: Item, rule: SizeRule, *, drops_cached: bool = False) -> int:
    """The unscaled size of what the model sees of an item."""
    content = item.content if item.mask is None else shown(item, drops_cached=drops_cached)
    return 0 if content is None else rule(content)


def is_same_shown(one: Item, other: Item) -> bool:
    """Whether two items of one id show the same, and so have the same size. A log that is read again gives equal items, not the same."""
    return one is other or (one.content == other.content and one.mask == other.mask)


@dataclass(frozen=True, slots=True)
class TokenSizes:
    """The size of each item of one view, as a policy sees it; other items and views are counted by the rule when they are asked for.

    `sizes` are unscaled, one for each of `items`, and `raw_total` is their sum with those of the head. `known` holds the same by item
    id; it saves counting and never changes an answer, so that it is no part of a comparison. `factor` and `drops_cached` are those
    of the `TokenCounter` that made it.
    """

    rule: SizeRule
    factor: float = 1.0
    drops_cached: bool = False
    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    sizes: tuple[int, ...] = ()
    raw_total: int = 0
    known: FrozenDict[str, tuple[Item, int]] = field(default=EMPTY, compare=False, repr=False)

    def item(self, item: Item) -> int:
        """Tokens of one item as it is shown."""
        known = self.known.get(item.id)
        return self.scaled(known[1] if known is not None and known[0] is item else self._unscaled(item))

    def content(self, content: Content) -> int:
        """Tokens of a content that is not in the view yet."""
        return self.scaled(self.rule(content))

    def total(self, view: View) -> int:
        """Tokens of the head and all items of a view."""
        return self.scaled(self.raw(view))

    def scaled(self, raw: int) -> int:
        """An unscaled size times the factor."""
        return raw if self.factor == 1.0 else round(raw * self.factor)

    def raw(self, view: View) -> int:
        """The unscaled total of a view."""
        if self._is_of(view):
            return self.raw_total
        return sum(map(self._unscaled, view.head)) + sum(self.in_order(view))

    def in_order(self, view: View) -> tuple[int, ...]:
        """The unscaled size of each item of a view."""
        if view.items is self.items:
            return self.sizes
        # Most other views that are asked for are this one after an edit: what stands before the edit is known by its place.
        start = same_start(self.items, view.items)
        return (*self.sizes[:start], *map(self._unscaled, view.items[start:]))

    def _is_of(self, view: View) -> bool:
        return view.items is self.items and view.head is self.head

    def _unscaled(self, item: Item) -> int:
        known = self.known.get(item.id)
        if known is not None and is_same_shown(known[0], item):
            return known[1]
        return shown_size(item, self.rule, drops_cached=self.drops_cached)
