"""Notes whose cited files have changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from recalling_desk import note

from palimpsest.memory.weigh import CitedFile, changed_paths, cited_files

NOTE = note("project_a", "port", "The port is set in app.py.")
OLD, NEW = "0123456789ab", "ba9876543210"


def test_cited_files_are_read_with_and_without_a_commit() -> None:
    note = replace(NOTE, files=(f"src/app.py@{OLD}@deadbeef", f"a@b.py@{OLD}", "broken", f"x@{OLD}@{NEW}"))
    assert cited_files(note) == (
        CitedFile("src/app.py", OLD, "deadbeef"),
        CitedFile("a@b.py", OLD),
        CitedFile("x", OLD, NEW),
    )


@given(st.text(min_size=1), st.sampled_from(["", "a1b2c3d4", "f" * 40]))
def test_a_cited_file_is_read_as_it_is_written(path: str, commit: str) -> None:
    cited = CitedFile(path, OLD, commit)
    if not path.endswith(f"@{OLD}"):
        assert cited_files(replace(NOTE, files=(cited.text,))) == (cited,)


@pytest.mark.states("ME-18")
def test_a_file_with_other_bytes_a_missing_file_and_a_missing_commit_are_changes() -> None:
    note = replace(NOTE, files=(f"same@{OLD}@c1", f"other@{OLD}@c1", f"gone@{OLD}@c1", f"lost@{OLD}@c2"))
    digests = {"same": OLD, "other": NEW, "lost": OLD}
    assert changed_paths(note, lambda path: digests.get(path, ""), lambda commit: commit == "c1") == ("other", "gone", "lost")
    assert changed_paths(NOTE, str, bool) == ()
