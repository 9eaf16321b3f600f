"""Work over notes grows no faster than their number: calls of functions are counted, so that no clock decides."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import pytest
from recalling_desk import Desk, note

from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.note_index import NoteIndex
from palimpsest.memory.query import search_notes
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.weigh import consolidate

FEW = 60
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def notes_of(count: int) -> tuple[Note, ...]:
    """Notes that share three words with each other, and have four of their own."""
    return tuple(
        note(
            f"project_n{number}", f"harbour crane note n{number}", f"fact{number} detail{number} more{number}\n", evidence=(f"s:{number}",)
        )
        for number in range(count)
    )


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python and C a piece of work calls."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def files_opened_by(work: Callable[[], object]) -> int:
    """How many files a piece of work opens."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "c_call" and argument in (os.open, open)

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def desk_with(folder: Path, count: int) -> Desk:
    desk = Desk(folder)
    desk.memories.project.apply(AcceptedChange(notes_of(count), reason="added"), "remember")
    return desk


def saving(folder: Path, count: int) -> Callable[[], object]:
    book = Desk(folder).memories.project
    return lambda: book.apply(AcceptedChange(notes_of(count), reason="added"), "remember")


def indexing(folder: Path, count: int) -> Callable[[], object]:
    books = desk_with(folder, count).memories.notebooks
    return lambda: NoteIndex(books).refresh()


def searching(folder: Path, count: int) -> Callable[[], object]:
    desk = desk_with(folder, count)
    index = NoteIndex(desk.memories.notebooks)
    index.refresh()
    index.save()
    return lambda: search_notes(desk.memories.notebooks, "harbour fact7", desk.clock.now(), root=desk.root, most=5)


def searching_history(folder: Path, count: int) -> Callable[[], object]:
    desk = desk_with(folder, count)
    return lambda: search_notes(desk.memories.notebooks, "harbour fact7", desk.clock.now(), root=desk.root, history=True, most=5)


def consolidating(_: Path, count: int) -> Callable[[], object]:
    return lambda: consolidate(notes_of(count), NOW, lambda text: frozenset(stems(words(text))))


def test_a_write_opens_as_many_files_whether_there_are_few_notes_or_many(tmp_path: Path) -> None:
    opened: list[int] = []
    for count in (FEW, 10 * FEW):
        book = desk_with(tmp_path / str(count), count).memories.project
        change = AcceptedChange((note("project_new", "another thing", "text\n", evidence=("s:9",)),), reason="added")
        book.pick_up_edits()
        opened.append(files_opened_by(lambda book=book, change=change: book.change(lambda _, __: change, "remember")))  # type: ignore[misc]
        assert "project_new" in book.notes().active
    assert 0 < opened[0] == opened[1] < FEW


def test_an_edit_by_hand_is_seen_by_a_notebook_that_has_read_the_file_before(tmp_path: Path) -> None:
    book = desk_with(tmp_path, 1).memories.project
    place = book.folder / "notes" / "project_n0.md"
    assert "fact0" in book.notes().active["project_n0"].body
    place.write_text(place.read_text().replace("fact0", "fact9"))
    assert "fact9" in book.notes().active["project_n0"].body


@pytest.mark.parametrize("prepared", [saving, indexing, searching, searching_history, consolidating])
def test_twice_the_notes_are_at_most_twice_the_work(tmp_path: Path, prepared: Callable[[Path, int], Callable[[], object]]) -> None:
    few, many = (calls_of(prepared(tmp_path / str(count), count)) for count in (FEW, 2 * FEW))
    assert 0 < few < many <= 2.1 * few
