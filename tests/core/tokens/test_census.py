"""Census: the tokens of a view by kind, source and item."""

import msgspec

from palimpsest.audit.sizes import claude_size
from palimpsest.core.budget import Budget, Census, CensusItem, census
from palimpsest.core.items import Cover, Item, Text, ToolResult
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import Reported, View

VIEW = View(
    head=(Item("0.0", "context", Text("x" * 400), source="base"), Item("0.1", "context", Text("x" * 40), source="git")),
    items=(
        Item("1.0", "user", Text("x" * 8)),
        Item("3.0", "result", ToolResult("c1", (Text("x" * 4_000),)), mask=Cover("[cleared]")),
        Item("5.0", "result", ToolResult("c2", (Text("x" * 4_000),))),
        Item("6.0", "context", Text("x" * 4), source="git"),
    ),
)
BUDGET = Budget(window=10_000, buffer=2_000)


def test_a_census_sums_by_kind_and_by_source_and_lists_every_item() -> None:
    assert census(VIEW, TokenCounter(claude_size), BUDGET, tools_tokens=500) == Census(
        window=10_000,
        used=1_616,
        free=6_384,
        buffer=2_000,
        by_kind={"context": 111, "user": 2, "result": 1_003, "tools": 500},
        by_source={"base": 100, "git": 11},
        items=(
            CensusItem("0.0", "context", 100, masked=False, source="base"),
            CensusItem("0.1", "context", 10, masked=False, source="git"),
            CensusItem("1.0", "user", 2, masked=False),
            CensusItem("3.0", "result", 3, masked=True),
            CensusItem("5.0", "result", 1_000, masked=False),
            CensusItem("6.0", "context", 1, masked=False, source="git"),
        ),
    )


def test_used_follows_the_provider_where_it_reported() -> None:
    view = View(items=VIEW.items, reported=Reported(7_000, seq=5))
    result = census(view, TokenCounter(claude_size), BUDGET)
    assert (result.used, result.free) == (7_001, 999)


def test_free_room_is_never_negative() -> None:
    assert census(View(reported=Reported(9_500, seq=0)), TokenCounter(claude_size), BUDGET).free == 0


def test_an_empty_census_writes_every_field() -> None:
    assert msgspec.json.decode(msgspec.json.encode(census(View(), TokenCounter(claude_size), BUDGET))) == {
        "window": 10_000,
        "used": 0,
        "free": 8_000,
        "buffer": 2_000,
        "by_kind": {},
        "by_source": {},
        "items": [],
    }
