"""How long snapshots are kept: as long as a session needs them."""

from pathlib import Path

import pytest
from git_projects import Project

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.shadow_git import SavedFile, Shadow, blob_id, forget_session
from palimpsest.stores.snapshots import LeftOut, line_counts, merge_files, read_snapshot, take_snapshot, write_snapshot

pytestmark = pytest.mark.machine


@pytest.fixture
def shadow(tmp_path: Path) -> Shadow:
    (tmp_path / "project").mkdir()
    return Shadow(tmp_path / "home", tmp_path / "project")


def taken(shadow: Shadow, session: str, content: str) -> str:
    """A snapshot for a session."""
    (shadow.root / "a.txt").write_text(content)
    snapshot = take_snapshot(shadow).id
    shadow.keep(session, snapshot)
    return snapshot


def test_deleting_a_session_removes_what_only_its_snapshots_need(tmp_path: Path, shadow: Shadow) -> None:
    first, second = taken(shadow, "one", "first"), taken(shadow, "two", "second")
    assert forget_session(tmp_path / "home", "one") == 1
    with pytest.raises(StoreError):
        read_snapshot(shadow, first)
    assert read_snapshot(shadow, second).files == {"a.txt": SavedFile("100644", blob_id(b"second"))}
    # The next snapshot of the same state is whole, although the index had named contents that are gone.
    assert list(shadow.contents((read_snapshot(shadow, taken(shadow, "two", "first")).files["a.txt"].oid,))) == [b"first"]


def test_a_home_with_a_relative_path_works_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    shadow = Shadow(Path("home"), Path("project"))
    taken(shadow, "one", "first")
    taken(shadow, "two", "second")
    assert forget_session(Path("home"), "one") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "project"]


def test_the_last_session_takes_the_repository_with_it(tmp_path: Path, shadow: Shadow) -> None:
    taken(shadow, "one", "first")
    assert forget_session(tmp_path / "home", "one") == 1
    assert [path.suffix for path in (tmp_path / "home/snapshots").iterdir()] == [".lock"]
    assert forget_session(tmp_path / "home", "one") == 0


@pytest.mark.parametrize(
    ("session", "snapshot"), [("../x", "0" * 40), ("", "0" * 40), ("a/b", "0" * 40), ("one", "../../x"), ("a..b", "0" * 40)]
)
def test_names_that_lead_elsewhere_are_refused(shadow: Shadow, session: str, snapshot: str) -> None:
    with pytest.raises(BadInput, match="do not name a session and a snapshot"):
        shadow.keep(session, snapshot)


def test_a_planned_state_differs_by_its_files_and_folders(shadow: Shadow) -> None:
    Project(shadow.root).put({"a.txt": "a\n", "b/c.txt": "c\n", "b/d.txt": "d\n", "e/f.txt": "f\n"})
    base = take_snapshot(shadow).id
    new = SavedFile("100755", shadow.add_object("blob", b"new\nlines\n"))
    changes = {"a.txt": new, "b/c.txt": None, "b/d.txt": None, "e/f.txt": None}
    planned = write_snapshot(shadow, base, changes, made=frozenset({"g"}), removed=frozenset({"b"}))
    found = read_snapshot(shadow, planned)
    assert (found.files, found.left_out) == ({"a.txt": new}, (LeftOut("folder", "e/"), LeftOut("folder", "g/")))
    assert line_counts(shadow, base, planned) == {"a.txt": (2, 1), "b/c.txt": (0, 1), "b/d.txt": (0, 1), "e/f.txt": (0, 1)}


def saved(shadow: Shadow, content: bytes, mode: str = "100644") -> SavedFile:
    return SavedFile(mode, shadow.add_object("blob", content))


def test_changes_of_different_lines_merge_and_those_of_the_same_do_not(shadow: Shadow) -> None:
    with shadow.locked():
        base, ours, theirs = (saved(shadow, text) for text in (b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\nours\n", b"theirs\n2\n3\n4\n5\n"))
        merged = merge_files(shadow, base, ours, theirs)
        assert merged == SavedFile("100644", blob_id(b"theirs\n2\n3\n4\nours\n"))
        assert merge_files(shadow, base, saved(shadow, b"ours\n2\n3\n4\n5\n"), theirs) is None
        assert merge_files(shadow, base, saved(shadow, b"1\n2\0\n3\n4\nours\n"), theirs) is None
        assert merge_files(shadow, base, SavedFile("120000", ours.oid), theirs) is None


def test_a_damaged_content_is_an_error_and_no_file(shadow: Shadow) -> None:
    snapshot = taken(shadow, "one", "first")
    [oid] = [saved.oid for saved in read_snapshot(shadow, snapshot).files.values()]
    (shadow.folder / "objects" / oid[:2] / oid[2:]).chmod(0o600)
    (shadow.folder / "objects" / oid[:2] / oid[2:]).write_bytes(b"")
    with pytest.raises(StoreError):
        list(shadow.contents((oid,)))
