"""The notes of a scope on disk: changes, edits by hand, corrections, undo and forgetting."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteSaved
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, QuotableEvent, RefusedChange, SupersedeNote, judge_change
from palimpsest.memory.note import Note, encode_note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.store import NoteFolder, digest_of
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_780_000_000_000)
TABS = Note(
    name="user_indent",
    kind="user",
    about="prefers tabs",
    backstory="said at the start",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="The user prefers tabs.\n",
    by="extract",
)


@pytest.fixture
def book(tmp_path: Path) -> Notebook:
    """An empty notebook."""
    return Notebook(NoteFolder(tmp_path / "memory", "user", CLOCK), CLOCK)


def saved(book: Notebook, *notes: Note) -> None:
    book.apply(AcceptedChange(notes, reason="added"), "extract")


def test_an_added_note_is_a_file_an_event_and_a_line_of_the_index(book: Notebook, tmp_path: Path) -> None:
    events = book.apply(AcceptedChange((TABS,), reason="added"), "extract")
    assert events == (NoteSaved("user", "user_indent", 1, digest_of(encode_note(TABS)), "extract", "added", ("s1:1",), "prefers tabs"),)
    assert book.notes().active == {"user_indent": TABS}
    assert (tmp_path / "memory" / "notes" / "user_indent.md").read_text() == encode_note(TABS)
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == "- [user_indent](notes/user_indent.md) 2026-05-01: prefers tabs\n"


@pytest.mark.states("ME-04")
def test_a_hand_edit_is_recorded_once_as_by_the_user(book: Notebook, tmp_path: Path) -> None:
    saved(book, TABS)
    path = tmp_path / "memory" / "notes" / "user_indent.md"
    path.write_text(path.read_text().replace("about: prefers tabs", "about: prefers two tabs"))
    (event,) = book.pick_up_edits()
    assert event == NoteSaved("user", "user_indent", 1, digest_of(path.read_text()), "user", "edited by hand", ("s1:1",))
    assert book.pick_up_edits() == ()
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == "- [user_indent](notes/user_indent.md) 2026-05-28: prefers two tabs\n"


def test_a_note_written_by_hand_in_the_short_form_is_picked_up_and_a_deleted_one_leaves(book: Notebook, tmp_path: Path) -> None:
    saved(book, TABS)
    notes = tmp_path / "memory" / "notes"
    (notes / "project_deploy.md").write_text(
        "---\nname: deploy\ndescription: deploys go out on friday\ntype: project\n---\nFriday, noon.\n"
    )
    (notes / "user_indent.md").unlink()
    (notes / "project_broken.md").write_text("no front matter")
    events = book.pick_up_edits()
    assert [(type(event).__name__, event.name, event.by) for event in events] == [
        ("NoteSaved", "project_deploy", "user"),
        ("NoteForgotten", "user_indent", "user"),
    ]
    read = book.notes()
    assert list(read.active) == ["project_deploy"]
    assert [place for place, _ in read.problems] == ["notes/project_broken.md"]


@pytest.mark.states("ME-05", "ME-08")
def test_a_correction_supersedes_and_undoing_it_makes_the_old_note_the_only_active_one(book: Notebook) -> None:
    saved(book, TABS)
    later = QuotableEvent("s2:1", "user", "no, spaces please", "2026-06-01T10:00:00Z")
    draft = Draft(kind="user", about="prefers spaces", body="The user prefers spaces.", backstory="corrected")
    change = judge_change(SupersedeNote("user_indent", draft, ("s2:1",), "no, spaces"), (later,), book.memory("extract"))
    assert isinstance(change, AcceptedChange)
    book.apply(change, "extract")
    assert list(book.notes().active) == ["user_prefers_spaces"]
    assert list(book.notes().past) == ["user_indent@1"]
    book.undo("user_indent")
    assert {name: note.body for name, note in book.notes().active.items()} == {"user_indent": "The user prefers tabs.\n"}


def test_a_crash_between_the_two_files_of_a_correction_leaves_the_new_note_alone_active(book: Notebook) -> None:
    saved(book, TABS, replace(TABS, name="user_spaces", about="prefers spaces", body="spaces\n", supersedes=("user_indent@1",)))
    assert list(book.notes().active) == ["user_spaces"]


@pytest.mark.states("ME-11")
def test_what_was_forgotten_is_not_learned_again_from_the_same_events(book: Notebook) -> None:
    saved(book, TABS)
    book.forget("user_indent")
    source = QuotableEvent("s1:1", "user", "tabs please", "2026-05-01T10:00:00Z")
    draft = Draft(kind="user", about="prefers tabs", body="tabs", backstory="said")
    assert judge_change(AddNote(draft, ("s1:1",), "tabs please"), (source,), book.memory("extract")) == RefusedChange(
        "it rests on events whose note was forgotten"
    )


@pytest.mark.states("ME-13")
def test_a_note_of_untrusted_output_is_in_quarantine_and_in_no_index(book: Notebook, tmp_path: Path) -> None:
    saved(book, replace(TABS, name="project_x", kind="project", trust="quarantined"))
    assert (list(book.notes().active), list(book.notes().quarantine)) == ([], ["project_x"])
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == ""


def test_a_name_that_leads_elsewhere_and_a_missing_note_are_refused(book: Notebook) -> None:
    for name in ("../x", "a/b", "", "user_none"):
        with pytest.raises(BadInput):
            book.forget(name)
    with pytest.raises(BadInput):
        book.undo("user_none")
    with pytest.raises(BadInput):
        saved(book, replace(TABS, name="../x"))
