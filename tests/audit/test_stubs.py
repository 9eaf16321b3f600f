"""Masks of cleared results: their text is written once and cached across sessions."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from situations import situation, used, words

from palimpsest.audit.uses import clearing_masks
from palimpsest.core.items import Content, Item, Mask, Text, ToolCall, ToolResult, text_of
from palimpsest.core.tokens import TokenSizes
from palimpsest.core.view import View


def _counting() -> tuple[Callable[[Content], int], list[str]]:
    """A rule by which a stub weighs 20 and all else 900, and the stubs that it was asked for."""
    asked: list[str] = []

    def rule(content: Content) -> int:
        text = text_of(content)
        if text.startswith("["):
            asked.append(text)
        return 20 if text.startswith("[") else 900

    return rule, asked


def test_each_place_gets_the_mask_of_its_result_and_what_that_frees() -> None:
    items = (words("1.0", 10), *used(2, "Bash", '{"command":"make"}', 100), *used(4, "Read", '{"file_path":"a.py"}', 9_000))
    assert clearing_masks(View(items=items), (4, 2), situation(items).tokens) == [
        (Mask(("5.0",), "[Read a.py: 9000 tokens, id 5.0]"), 8_980),
        (Mask(("3.0",), "[Bash make: 100 tokens, id 3.0]"), 80),
    ]


def test_a_mask_is_written_again_only_when_its_text_changes() -> None:
    items = (words("1.0", 10), *used(2, "Bash", '{"command":"make"}', 100), *used(4, "Bash", '{"command":"make"}', 9_000))
    tokens = situation(items).tokens
    first = [mask for mask, _ in clearing_masks(View(items=items), (2, 4), tokens)]
    # A factor that differs by less than a hundredth changes no stub.
    again = [mask for mask, _ in clearing_masks(View(items=items), (2, 4), replace(tokens, factor=1.004))]
    assert [mask.text for mask in again] == ["[Bash make: 100 tokens, id 3.0]", "[Bash make: 9000 tokens, id 5.0]"]
    assert again[0] is first[0]


@pytest.mark.parametrize(("length", "written"), [(1_000, 1), (1_001, 1), (100_001, 3)])
def test_the_mask_of_a_call_of_any_usual_length_is_written_once(length: int, written: int) -> None:
    call = ToolCall("c2", "Search", "a" * length)
    items = (Item("2.0", "call", call), Item("3.0", "result", ToolResult("c2", (Text("found"),))))
    rule, asked = _counting()
    assert [clearing_masks(View(items=items), (1,), TokenSizes(rule))[0][1] for _ in range(3)] == [880, 880, 880]
    assert len(asked) == written


def test_a_result_without_its_call_gets_the_stub_of_an_unnamed_tool() -> None:
    items = (Item("3.0", "result", ToolResult("c2", (Text("x900"),))),)
    assert clearing_masks(View(items=items), (0,), situation(items).tokens) == [(Mask(("3.0",), "[tool: 900 tokens, id 3.0]"), 880)]
