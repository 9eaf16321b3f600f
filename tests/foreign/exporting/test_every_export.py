"""Exports, read back: a model is shown the same, folded or not; and the program that looks at all of them sees what differs."""

import subprocess
import sys
from pathlib import Path

import every_export
import pytest
from corpus import CORPUS, GOLDEN, WITHOUT, corpus
from every_case import every_case
from every_export import differences, renamed, sessions_below, trips

from palimpsest.exchange.transcript import TranscriptSource

FILES = [path for path in corpus("*/*") if path.is_file()]
# The four shortest sessions, below 55,000 characters: `pal compact` finds nothing to fold in them.
TOO_SHORT = ("jazzyalex", "kimuson-claude-code-viewer__5c0375b4", "marshmallow-1867", "pydicom-1458")
ONE, TWO = {"role": "user", "type": "text", "text": "one"}, {"role": "user", "type": "text", "text": "two"}


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_all_thirty_public_sessions_are_sent_there_and_back() -> None:
    assert [len(sessions_below(path)) for path in FILES] == [1] * 30


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
@pytest.mark.parametrize(
    "path",
    # Every fourth one of each program in every run of the tests, all of them with `pytest -m long`.
    [pytest.param(path, marks=[pytest.mark.long] if number % 4 else [], id=path.stem[-24:]) for number, path in enumerate(FILES)],
)
def test_a_public_session_shows_the_same_in_the_files_for_every_agent_folded_or_not(path: Path) -> None:
    (source,) = sessions_below(path)
    done = list(trips(source))
    assert {trip.differences for trip in done} == {()}
    assert len(done) == (3 if any(name in path.name for name in TOO_SHORT) else 6)


@every_case("source", sessions_below(GOLDEN))
def test_a_session_of_ours_shows_the_same_in_the_files_for_every_agent(source: TranscriptSource) -> None:
    assert {trip.differences for trip in trips(source)} == {()}


def test_every_difference_is_listed() -> None:
    assert list(differences([ONE, TWO], [ONE, TWO])) == []
    assert list(differences([ONE, TWO], [TWO])) == [
        '0: {"role":"user","type":"text","text":"one"} became {"role":"user","type":"text","text":"two"}',
        '1: {"role":"user","type":"text","text":"two"} became null',
    ]


def test_another_id_is_no_difference_only_where_the_id_repeats() -> None:
    ours = [{"type": "tool_use", "id": "a"}, {"type": "tool_result", "tool_use_id": "a"}]
    theirs = [{"type": "tool_use", "id": "pal_3_0"}, {"type": "tool_result", "tool_use_id": "pal_3_0"}]
    assert renamed(theirs, ours, frozenset({"a"})) == ours
    assert renamed(theirs, ours, frozenset()) == theirs


def test_the_program_counts_what_it_sent(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, every_export.__file__, GOLDEN / "pi"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("2 sessions, 6 exports, 0 of them different, ")
