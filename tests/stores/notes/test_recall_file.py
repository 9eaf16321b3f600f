"""The database of recall: snapshots with what was added since, two processes at once, damage, and bytes that must be gone."""

from pathlib import Path

import pytest

from palimpsest.memory.recall_store import LogRow, NoteUse, RecallFile, Stored

ROW = LogRow("s1", "p", 10, 20)


def test_units_added_since_a_snapshot_stay_with_it_until_it_is_compacted(tmp_path: Path) -> None:
    file = RecallFile(tmp_path / "index.sqlite")
    file.save({"p": b"one"})
    file.add("p", [("s1:1", b"a"), ("s1:2", b"b")], ROW)
    file.add("q", [("s2:1", b"c")], LogRow("s2", "q", 1, 2))
    stored = file.stored("p")
    assert stored == Stored(b"one", 1, (b"a", b"b"), 2)
    assert file.logs() == {"s1": ROW, "s2": LogRow("s2", "q", 1, 2)}
    assert file.compact("p", b"two", stored)
    assert file.stored("p") == Stored(b"two", 2, (), 0)
    assert (file.tail_size("p"), file.tail_size("q"), file.parts()) == (0, 1, ("p", "q"))
    file.close()


def test_a_snapshot_never_loses_what_another_process_added_meanwhile(tmp_path: Path) -> None:
    one, other = RecallFile(tmp_path / "index.sqlite"), RecallFile(tmp_path / "index.sqlite")
    one.add("p", [("s1:1", b"a")], ROW)
    before = one.stored("p")
    other.add("p", [("s1:2", b"b")], ROW)
    assert one.compact("p", b"a", before)
    assert other.stored("p") == Stored(b"a", 1, (b"b",), 2)
    assert not other.compact("p", b"old", before)
    assert one.stored("p").snapshot == b"a"
    one.close()
    other.close()


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"no database at all" * 100)
    file = RecallFile(path)
    assert file.stored("p") == Stored()
    file.save({"p": b"x" * 200_000})
    file.close()
    data = bytearray(path.read_bytes())
    data[4096:80_000] = b"\xff" * (80_000 - 4096)
    path.write_bytes(bytes(data))
    again = RecallFile(path)
    again.stored("p")
    again.save({"p": b"new"})
    assert again.stored("p").snapshot == b"new"
    again.close()


@pytest.mark.states("ME-09")
def test_what_was_replaced_or_dropped_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    file = RecallFile(tmp_path / "index.sqlite")
    file.save({"p": b"Xanadu " * 3_000, "q": b"kept"})
    file.add("p", [("s1:1", b"Xanadu again")], ROW)
    file.add_usage("p", {"user_xanadu": NoteUse(1, 2, "2026")})
    file.save({"p": b"nothing"})
    file.remove_usage("p", ["user_xanadu"])
    file.purge()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"anadu" not in left
    assert b"kept" in left
    file.close()


def test_uses_add_up_and_the_last_one_is_kept(tmp_path: Path) -> None:
    file = RecallFile(tmp_path / "index.sqlite")
    file.add_usage("user", {"a": NoteUse(1, 0, "2026-05-02"), "b": NoteUse(shown=1)})
    file.add_usage("user", {"a": NoteUse(2, 1, "2026-05-01")})
    file.add_usage("team", {"a": NoteUse(9)})
    assert file.usage("user") == {"a": NoteUse(3, 1, "2026-05-02"), "b": NoteUse(0, 1)}
    file.remove_usage("user", ["a"])
    assert file.usage("user") == {"b": NoteUse(0, 1)}
    file.close()


def test_projects_stay_known(tmp_path: Path) -> None:
    file = RecallFile(tmp_path / "index.sqlite")
    file.save_project("/a", "project-1")
    file.close()
    again = RecallFile(tmp_path / "index.sqlite")
    assert again.projects() == {"/a": "project-1"}
    again.close()
