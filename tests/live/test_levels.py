"""The levels of each profile stand in the documents as its budget has them."""

import re
from pathlib import Path

import pytest

from palimpsest.policies.named import profile
from palimpsest.wire.models import card

PAGE = Path(__file__).parents[2] / "docs" / "profiles.md"


def rows() -> dict[str, list[str]]:
    """The cells of the table of levels, by the profiles that a row names."""
    table = PAGE.read_text().partition("## Where each profile warns")[2].partition("\n\nWhat a policy")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| `")]
    return {name: row[1:] for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


def shown(level: int | None) -> str:
    return "–" if level is None else f"{level:,}"


@pytest.mark.states("SG-14")
def test_the_table_of_levels_is_that_of_the_profiles() -> None:
    stated = rows()
    assert list(stated) == ["claude-code", "claude-code-2.1.325", "codex", "codex-0.166", "opencode", "opencode-1.18", "palimpsest"]
    wrong: list[str] = []
    for name, cells in stated.items():
        budget = profile(name, {}).budget(card("gpt-5.5" if "codex" in name else "claude-sonnet-4-5"))
        clears = {"claude-code-2.1.325": "never", "palimpsest": "by rent or buy"}.get(name, shown(budget.clear_at))
        reply = {"claude-code-2.1.325": "20,000 at most", "palimpsest": "that of the model"}.get(name, shown(budget.reply))
        expected = [reply, shown(budget.warn_at), clears, shown(budget.compact_at), shown(budget.block_at), shown(budget.buffer)]
        if cells != expected:
            wrong.append(f"{name}: {cells} != {expected}")
    assert wrong == []
