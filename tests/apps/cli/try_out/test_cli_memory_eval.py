import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from coding_folder import write_sessions
from pal_runs import Pal

CHINESE = Path(__file__).parents[3] / "lab" / "memory" / "data" / "chinese.json"


needs_yaml = pytest.mark.skipif(find_spec("ruamel") is None, reason="needs ruamel.yaml")
CASE = """
test_id: layer3_99_x
user_question: Where is the office?
evaluation_criteria: Names 4711.
conversation_histories:
- conversation_id: call
  timestamp: '2024-10-15 11:00:00'
  messages:
  - role: assistant
    content: The office is in Oak Street.
"""


@pytest.fixture
def pal(tmp_path: Path) -> Pal:
    return Pal(tmp_path / "home")


def test_the_table_has_a_row_for_each_ranking_and_says_what_made_it(pal: Pal) -> None:
    result = pal("memory", "eval", str(CHINESE), COLUMNS="160")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ranking", "questions", "nDCG@10", "R@10", "±", "s.e.", "R@1", "all@10", "any@10", "sR@5"]
    assert [line.split("  ")[0] for line in lines[1:4]] == ["FTS5, all words", "FTS5, without stop words", "ours, shipped weights"]
    assert "chinese.json" in lines[4]
    assert "seed 0" in lines[4]


def test_json_has_the_report_the_command_line_and_the_commit(pal: Pal) -> None:
    found = pal.json("memory", "eval", str(CHINESE))

    promised = ["data", "questions", "embeddings", "ndcg@10", "recall@1", "recall@5", "recall@10", "recall@20", "p95_ms", "by_category"]
    assert set(promised) | {"ranking", "report", "gates", "command", "commit"} == set(found)
    assert (found["report"]["main_questions"], len(found["report"]["questions"])) == (112, 112)
    assert (found["data"], found["questions"], found["embeddings"]) == ("chinese.json", 112, False)
    assert found["recall@1"] <= found["recall@5"] <= found["recall@10"] <= found["recall@20"]
    assert found["p95_ms"] > 0
    assert list(found["by_category"]) == ["multi-hop", "single-hop"]


@needs_yaml
def test_cases_and_conversations_are_measured_in_one_run_with_a_table_of_gates(pal: Pal, tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "a.yaml").write_text(CASE, encoding="utf-8")
    result = pal("memory", "eval", str(CHINESE), str(cases), COLUMNS="160")
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert [line[:49] for line in lines if line.startswith("| 3 ")] == ["| 3 | 1 | 1 | 0.00 | 0.00 | 0.00 | 0.00 | 1.00 | "]
    assert "| ME-44 | no model R@10 | ≥ 0.77 | 0.9643 | pass |" in lines
    assert "| ME-45 | BEAM R@10 | ≥ 0.6 |  | not measured: data absent |" in lines
    assert "| ME-48 | level 3, share of the ceiling | ≥ 0.6 | 0 | miss |" in lines
    assert pal("memory", "eval", str(CHINESE), str(cases), "--gate").exit_code == 1
    assert pal("memory", "eval", str(CHINESE), "--gate").exit_code == 0


@needs_yaml
def test_json_of_cases_has_the_levels(pal: Pal, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CASE, encoding="utf-8")
    facts = tmp_path / "facts.json"
    facts.write_text('{"layer3_99_x": {"required": [["oak street"]]}}', encoding="utf-8")
    found = pal.json("memory", "eval", str(tmp_path), "--facts", str(facts))

    assert (found["data"], found["cases"]) == (tmp_path.name, 1)
    assert {key: found["levels"]["3"][key] for key in ("cases", "facts", "recalled", "score")} == {
        "cases": 1,
        "facts": 1,
        "recalled": 1,
        "score": 1.0,
    }


def test_weights_are_printed_as_the_lines_of_the_table(pal: Pal, tmp_path: Path) -> None:
    two = tmp_path / "two.json"
    turns = [{"speaker": "Ann", "dia_id": f"D1:{number}", "text": f"canoe{' 7' * (number % 2)}"} for number in range(1, 9)]
    sample = {"conversation": {"session_1": turns}, "qa": [{"question": "canoe", "evidence": ["D1:1", "D1:3"], "category": 4}]}
    two.write_text(json.dumps([sample]), encoding="utf-8")
    lines = pal("memory", "eval", str(two), "--fit").stdout.splitlines()

    assert lines[0].startswith('    "match": ')
    assert pal.json("memory", "eval", str(two), "--fit")["number"] > 0


def test_latency_is_a_table_and_a_missed_limit_an_exit_code(pal: Pal) -> None:
    result = pal("memory", "eval", str(CHINESE), "--latency", "--units", "100")

    assert result.stdout.splitlines()[2].startswith("| 100 | 400 | ")
    assert result.exit_code == (0 if "kept" in result.stdout else 1)


def test_a_table_is_inserted_into_a_document(pal: Pal, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- chinese begins -->\n<!-- chinese ends -->\n", encoding="utf-8")
    assert pal("memory", "eval", str(CHINESE), "--into", str(page)).exit_code == 0

    assert "| ours, shipped weights | 112 |" in page.read_text(encoding="utf-8")


def test_the_table_of_gates_is_inserted_only_if_gates_are_asked_for(pal: Pal, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- chinese begins -->\n<!-- chinese ends -->\n<!-- gates begins -->\nas before\n<!-- gates ends -->\n", encoding="utf-8"
    )
    pal("memory", "eval", str(CHINESE), "--into", str(page))
    assert "<!-- gates begins -->\nas before\n<!-- gates ends -->" in page.read_text(encoding="utf-8")
    pal("memory", "eval", str(CHINESE), "--gate", "--into", str(page))

    assert "as before" not in page.read_text(encoding="utf-8")
    assert "| ME-45 |" in page.read_text(encoding="utf-8")


def test_a_file_of_another_kind_is_refused_in_one_line(pal: Pal, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    result = pal("memory", "eval", str(tmp_path / "other.json"))

    assert result.exit_code == 2
    assert "this is no list of conversations" in result.stderr


def test_the_sessions_of_coding_agents_are_a_table_or_json_with_what_made_it(pal: Pal, tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions")
    lines = pal("memory", "eval", str(folder), "--coding").stdout.splitlines()

    assert lines[0] == "| question | query | ranking | n | R@1 | R@5 | R@10 | nDCG@10 |"
    assert "| first failure | hard | ours, fixes first | 1 | 1.000 | 1.000 | 1.000 | 1.000 |" in lines
    assert lines[-1].startswith("sessions: 2 sessions of 1 projects, ")
    assert "2 failures with error lines, 1 repaired, 1 questions answered by another session" in lines[-1]
    assert pal.json("memory", "eval", str(folder), "--coding")["repairs"] == 1
