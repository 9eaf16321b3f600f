"""The cached prefixes of a situation."""

from palimpsest.core.items import Item, Text
from palimpsest.core.situation import Cache, CachedPrefix
from palimpsest.core.view import View

VIEW = View(head=(Item("0.0", "context", Text("head")),), items=tuple(Item(f"{number}.0", "user", Text("x")) for number in (1, 2, 3)))
CACHE = Cache((CachedPrefix("0.0", 20_000, at=1_000, ttl=300_000), CachedPrefix("2.0", 40_000, at=200_000, ttl=300_000)))


def test_a_cached_prefix_is_live_until_its_lifetime_is_over() -> None:
    assert [CACHE.longest(now) for now in (200_000, 300_999, 499_999, 500_000)] == [40_000, 40_000, 40_000, 0]
    assert Cache().longest(0) == 0
