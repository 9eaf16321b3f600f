"""Chats in the format of BEAM."""

import json
from pathlib import Path
from typing import Any

import pytest

from pal_lab.recall.data import Question, category_name, message_of, read_data, source_ids
from pal_lab.recall.evaluation import eval_data
from palimpsest.core.errors import BadInput
from palimpsest.memory.recall_terms import RecallUnit

LONG = "The deployment of the weather service uses a canary. " * 20


def chat(name: str, port: int) -> dict[str, Any]:
    return {
        "conversation_id": name,
        "chat": [
            [
                {"role": "user", "id": 0, "content": f"My service listens on port {port}. ->-> 1,1", "time_anchor": "March-15-2024"},
                {"role": "assistant", "id": 1, "content": LONG},
            ],
            [{"role": "user", "id": 2, "content": "I moved to Porto.", "time_anchor": "April-02-2024"}],
        ],
        "probing_questions": str(
            {
                "abstention": [{"question": "What is my shoe size?"}],
                "information_extraction": [{"question": "Which port does the service use?", "source_chat_ids": [0, 77]}],
                "knowledge_update": [{"question": "Where do I live?", "source_chat_ids": {"original": [[0]], "updated": [2]}}],
            }
        ),
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "beam.json"
    path.write_text(json.dumps([chat("1", 8080), chat("2", 9090)]), encoding="utf-8")
    return path


def test_messages_become_units_of_120_words_without_their_suffix(data: Path) -> None:
    found = read_data(data)
    units = found.conversations[0].units

    assert found.form == "BEAM"
    assert [unit.id for unit in units] == ["b1:0", "b1:1", "b1:1.2", "b2:2"]
    assert units[0] == RecallUnit("b1:0", "My service listens on port 8080.", role="user", session="b1", date="2024-03-15")
    assert (units[3].session, units[3].date) == ("b2", "2024-04-02")


@pytest.mark.states("ME-41")
def test_questions_with_a_source_that_exists_are_counted_and_those_without_are_not(data: Path) -> None:
    assert read_data(data).conversations[0].questions == (
        Question(0, "Which port does the service use?", 104, ("b1:0",), ("b1:0",)),
        Question(1, "Where do I live?", 106, ("b1:0", "b2:2"), ("b1:0", "b2:2")),
    )


@pytest.mark.states("ME-43")
def test_parts_of_a_message_are_scored_as_the_message(data: Path) -> None:
    assert (message_of("b1:1.2"), message_of("b1:1"), message_of("D1:3")) == ("b1:1", "b1:1", "D1:3")
    report = eval_data(data)

    assert (report.form, report.main_questions, report.units) == ("BEAM", 4, 8)
    assert list(report.rows[0].categories) == ["information_extraction", "knowledge_update"]
    assert report.row(embeddings=False).name == "ours, shipped weights"
    assert report.row(embeddings=False).categories["information_extraction"].recall_1 == 1.0


def test_ids_are_flattened_out_of_lists_and_dictionaries() -> None:
    assert list(source_ids({"a": [[1, 2], 3], "b": 4})) == [1, 2, 3, 4]
    assert list(source_ids(None)) == []


def test_categories_have_names() -> None:
    assert [category_name(number) for number in (1, 5, 101, 110, 199, 42)] == [
        "multi-hop",
        "adversarial",
        "abstention",
        "temporal_reasoning",
        "other",
        "42",
    ]


@pytest.mark.parametrize("broken", [{"chat": 3}, {"probing_questions": "{"}, {"probing_questions": {"x": [{}, 3]}}])
def test_a_broken_chat_is_refused_with_its_path(tmp_path: Path, broken: dict[str, Any]) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps([chat("1", 1) | broken]), encoding="utf-8")

    with pytest.raises(BadInput, match=r"broken\.json: this is no chat in the format of BEAM"):
        read_data(path)
