import json
from pathlib import Path
from typing import Any

import pytest

from pal_lab.recall.data import AskedConversation, Question, evidence_ids, iso_date, read_conversations
from palimpsest.core.errors import BadInput
from palimpsest.memory.recall_terms import RecallUnit

SAMPLE: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a dog"}],
        "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "Nice."}],
    },
    "qa": [
        {"question": "What did Ann show?", "evidence": ["D2:01"], "category": 4},
        {"question": "No evidence", "evidence": ["D7:7"], "category": 3},
        {"question": "Two", "evidence": ["D2:1; D10:1", "D:2:1"], "category": 5},
        {"question": "None", "category": 1},
    ],
}


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_turns_become_units_in_the_order_of_session_numbers_and_questions_keep_their_place(tmp_path: Path) -> None:
    data = read_conversations(write(tmp_path / "data.json", [SAMPLE]))

    assert (data.name, len(data.digest)) == ("data.json", 64)
    assert data.conversations == (
        AskedConversation(
            "conv-1",
            (
                RecallUnit("D2:1", "Look! [image: a dog]", "Ann", session="D2", date="2023-05-08"),
                RecallUnit("D10:1", "Nice.", "Bob", session="D10"),
            ),
            (
                Question(0, "What did Ann show?", 4, ("D2:1",), ("D2:1",)),
                Question(2, "Two", 5, ("D2:1", "D10:1"), ("D2:1", "D10:1")),
            ),
        ),
    )


def test_an_audit_corrects_evidence_and_leaves_the_published_beside_it(tmp_path: Path) -> None:
    audit = [{"question_id": "locomo_0_qa0", "correct_evidence": ["D10:1"]}, {"question_id": "locomo_0_qa2", "correct_evidence": ["D99:1"]}]
    data = read_conversations(write(tmp_path / "data.json", [SAMPLE]), write(tmp_path / "audit.json", audit))

    first, second = data.conversations[0].questions
    assert (first.evidence, first.corrected) == (("D2:1",), ("D10:1",))
    assert second.corrected == second.evidence


def test_ids_are_found_in_malformed_strings() -> None:
    assert evidence_ids(["D8:6; D9:17", "D:11:26", "D30:05", "D8:6", "none"]) == ("D8:6", "D9:17", "D11:26", "D30:5")


@pytest.mark.parametrize(
    ("text", "expected"), [("1:56 pm on 8 May, 2023", "2023-05-08"), ("on 12 September, 2022", "2022-09-12"), ("8 Foo, 2023", ""), ("", "")]
)
def test_dates_of_sessions_become_iso_dates(text: str, expected: str) -> None:
    assert iso_date(text) == expected


@pytest.mark.parametrize("value", [{}, [1], [{}], [{"conversation": {}, "qa": [{"question": "x", "evidence": [1]}]}]])
def test_other_files_are_refused_with_their_path(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "other.json", value)

    with pytest.raises(BadInput, match=r"other\.json: this is no "):
        read_conversations(path)


def test_a_file_that_is_no_json_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")

    with pytest.raises(BadInput, match=r"broken\.json: this is no list of conversations"):
        read_conversations(tmp_path / "broken.json")
    with pytest.raises(BadInput, match=r"missing\.json: the file cannot be read"):
        read_conversations(tmp_path / "missing.json")
