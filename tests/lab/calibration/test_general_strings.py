from pathlib import Path

import pytest
from recorded import ended, log_of, said, used

from pal.replay.recording import LoadedSession, load_log
from pal.replay.rereads import general_strings
from pal_lab.cost.calibration import strings_of_projects, write_table
from palimpsest.core.errors import BadInput
from palimpsest.stores.in_memory import MemoryBlobs


def _session(source: str, command: str) -> LoadedSession:
    timed = [*said(0, "Go"), *used(1, "c1", "Bash", f'{{"command": "{command}"}}', "ok"), *ended(9)]
    return load_log(log_of(*timed), MemoryBlobs(), source, "claude")


def test_a_string_that_sessions_of_three_projects_have_is_general() -> None:
    sessions = [
        _session("one__a.jsonl", "git commit Co-Authored-By only_in_this_project"),
        _session("one__b.jsonl", "only_in_this_project in_two_projects"),
        _session("one__c.jsonl", "only_in_this_project"),
        _session("two__a.jsonl", "in_two_projects Co-Authored-By"),
        _session("elsewhere.jsonl", "Co-Authored-By too_short"),
    ]

    assert strings_of_projects(sessions) == ["Co-Authored-By"]


def test_without_any_the_table_stays_as_it_is(tmp_path: Path) -> None:
    table = tmp_path / "table.txt"
    table.write_text("kept\n")
    with pytest.raises(BadInput, match="stays as it is"):
        write_table([tmp_path], table)

    assert table.read_text() == "kept\n"


def test_the_table_that_ships_has_common_words_and_options() -> None:
    assert {"Co-Authored-By", "Documentation", ".toHaveBeenCalledWith"} <= general_strings()
