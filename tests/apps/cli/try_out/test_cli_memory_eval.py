import json
from pathlib import Path

import pytest
from coding_folder import write_sessions
from pal_runs import Pal

CHINESE = Path(__file__).parents[3] / "lab" / "memory" / "data" / "chinese.json"


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

    assert list(found) == ["report", "command", "commit"]
    assert (found["report"]["main_questions"], len(found["report"]["questions"])) == (112, 112)


def test_weights_are_printed_as_the_lines_of_the_table(pal: Pal, tmp_path: Path) -> None:
    two = tmp_path / "two.json"
    turns = [{"speaker": "Ann", "dia_id": f"D1:{number}", "text": f"canoe{' 7' * (number % 2)}"} for number in range(1, 9)]
    sample = {"conversation": {"session_1": turns}, "qa": [{"question": "canoe", "evidence": ["D1:1", "D1:3"], "category": 4}]}
    two.write_text(json.dumps([sample]), encoding="utf-8")
    lines = pal("memory", "eval", str(two), "--fit").stdout.splitlines()

    assert lines[0].startswith('    "match": ')
    assert pal.json("memory", "eval", str(two), "--fit")["number"] > 0


def test_latency_is_a_table_and_a_missed_limit_an_exit_code(pal: Pal) -> None:
    result = pal("memory", "eval", str(CHINESE), "--latency", "--units", "200")

    assert result.stdout.splitlines()[2].startswith("| 200 | 400 | ")
    assert result.exit_code == (0 if "kept" in result.stdout else 1)


def test_a_table_is_inserted_into_a_document(pal: Pal, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- chinese begins -->\n<!-- chinese ends -->\n", encoding="utf-8")
    assert pal("memory", "eval", str(CHINESE), "--into", str(page)).exit_code == 0

    assert "| ours, shipped weights | 112 |" in page.read_text(encoding="utf-8")


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
