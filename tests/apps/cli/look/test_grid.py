"""The room as cells."""

from collections import Counter
from collections.abc import Iterable
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pal_runs import SMALL, Pal, small

from pal.cli.show import (
    BUFFER_NAME,
    FREE_NAME,
    CategoryTokens,
    GridCell,
    category_letters,
    grid,
    head_line,
    print_census,
    share_line,
    thousands,
)
from palimpsest.core.budget import Census, RowForm

DOCUMENTED = (CategoryTokens("System prompt", 2_200), CategoryTokens("System tools", 16_600), CategoryTokens("Messages", 156_100))
MEASURED = (
    CategoryTokens("System prompt", 7_200),
    CategoryTokens("System tools", 10_700),
    CategoryTokens("Memory files", 22),
    CategoryTokens("Skills", 1_500),
    CategoryTokens("Messages", 32_600),
)


def glyphs_of(rows: Iterable[Iterable[GridCell]]) -> str:
    return "\n".join(" ".join(cell.glyph for cell in row) for row in rows)


@pytest.mark.states("CC-67")
def test_the_documented_grid_is_drawn_cell_by_cell() -> None:
    rows = grid(DOCUMENTED, 200_000, 45_000, "documents")
    assert glyphs_of(rows) == (
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛝ ⛝ ⛝\n"
        "⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝"
    )
    assert [cell.category for row in rows for cell in row] == (
        ["System prompt"] + ["System tools"] * 8 + ["Messages"] * 78 + ["Autocompact buffer"] * 13
    )


@pytest.mark.states("CC-67")
def test_the_measured_grid_is_drawn_cell_by_cell() -> None:
    rows = grid(MEASURED, 200_000, 33_000, "measured")
    assert glyphs_of(rows) == (
        "⛁ ⛁ ⛁ ⛀ ⛁ ⛁ ⛁ ⛁ ⛁ ⛀\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁\n"
        "⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛁ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶ ⛶\n"
        "⛶ ⛶ ⛶ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝\n"
        "⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝ ⛝"
    )
    assert [cell.category for row in rows for cell in row] == (
        ["System prompt"] * 4
        + ["System tools"] * 5
        + ["Memory files"]
        + ["Skills"]
        + ["Messages"] * 16
        + ["Free space"] * 56
        + ["Autocompact buffer"] * 17
    )


def test_as_documented_a_tiny_category_has_no_cell() -> None:
    counts = Counter(cell.category for row in grid([CategoryTokens("Memory files", 22)], 200_000, 0, "documents") for cell in row)
    assert counts == {FREE_NAME: 100}


@given(
    st.lists(st.integers(0, 300_000), max_size=6),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
    st.sampled_from(["documents", "measured"]),
)
def test_a_grid_always_has_ten_rows_of_ten_cells(tokens: list[int], window: int, buffer: int, form: RowForm) -> None:
    rows = grid([CategoryTokens(f"part {number}", size) for number, size in enumerate(tokens)], window, buffer, form)
    assert [len(row) for row in rows] == [10] * 10


def test_a_full_window_leaves_no_cell_for_the_buffer() -> None:
    counts = Counter(cell.category for row in grid([CategoryTokens("Messages", 260_000)], 200_000, 33_000) for cell in row)
    assert counts == {"Messages": 100}
    assert BUFFER_NAME not in counts


@pytest.mark.parametrize(
    ("tokens", "documented", "measured"),
    [(0, "0", "0"), (22, "22", "22"), (999, "999", "999"), (16_600, "16.6k", "16.6k"), (45_000, "45.0k", "45k"), (1_049, "1.0k", "1k")],
)
def test_tokens_are_written_in_thousands(tokens: int, documented: str, measured: str) -> None:
    assert (thousands(tokens, "documents"), thousands(tokens)) == (documented, measured)


def test_a_category_is_one_line() -> None:
    assert share_line(DOCUMENTED[1], 200_000, "documents") == "System tools: 16.6k tokens (8.3%)"
    assert share_line(CategoryTokens(BUFFER_NAME, 45_000), 200_000, "documents") == "Autocompact buffer: 45.0k tokens (22.5%)"
    assert share_line(CategoryTokens(BUFFER_NAME, 33_000), 200_000) == "Autocompact buffer: 33k tokens (16.5%)"


def test_the_head_line_names_model_used_window_and_percent() -> None:
    assert head_line("claude-sonnet-4-5", 174_900, 200_000) == "claude-sonnet-4-5 · 174.9k/200k tokens (87%)"


def test_without_colours_every_category_has_a_letter_of_its_own(pal: Pal) -> None:
    small(pal.home)
    lines = pal("context", SMALL, "--window", "800", NO_COLOR="1").stdout.splitlines()

    assert lines[1:7] == [
        "S Y Y Y Y M M M M M   S System prompt: 9 tokens (1.1%)",
        "M M M M M M M M M M   Y System tools: 29 tokens (3.6%)",
        "M M M M M M M M M M   M Messages: 322 tokens (40.3%)",
        "M M M M M M M M M M   R reported, in no item: 373 tokens (46.6%)",
        "M M M M M R R R R R   □ Free space: 0 tokens (0.0%)",
        "R R R R R R R R R R   ▨ Autocompact buffer: 160 tokens (20.0%)",
    ]
    assert category_letters(["result", "reminder", "call", "context", "用户"]) == {
        "result": "R",
        "reminder": "E",
        "call": "C",
        "context": "O",
        "用户": "A",
    }


def test_letters_never_run_out() -> None:
    letters = category_letters(f"kind {number}" for number in range(30))

    assert sorted(letters.values()) == [*"????", *ascii_uppercase]


@pytest.mark.parametrize(
    ("used", "filled", "line"),
    [(124_000, 62, "reported, in no item: 54k tokens (27.0%)"), (71_999, 35, ""), (70_000, 35, ""), (60_000, 35, "")],
)
def test_what_was_reported_and_is_in_no_item_has_cells_from_one_percent_on(
    capsys: pytest.CaptureFixture[str], used: int, filled: int, line: str
) -> None:
    print_census(Census(200_000, used, 200_000 - used - 40_000, 40_000, {"result": 70_000}, {}, ()), {"Messages": 70_000}, "m")
    lines = capsys.readouterr().out.splitlines()

    cells = "".join(found[:20] for found in lines[1:11])
    assert cells.count("M") + cells.count("R") == filled
    assert [found for found in lines if "reported" in found] == ([f"M M M M M M M M M M   R {line}"] if line else [])
