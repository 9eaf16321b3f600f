"""The table of mechanisms: its profiles exist, its tests exist and carry what they show, and every statement with a test has a row."""

from pathlib import Path

import pytest
from stated_by import stated

from pal_lab.mechanisms.rows import Mechanism, mechanisms
from palimpsest.core.errors import BadInput
from palimpsest.policies.named import PROFILES

ROWS = [row for rows in mechanisms().values() for row in rows]


def test_every_row_names_profiles_that_exist_and_says_what_the_system_does() -> None:
    assert {name for row in ROWS for name in row.profiles} <= set(PROFILES)
    assert [row.name for row in ROWS if not (row.codes and row.profiles and row.name and row.system)] == []
    assert {"claude-code", "claude-code-2.1.325", "codex", "codex-0.166", "opencode", "opencode-1.18", "classroom"} <= {
        name for row in ROWS for name in row.profiles
    }


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.codes[0]} {row.name}") for row in ROWS if row.test])
def test_the_test_of_a_row_exists_and_carries_one_of_its_statements(row: Mechanism) -> None:
    assert row.test in stated(), "there is no such test"
    assert stated()[row.test] & set(row.codes), f"the test shows {sorted(stated()[row.test])}"


def test_a_statement_about_the_live_agent_that_has_a_test_has_a_row_that_names_its_system() -> None:
    shown = {code for codes in stated().values() for code in codes if code.startswith("SG-")}
    assert shown - {code for row in ROWS for code in row.codes} == set()


def test_a_row_with_too_few_cells_is_refused_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("# codes\nSG-01 | codex | a name\n")
    with pytest.raises(BadInput, match="a mechanism has 7 cells") as raised:
        mechanisms(tmp_path)
    assert raised.value.where == "one.txt:2"
