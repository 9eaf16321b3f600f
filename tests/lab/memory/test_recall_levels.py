from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pal_lab.recall.levels import (
    CaseFacts,
    CaseScore,
    LevelRow,
    StaleValue,
    criteria_facts,
    eval_levels,
    found_share,
    read_facts,
    score_case,
    stale_given,
)
from palimpsest.core.errors import BadInput

MESSAGES = [
    {"role": "assistant", "content": "Your checking account number is 4429853327."},
    {"role": "user", "content": "Thanks!"},
]
FILLING = [
    *({"role": "user", "content": f"We also talked about topic {number}, at some length."} for number in range(60)),
    {"role": "assistant", "content": "The routing code is 123006800."},
]
CASE: dict[str, Any] = {
    "test_id": "layer1_01_bank_account",
    "user_question": "What was my checking account number?",
    "conversation_histories": [{"conversation_id": "bank", "timestamp": "2024-10-15 11:00:00", "messages": MESSAGES}],
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
# The cases lie beside a checkout, or are missing.
CASES = Path(__file__).parents[4] / "shared" / "memory-data" / "user-memory-evaluation"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not beside this checkout")
needs_yaml = pytest.mark.skipif(find_spec("ruamel") is None, reason="needs ruamel.yaml")


def test_a_fact_counts_in_any_of_its_spellings_whatever_case_and_white_space() -> None:
    assert found_share((("60-day", "60 day"), ("maple street",), ("x1",)), "The 60 Day rule on Maple\n  Street") == 2 / 3


def test_recalled_text_and_all_messages_are_scored_by_the_same_facts() -> None:
    facts = CaseFacts((("4429853327",), ("123006800",), ("unknown",)), links=(("4429853327", "123006800"), ("4429853327", "checking")))
    case = {**CASE, "conversation_histories": [{**CASE["conversation_histories"][0], "messages": [*MESSAGES, *FILLING]}]}
    found = score_case("layer1_x", case, facts, tokens=60)

    assert found == CaseScore("layer1_x", 0, 3, 1, 1 / 3, 2 / 3, found.tokens, links=0.5)
    assert found.tokens <= 60


@pytest.mark.states("ME-48")
def test_a_stale_value_counts_unless_the_new_one_is_read_before_it() -> None:
    moved = StaleValue(("lisbon",), ("porto", "oporto"))

    assert stale_given((moved,), "Ann lives in Porto, before in Lisbon") == ()
    assert stale_given((moved,), "Ann lived in Lisbon, now in Porto") == ("lisbon",)
    assert stale_given((moved,), "Ann lives in Lisbon") == ("lisbon",)
    assert stale_given((moved,), "Ann lives in Rome") == ()


@pytest.mark.states("ME-48")
def test_a_case_passes_with_four_of_five_facts_and_no_stale_value() -> None:
    assert CaseScore("c", 1, 5, 4, 0.8, 1.0, 900).passed
    assert not CaseScore("c", 1, 5, 3, 0.79, 1.0, 900).passed
    assert not CaseScore("c", 1, 5, 5, 1.0, 1.0, 900, stale=("lisbon",)).passed


def test_the_numbers_of_its_criteria_are_the_facts_of_a_case_without_annotation() -> None:
    case = {
        "user_question": "What of the 2,500?",
        "evaluation_criteria": "Says $1,200.50 by 3/14, code VEL-89; not 7 or 2,500. Again 3/14.",
    }

    assert criteria_facts(case) == (("1,200.50",), ("3/14",), ("vel-89",))


@needs_yaml
def test_cases_are_read_from_a_folder_and_those_without_annotated_facts_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML, encoding="utf-8")
    other = YAML.replace("layer1_01_bank_account", "layer1_99_other") + "evaluation_criteria: It is 4429853327, and 17 more.\n"
    (tmp_path / "b.yaml").write_text(other, encoding="utf-8")
    found = eval_levels(tmp_path)

    assert found.levels == {
        "1": LevelRow(
            cases=2,
            facts=4,
            recalled=2,
            score=0.5,
            ceiling=0.5,
            ratio=1.0,
            second_half=0.5,
            links=1.0,
            stale=0,
            passed=0,
            tokens=max(each.tokens for each in found.scores),
        )
    }
    assert (found.cases, found.unannotated) == (2, ("layer1_99_other",))


@needs_yaml
def test_facts_can_be_given_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML, encoding="utf-8")
    facts = tmp_path / "facts.json"
    facts.write_text('{"layer1_01_bank_account": {"required": [["checking"]]}}', encoding="utf-8")

    assert [(each.facts, each.score) for each in eval_levels(tmp_path, facts=facts).scores] == [(1, 1.0)]
    facts.write_text('{"a": {"required": 3}}', encoding="utf-8")
    with pytest.raises(BadInput, match="these are no facts of cases"):
        read_facts(facts)


@needs_yaml
@needs_cases
@pytest.mark.states("ME-48")
def test_the_three_levels_reach_their_share_of_the_ceiling_within_1000_tokens_and_without_stale_values() -> None:
    found = eval_levels(CASES)

    assert found.cases == 30
    assert {level: row.cases for level, row in found.levels.items()} == {"1": 10, "2": 10, "3": 10}
    assert [row.ratio >= limit for row, limit in zip(found.levels.values(), (0.95, 0.80, 0.60), strict=True)] == [True, True, True]
    assert [row.second_half >= limit for row, limit in zip(found.levels.values(), (0.95, 0.80, 0.60), strict=True)] == [True, True, True]
    assert max(row.tokens for row in found.levels.values()) <= 1_000
    assert [each.stale for each in found.scores if each.stale] == []


@needs_yaml
@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "test_id: layer1_01_bank_account"])
def test_a_file_that_is_no_case_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "case.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match=r"case\.yaml: this "):
        eval_levels(tmp_path)


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no case with facts below this folder"):
        eval_levels(tmp_path)
