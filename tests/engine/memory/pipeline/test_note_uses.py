"""Counted uses of notes: consolidation weighs with them, writes them into the files, and takes them off the counts."""

from pathlib import Path

import pytest
from finished_sessions import DAY, START, Replies, consolidate_one, places_in
from msgspec.structs import replace

from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.consolidation import active_with_uses, is_dirty, write_uses
from palimpsest.memory.note import Note
from palimpsest.memory.recall_store import NoteUse, opened
from palimpsest.memory.work import PipelinePlaces

NOTE = Note(
    name="user_indent",
    kind="user",
    about="prefers tabs",
    backstory="said",
    when="2026-05-28T10:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="The user prefers tabs.\n",
    uses=1,
    shown=2,
    last_used="2026-05-01T00:00:00Z",
    by="extract",
)
CITED = "2026-05-29T00:00:00Z"


def saved(places: PipelinePlaces, *notes: Note) -> None:
    places.notebook("user").apply(AcceptedChange(notes, reason="added"), "extract")


def count(places: PipelinePlaces, **uses: NoteUse) -> None:
    with opened(places.notebook("user").index_file) as stored:
        stored.add_usage("user", uses)


def counted(places: PipelinePlaces) -> dict[str, NoteUse]:
    with opened(places.notebook("user").index_file) as stored:
        return stored.usage("user")


def test_consolidation_writes_counted_uses_into_the_files_once_and_takes_them_off(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    saved(places, NOTE)
    count(places, user_indent=NoteUse(3, 4, CITED), user_gone=NoteUse(1, 1, CITED))
    assert consolidate_one(places, "user", None, Replies()).status == "done"
    note = places.notebook("user").notes().active["user_indent"]
    assert (note.uses, note.shown, note.last_used, note.rev, note.by) == (4, 6, CITED, 1, "extract")
    assert "uses: 4\n" in (places.scope_folder("user") / "notes" / "user_indent.md").read_text()
    assert counted(places) == {}
    assert not is_dirty(places, "user")


def test_what_is_counted_while_uses_are_written_stays_counted(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    saved(places, NOTE)
    count(places, user_indent=NoteUse(5, 1, CITED))
    with opened(places.notebook("user").index_file) as stored:
        stored.subtract_usage("user", {"user_indent": NoteUse(3, 1)})
    assert counted(places) == {"user_indent": NoteUse(2, 0, CITED)}


@pytest.mark.states("ME-33")
def test_uses_alone_rewrite_no_file_and_wait_for_the_next_consolidation(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    saved(places, NOTE)
    consolidate_one(places, "user", None, Replies())
    path = places.scope_folder("user") / "notes" / "user_indent.md"
    before = path.read_bytes()
    count(places, user_indent=NoteUse(1, 1, CITED))
    assert consolidate_one(places, "user", None, Replies()).status == "unchanged"
    assert (path.read_bytes(), counted(places)) == (before, {"user_indent": NoteUse(1, 1, CITED)})


def test_an_old_note_that_replies_cite_does_not_expire_and_its_equal_that_none_cites_does(tmp_path: Path) -> None:
    places = places_in(tmp_path, now=START + 400 * DAY)
    old = replace(NOTE, uses=0, shown=0, last_used="", kind="project", when="2026-01-01T00:00:00Z")
    cited = replace(old, name="project_harbour", about="the harbour crane", body="The crane is blue.\n", evidence=("s:2",))
    unused = replace(old, name="project_meadow", about="the meadow gate", body="The gate squeaks.\n", evidence=("s:3",))
    saved(places, cited, unused)
    count(places, project_harbour=NoteUse(9, 9, "2027-06-20T00:00:00Z"))
    assert active_with_uses(places.notebook("user"))["project_harbour"].uses == 9
    consolidate_one(places, "user", None, Replies())
    assert list(places.notebook("user").notes().active) == ["project_harbour"]


def test_without_a_database_there_is_nothing_to_write(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    saved(places, NOTE)
    assert write_uses(places.notebook("user")) == 0
    assert not places.notebook("user").index_file.exists()
