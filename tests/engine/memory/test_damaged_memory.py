"""Damaged files of memory: a session goes on, notes are read and changed, and nothing that was forgotten is learned again."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from finished_sessions import add_session
from msgspec.structs import replace
from recalling_desk import QUIET, TABS, Desk

from palimpsest.core.errors import StoreError
from palimpsest.core.events import Failed, NoteForgotten, NoteSaved
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.session_index import open_sessions
from palimpsest.memory.store import NoteFolder
from palimpsest.memory.work_store import DaySpending, JobsDatabase, Tokens
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_780_000_000_000)
SEEN = replace(TABS, name="project_seen", kind="project", about="seen", body="Seen in the log.\n", trust="observed", by="extract")


@pytest.fixture
def book(tmp_path: Path) -> Notebook:
    """A notebook with a note of the user and one of a job."""
    book = Notebook(NoteFolder(tmp_path, "user", CLOCK), CLOCK)
    book.apply(AcceptedChange((replace(TABS, by="user"),), reason="added"), "user")
    book.apply(AcceptedChange((SEEN,), reason="added"), "extract")
    return book


def damage(path: Path) -> None:
    data = path.read_bytes()
    middle = data.index(b"\n") + 5
    path.write_bytes(data[:middle] + b"\0garbage\n" + data[middle:])


def test_a_damaged_log_of_notes_is_set_aside_by_the_next_change_and_its_notes_keep_their_trust(book: Notebook, tmp_path: Path) -> None:
    damage(tmp_path / "memory.jsonl")
    assert sorted(book.notes().active) == ["feedback_tabs", "project_seen"]
    book.apply(AcceptedChange((replace(SEEN, name="project_new"),), reason="added"), "extract")
    bodies = [event.body for event in book.history()[1:]]
    assert isinstance(bodies[0], Failed)
    assert (bodies[0].what, bodies[0].by) == ("log", "memory")
    saved = [(body.name, body.by, body.reason) for body in bodies if isinstance(body, NoteSaved)]
    assert ("project_seen", "extract", "recorded after an interruption") in saved
    assert book.notes().active["project_seen"].trust == "observed"
    assert (tmp_path / "memory.damaged").exists()
    # A note that is forgotten later is not named by what was set aside.
    book.forget("project_seen")
    assert not (tmp_path / "memory.damaged").exists()
    assert isinstance(book.history()[-1].body, NoteForgotten)


@pytest.mark.states("ME-13")
def test_a_note_in_quarantine_that_no_log_knows_expires_as_well(tmp_path: Path) -> None:
    clock = FixedClock(1_780_000_000_000)
    book = Notebook(NoteFolder(tmp_path, "user", clock), clock)
    book.apply(AcceptedChange((replace(SEEN, trust="quarantined"),), reason="added"), "extract")
    damage(tmp_path / "memory.jsonl")
    book.pick_up_edits()
    assert book.expire_quarantine(30) == ()
    clock.time += 31 * 86_400_000
    assert [event.name for event in book.expire_quarantine(30)] == ["project_seen"]
    assert dict(book.notes().quarantine) == {}


def test_a_damaged_tombstone_stops_learning_and_no_session(book: Notebook, tmp_path: Path) -> None:
    book.forget("project_seen")
    place = tmp_path / "tombstones.jsonl"
    place.write_bytes(b"garbage\n" + place.read_bytes())
    assert book.forgotten()("project_seen") > 0
    assert book.forgotten()("project_seen") > 0
    with pytest.raises(StoreError, match="line 1 is damaged, so that nothing is learned; repair or delete it"):
        book.memory("extract")


def test_a_turn_goes_on_beside_damaged_notes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.save(TABS)
    for folder in (desk.home.folder / "memory").iterdir():
        if folder.is_dir():
            (folder / "tombstones.jsonl").write_bytes(b"garbage\n")
            if (folder / "memory.jsonl").exists():
                damage(folder / "memory.jsonl")
    agent = desk.agent("with tabs", config=QUIET)
    assert asyncio.run(agent.ask("How do I indent the Makefile recipe?")).text == "with tabs"


def test_a_damaged_database_of_jobs_is_an_error_that_says_what_deleting_it_costs(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path)
    place = JobsDatabase(tmp_path).path
    place.write_bytes(b"no database" * 500)
    advice = "delete it, then sessions are read again and the tokens of this day count from 0"
    with pytest.raises(StoreError, match=f"file is not a database; {advice}"):
        spending.used("2026-05-28")
    place.unlink()
    assert spending.used("2026-05-28") == Tokens()


def test_past_sessions_are_not_read_while_what_was_forgotten_cannot_be_read(tmp_path: Path) -> None:
    add_session(tmp_path, "s")
    place = tmp_path / "memory" / "user" / "tombstones.jsonl"
    place.mkdir(parents=True)
    with closing(open_sessions(tmp_path, FolderHome(tmp_path).store)) as sessions:
        with pytest.raises(StoreError) as raised:
            sessions.refresh(10.0)
        assert raised.value.where == str(place)
        place.rmdir()
        assert sessions.refresh(10.0).read == 1
