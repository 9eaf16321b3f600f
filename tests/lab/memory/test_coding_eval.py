"""Recall over the sessions of coding agents: files of a real program in a folder, and the scores of two rankings."""

from pathlib import Path

import pytest
from coding_folder import write_sessions
from corpus import CORPUS, WITHOUT

from pal_lab.recall.evaluation import RIVALS, SAID_ONLY, CodingRow, eval_coding
from palimpsest.core.errors import BadInput


def test_each_rule_and_variant_is_scored_for_the_rival_and_for_us(tmp_path: Path) -> None:
    report = eval_coding(write_sessions(tmp_path))
    assert (report.projects, report.sessions, report.failures, report.repairs, report.elsewhere) == (1, 2, 2, 1, 1)
    kinds = {(row.rule, row.variant, row.ranking, row.questions) for row in report.rows}
    names = ("FTS5, what was said", "FTS5, our units", "ours")
    errors = ("first failure", "known error")
    assert kinds == {
        *((rule, variant, name, 1) for rule in errors for variant in ("exact", "hard") for name in (*names, "ours, fixes first")),
        *(("path of one turn", variant, name, 1) for variant in ("exact", "hard") for name in names),
    }
    assert {row.setting for row in report.rows if row.ranking.startswith("FTS5")} <= {*RIVALS, *SAID_ONLY}
    assert {row.project for row in report.by_project} == {"repo"}


def test_what_was_said_does_not_name_the_error_and_our_units_do(tmp_path: Path) -> None:
    rows = {(row.variant, row.ranking): row for row in eval_coding(write_sessions(tmp_path)).rows if row.rule == "first failure"}
    assert rows["hard", "FTS5, what was said"].recall_10 == 0
    assert rows["hard", "ours, fixes first"] == CodingRow("first failure", "hard", "ours, fixes first", 1, 1.0, 1.0, 1.0, 1.0)


def test_a_folder_without_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no session below this folder"):
        eval_coding(tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not CORPUS.exists(), reason=WITHOUT)
def test_a_path_leads_to_the_last_decision_about_it_more_often_than_by_words_alone() -> None:
    report = eval_coding(CORPUS)
    rows = {(row.rule, row.variant, row.ranking): row for row in report.rows}
    for rule in ("path", "path of one turn"):
        for variant in ("exact", "hard"):
            ours, rival = rows[rule, variant, "ours"], rows[rule, variant, "FTS5, our units"]
            assert ours.ndcg_10 > rival.ndcg_10 + 0.15
            assert ours.recall_10 >= 0.95
    assert rows["known error", "hard", "ours"].recall_1 >= 0.95
    assert (rows["path", "exact", "ours"].questions, rows["known error", "exact", "ours"].questions) == (42, 19)
