"""Forgetting in a whole home: what other scopes, the database of jobs and running consolidations hold of a note leaves with it."""

import json
import subprocess
import zlib
from pathlib import Path

import pytest
from finished_sessions import CWD, DAY, START, Replies, add_session, model_use, places_in, read_one, run_now

from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.stores.notes.home_removal import HomeRemoval, RemovedSessions

SAID = (
    UserSaid((Text("I live in Xanadu, on Kubla street."),)),
    UserSaid((Text("Fix the parser."),)),
    ModelReplied((Text("Done. A parcel goes to Xanadu.", "assistant"),)),
)
OTHER = (UserSaid((Text("Fix the lexer of the live street map."),)), ModelReplied((Text("Done.", "assistant"),)))
DRAFT = {"kind": "user", "about": "lives in Xanadu", "body": "The user lives in Xanadu, on Kubla street.", "backstory": "said at the start"}
REPLY = {
    "title": "Moved to Xanadu",
    "slug": "moved-to-xanadu",
    "context": "The user lives in Xanadu.",
    "tasks": [{"name": "parcel to Xanadu", "outcome": "success"}],
    "changes": [{"type": "add", "note": DRAFT, "evidence": ["s1:1"], "quote": "I live in Xanadu, on Kubla street"}],
}
TESTS = Note(
    name="project_tests",
    kind="project",
    about="tests run with make check",
    backstory="seen",
    when="2026-05-28T10:00:00Z",
    evidence=("s2:1",),
    trust="observed",
    body="Run make check.\n",
    by="extract",
)
NAME = "user_lives_in_xanadu"


def traces(folder: Path, *texts: bytes) -> list[str]:
    """The files in which one of the texts stands in any case, objects of a history among them, and without the logs of sessions."""
    found = []
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not path.is_file() or name.startswith("sessions/"):
            continue
        data = path.read_bytes()
        if "/.git/objects/" in name and "pack" not in name:
            data = zlib.decompress(data)
        if any(text in data.lower() or text in name.encode().lower() for text in texts):
            found.append(name)
    return found


@pytest.fixture
def places(tmp_path: Path) -> PipelinePlaces:
    """A home in which a session told where the user lives: a note of the user, and a summary in the scope of the project."""
    add_session(tmp_path, "s1", SAID)
    add_session(tmp_path, "s2", OTHER)
    places = places_in(tmp_path)
    assert read_one(places, "s1", model_use(places), Replies(json.dumps(REPLY))).saved == 1
    run_now(places)
    # A change of notes puts the summaries into the history of the project's folder.
    places.notebook(places.scope_of(CWD)).apply(AcceptedChange((TESTS,), reason="added"), "extract")
    return places


def test_me_09_after_forget_no_byte_is_left_in_other_scopes_their_histories_and_the_database_of_jobs(
    places: PipelinePlaces, tmp_path: Path
) -> None:
    scope = places.scope_of(CWD)
    before = traces(tmp_path, b"xanadu", b"kubla")
    assert "memory/jobs.sqlite" in before
    assert any(name.startswith(f"memory/{scope}/rollouts/") for name in before)
    assert any(name.startswith(f"memory/{scope}/.git/objects/") for name in before)
    places.notebook("user").forget(NAME)
    assert traces(tmp_path, b"xanadu", b"kubla") == []
    # What another session of that project says stays, although it shares words with the note.
    (kept,) = places.rollouts(scope).read().values()
    assert "Fix the lexer of the live street map." in kept
    assert [row.session for row in places.rows.all()] == ["s2"]
    log = subprocess.run(["git", "-C", str(places.scope_folder(scope)), "log", "--format=%s"], check=True, capture_output=True, text=True)
    assert log.stdout == "a note was forgotten\n"


def test_me_11_the_session_is_read_again_without_what_was_forgotten_and_does_not_bring_it_back(
    places: PipelinePlaces, tmp_path: Path
) -> None:
    places.notebook("user").forget(NAME)
    later = places_in(tmp_path, now=START + 2 * DAY)
    again = read_one(later, "s1", model_use(later), Replies(json.dumps(replies_without_quotation())))
    assert (again.saved, again.refused) == (0, 1)
    run_now(later)
    assert list(later.notebook("user").notes().active) == []


def replies_without_quotation() -> dict[str, object]:
    """A reply that gives the fact once more, by an event that is no longer read."""
    return {**REPLY, "title": "Parser", "slug": "parser", "context": "", "tasks": [{"name": "parser", "outcome": "success"}]}


def test_a_damaged_database_of_jobs_is_deleted_because_it_may_hold_what_is_forgotten(places: PipelinePlaces, tmp_path: Path) -> None:
    place = tmp_path / "memory" / "jobs.sqlite"
    place.write_bytes(b"no database, and Xanadu in it" * 400)
    places.notebook("user").forget(NAME)
    assert traces(tmp_path, b"xanadu", b"kubla") == []
    run_now(places)
    assert sorted(row.session for row in places.rows.all()) == ["s1", "s2"]


def test_a_folder_beside_the_scopes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "memory" / "mine" / "rollouts").mkdir(parents=True)
    place = tmp_path / "memory" / "mine" / "rollouts" / "x.md"
    place.write_text("Xanadu")
    home = HomeRemoval(tmp_path / "memory", tmp_path / "memory" / "user")
    home.clean_scopes(lambda _: lambda *_: None)
    home.clean_jobs(RemovedSessions(frozenset(), lambda *_: True))
    assert place.read_text() == "Xanadu"
