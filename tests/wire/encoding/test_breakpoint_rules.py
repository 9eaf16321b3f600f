"""Cache breakpoints: one rule per program, at most four, never two on one block."""

import json

import pytest

from palimpsest.core.events import CallStarted
from palimpsest.core.items import Content, Cover, Item, Signature, Text, Thinking, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.breakpoints import BlockPosition, breakpoint_positions
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding import BlockKind, Fragment, Message
from palimpsest.wire.models import card
from palimpsest.wire.request import BreakpointRule, Params

CLAUDE = card("claude-sonnet-4-5")
HEAD = tuple(Item(f"0.{index}", "context", Text(f"part {index}", "system")) for index in range(3))


def said(text: str) -> Text:
    return Text(text, "assistant")


def items_of(*contents: Content) -> tuple[Item, ...]:
    return tuple(
        Item(f"{number}.0", "user" if isinstance(content, Text) and content.role == "user" else kind_of(content), content)
        for number, content in enumerate(contents, 1)
    )


TALK = items_of(
    Text("one"),
    said("two"),
    Text("three"),
    said("four"),
    ToolCall("c", "bash", "{}"),
    ToolResult("c", (Text("five"),)),
    Text("six"),
)


def breakpoints(rule: BreakpointRule, view: View, frontier: str = "") -> tuple[str, ...]:
    request = encode(view, CLAUDE, (), Params(breakpoint_rule=rule, frontier=frontier))
    assert request.body.count(b'"cache_control"') == len(request.breakpoints)
    return request.breakpoints


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("none", ()),
        ("palimpsest", ("head:2", "7.0")),
        ("claude-code", ("head:1", "head:2", "5.0", "7.0")),
        ("claude-code-2.1.325", ("head:1", "head:2", "7.0")),
        ("opencode", ("head:0", "head:1", "5.0", "7.0")),
    ],
)
def test_each_rule_places_its_own_breakpoints(rule: BreakpointRule, expected: tuple[str, ...]) -> None:
    assert breakpoints(rule, View(HEAD, TALK)) == expected


@pytest.mark.parametrize(
    ("heads", "items", "expected"),
    [
        (0, 0, ()),
        (0, 1, ("1.0",)),
        (1, 1, ("head:0", "1.0")),
        (3, 1, ("head:0", "head:1", "1.0")),
        (3, 2, ("head:0", "head:1", "1.0", "2.0")),
        (3, 6, ("head:0", "head:1", "5.0", "6.0")),
    ],
)
@pytest.mark.states("OC-39")
def test_breakpoints_are_on_the_first_two_system_blocks_and_the_last_two_other_items(
    heads: int, items: int, expected: tuple[str, ...]
) -> None:
    view = View(HEAD[:heads], TALK[:items])
    request = encode(view, CLAUDE, (), Params(breakpoint_rule="opencode"))
    assert request.breakpoints == expected
    assert request.body.count(b'"cache_control"') == len(expected) or not items


def test_a_breakpoint_is_at_the_end_of_its_block() -> None:
    body = json.loads(encode(View(HEAD[:1], TALK[:1]), CLAUDE).body)
    assert body["system"] == [{"type": "text", "text": "part 0", "cache_control": {"type": "ephemeral"}}]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}]}]


def test_breakpoints_of_an_hour_name_their_lifetime() -> None:
    body = json.loads(encode(View((), TALK[:1]), CLAUDE, (), Params(ttl="1h")).body)
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.states("PA-24")
def test_our_rule_puts_breakpoints_on_head_frontier_best_live_entry_and_tail() -> None:
    last = CallStarted("m", "anthropic", breakpoints=("head:2", "2.0", "4.0"))
    assert breakpoints("palimpsest", View(HEAD, TALK, call=last), frontier="2.0") == ("head:2", "2.0", "4.0", "7.0")


@pytest.mark.states("PA-24")
def test_an_unchanged_view_moves_none_but_the_tail() -> None:
    first = encode(View(HEAD, TALK[:3]), CLAUDE, (), Params(frontier="1.0"))
    last = CallStarted("m", "anthropic", breakpoints=first.breakpoints)
    second = encode(View(HEAD, TALK, call=last), CLAUDE, (), Params(frontier="1.0"))
    assert (first.breakpoints, second.breakpoints) == (("head:2", "1.0", "3.0"), ("head:2", "1.0", "3.0", "7.0"))
    again = encode(View(HEAD, TALK, call=last), CLAUDE, (), Params(frontier="1.0"))
    assert again == second


def test_the_best_live_entry_is_the_newest_breakpoint_that_is_still_sent() -> None:
    last = CallStarted("m", "anthropic", breakpoints=("head:2", "2.0", "99.0"))
    assert breakpoints("palimpsest", View(HEAD, TALK, call=last)) == ("head:2", "2.0", "7.0")


def test_breakpoints_of_another_wire_are_no_entries() -> None:
    last = CallStarted("m", "chat", breakpoints=("2.0",))
    assert breakpoints("palimpsest", View(HEAD, TALK, call=last)) == ("head:2", "7.0")


def test_a_hidden_frontier_moves_its_breakpoint_to_the_item_before() -> None:
    hidden = Item("3.0", "user", Text("three"), mask=Cover(""))
    assert breakpoints("palimpsest", View(HEAD, (*TALK[:2], hidden, *TALK[3:])), frontier="3.0") == ("head:2", "2.0", "7.0")


def test_a_frontier_that_is_the_tail_gets_one_breakpoint() -> None:
    assert breakpoints("palimpsest", View(HEAD, TALK), frontier="7.0") == ("head:2", "7.0")


def test_thinking_never_carries_a_breakpoint() -> None:
    thought = Item("2.0", "thinking", Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "s")))
    view = View(HEAD, (TALK[0], thought, *TALK[3:]))
    assert breakpoints("palimpsest", view, frontier="2.0") == ("head:2", "1.0", "7.0")
    last = CallStarted("m", "anthropic", breakpoints=("head:2", "1.0", "2.0"))
    assert breakpoints("palimpsest", View(view.head, view.items, call=last)) == ("head:2", "1.0", "7.0")


@pytest.mark.parametrize("name", ["gpt-5.5", "openai-compatible/some"])
def test_automatic_caches_get_a_key_and_no_breakpoints(name: str) -> None:
    request = encode(View(HEAD, TALK), card(name), (), Params(cache_key="session-1"))
    assert (request.breakpoints, json.loads(request.body)["prompt_cache_key"]) == ((), "session-1")
    assert b"cache_control" not in request.body


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("claude-code-2.1.325", ((-1, 1), (-1, 2), (1, 0), (2, 0))), ("claude-code", ((-1, 1), (-1, 2), (1, 0), (2, 0))), ("none", ())],
)
def test_an_anchor_gets_a_breakpoint_that_the_rule_of_another_program_leaves_free(
    rule: BreakpointRule, expected: tuple[BlockPosition, ...]
) -> None:
    one, two, three = items_of(Text("one"), said("two"), Text("three"))
    messages: list[Message] = [
        (False, [Fragment(one, BlockKind.USER)]),
        (True, [Fragment(two, BlockKind.ASSISTANT)]),
        (False, [Fragment(three, BlockKind.USER)]),
    ]
    assert breakpoint_positions(rule, 3, messages, ("2.0",)) == expected
    # No rule has more than four, and an anchor takes none away.
    assert breakpoint_positions("claude-code", 3, messages, ("1.0",)) == ((-1, 1), (-1, 2), (1, 0), (2, 0))
