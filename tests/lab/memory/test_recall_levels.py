from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.lab.memory.levels import CaseScore, LevelRow, eval_levels, found_share, score_case

CASE: dict[str, Any] = {
    "test_id": "layer1_01_bank_account",
    "user_question": "What was my checking account number?",
    "conversation_histories": [
        {
            "conversation_id": "bank",
            "timestamp": "2024-10-15 11:00:00",
            "messages": [
                {"role": "assistant", "content": "Your checking account number is 4429853327."},
                {"role": "user", "content": "Thanks!"},
                *({"role": "user", "content": f"We also talked about topic {number}, at some length."} for number in range(60)),
                {"role": "assistant", "content": "The routing code is 123006800."},
            ],
        }
    ],
}
YAML = """
test_id: layer1_01_bank_account
user_question: What was my checking account number?
conversation_histories:
- conversation_id: bank
  timestamp: '2024-10-15 11:00:00'
  messages:
  - role: assistant
    content: Your checking account number is 4429853327.
"""
needs_yaml = pytest.mark.skipif(find_spec("ruamel") is None, reason="needs ruamel.yaml")


def test_a_fact_counts_in_any_of_its_spellings_whatever_case_and_white_space() -> None:
    assert found_share((("60-day", "60 day"), ("maple street",), ("x1",)), "The 60 Day rule on Maple\n  Street") == 2 / 3


def test_recalled_text_and_all_messages_are_scored_by_the_same_facts() -> None:
    facts = (("4429853327",), ("123006800",), ("unknown",))

    assert score_case("layer1_x", CASE, facts, tokens=100) == CaseScore("layer1_x", 1, 1 / 3, 2 / 3)


@needs_yaml
def test_cases_are_read_from_a_folder_and_those_without_facts_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(YAML.replace("layer1_01_bank_account", "layer1_99_other"), encoding="utf-8")
    found = eval_levels(tmp_path)

    assert found.rows == (LevelRow(1, 1, 0.5, 0.5, 0),)
    assert found.unknown == ("layer1_99_other",)


@needs_yaml
@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "test_id: layer1_01_bank_account"])
def test_a_file_that_is_no_case_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "case.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match=r"case\.yaml: this "):
        eval_levels(tmp_path)


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no case with annotated facts below this folder"):
        eval_levels(tmp_path)
