"""What commands do to notes: every change is an event with author, reason and evidence, and what was replaced is in no later request."""

import asyncio
from pathlib import Path

import pytest
from coding_tasks import scripted
from families import Family
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.memory.changes import AcceptedChange, RefusedChange
from palimpsest.memory.note import encode_note
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.memory.writing import NewNote, add_note, edit_note, first_line, locate
from palimpsest.stores.home import Home

NOW = "2026-05-04T10:00:00Z"


@pytest.fixture
def memories(tmp_path: Path) -> Memories:
    found = memories_of(Home.at(tmp_path / "home"), tmp_path)
    assert found is not None
    return found


@pytest.mark.states("ME-51")
def test_every_change_is_an_event_with_author_reason_and_evidence(memories: Memories) -> None:
    book = memories.project
    add_note(book, NewNote(kind="project", text="The server is alpha.", about="server"), NOW)
    add_note(book, NewNote(kind="project", text="The server is beta.", about="host", replaces="project_server"), NOW)
    host = book.notes().active["project_host"]
    edit_note(book, host, encode_note(host).replace("beta", "gamma"), NOW)
    book.undo("project_host")
    held = replace(host, name="project_held", trust="quarantined", body="Held back.\n", supersedes=())
    book.apply(AcceptedChange((held,), reason="from a page"), "extract")
    book.promote("project_held")
    path = book.folder / "notes" / "project_held.md"
    path.write_text(path.read_text().replace("Held back.", "Changed by hand."))
    book.pick_up_edits()
    path.unlink()
    book.pick_up_edits()
    recorded = [event.body for event in book.history() if isinstance(event.body, NoteSaved | NoteForgotten)]
    assert [(type(body).__name__, body.name, body.by, body.reason) for body in recorded] == [
        ("NoteSaved", "project_server", "user", "added"),
        ("NoteSaved", "project_host", "user", "corrected"),
        ("NoteForgotten", "project_server", "user", "corrected"),
        ("NoteSaved", "project_host", "user", "edited by the user"),
        ("NoteSaved", "project_host", "user", "undone"),
        ("NoteSaved", "project_held", "extract", "from a page"),
        ("NoteSaved", "project_held", "user", "promoted from quarantine"),
        ("NoteSaved", "project_held", "user", "edited by hand"),
        ("NoteForgotten", "project_held", "user", "deleted by hand"),
    ]
    assert [body.name for body in recorded if not body.evidence] == []


def test_the_evidence_of_a_command_is_the_event_that_records_it(memories: Memories) -> None:
    add_note(memories.user, NewNote(kind="user", text="Speaks Finnish."), NOW)
    (note,) = memories.user.notes().active.values()
    (event,) = [event for event in memories.user.history() if isinstance(event.body, NoteSaved)]
    assert note.evidence == (f"memory.user:{event.seq}",)


def test_an_edit_of_a_note_that_changed_meanwhile_is_refused(memories: Memories) -> None:
    book = memories.project
    add_note(book, NewNote(kind="project", text="The server is alpha.", about="server"), NOW)
    old = book.notes().active["project_server"]
    edit_note(book, old, encode_note(old).replace("alpha", "beta"), NOW)
    late = edit_note(book, old, encode_note(old).replace("alpha", "gamma"), NOW)
    assert late == RefusedChange("the note project_server was changed by another process meanwhile")
    assert book.notes().active["project_server"].body == "The server is beta.\n"


def test_a_new_note_with_the_name_of_a_past_one_overwrites_no_version(memories: Memories) -> None:
    book = memories.project
    for text in ("The server is alpha.", "The server is beta."):
        add_note(book, NewNote(kind="project", text=text, about="server"), NOW)
        note = book.notes().active["project_server"]
        book.apply(AcceptedChange((), (replace(note, status="retracted"),), "gone"), "user")
    assert {key: note.body for key, note in book.notes().past.items()} == {
        "project_server@1": "The server is alpha.\n",
        "project_server@2": "The server is beta.\n",
    }


def test_locate_prefers_active_notes_and_names_the_nearest(memories: Memories) -> None:
    add_note(memories.project, NewNote(kind="project", text="The server is alpha.", about="server"), NOW)
    assert locate(memories, "project_server").place == "active"
    with pytest.raises(BadInput, match="did you mean project_server"):
        locate(memories, "project_serber")
    with pytest.raises(BadInput, match="`pal memory list --quarantine` lists them"):
        locate(memories, "project_server", "", ("quarantine",))


@pytest.mark.parametrize(
    ("text", "line"), [("\n\n# Title\nbody", "Title"), ("one", "one"), ("x" * 200, "x" * 149 + "…"), ("  spaced  \n", "spaced")]
)
def test_a_line_about_a_text_is_its_first_one(text: str, line: str) -> None:
    assert first_line(text) == line


@pytest.mark.states("CL-48")
def test_what_was_replaced_is_in_no_later_request(tmp_path: Path) -> None:
    family = Family(tmp_path)
    found = memories_of(family.home, family.project)
    assert found is not None
    now = "2026-11-01T10:00:00Z"
    add_note(found.project, NewNote(kind="project", text="The staging server is flamingo.", about="staging server flamingo"), now)
    name = "project_staging_server_flamingo"
    add_note(found.project, NewNote(kind="project", text="The staging server is pelican.", about="staging server", replaces=name), now)
    provider = scripted("done", model="claude-sonnet-4-5")

    async def run() -> None:
        async with family.root(provider) as agent:
            await agent.ask("Which staging server do we use?")

    asyncio.run(run())
    bodies = b"".join(request.body for request in provider.requests)
    assert (b"pelican" in bodies or b"project_staging_server" in bodies, b"flamingo" in bodies) == (True, False)
    assert [note.body for note in found.project.notes().past.values()] == ["The staging server is flamingo.\n"]
