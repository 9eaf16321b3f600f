"""What phase two reads and deletes: quarantine, forgotten events, facts of the logs, skills, and more notes than fit."""

import json
from pathlib import Path

import pytest
from finished_sessions import (
    CONVERSATION,
    CWD,
    DAY,
    HOUR,
    START,
    Replies,
    add_session,
    clock_of,
    consolidate_one,
    model_use,
    places_in,
    read_one,
    run_now,
)
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten, UserSaid
from palimpsest.core.items import Text
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.work import PipelinePlaces
from palimpsest.stores.memory_config import MemoryConfig

NOTE = Note(
    name="user_indent",
    kind="user",
    about="prefers tabs",
    backstory="said",
    when="2026-05-28T10:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="The user prefers tabs.\n",
    by="extract",
)
SUMMARY = """v1

## User profile
- uses tabs [user_indent](notes/user_indent.md)

## Preferences

## General tips

## What is in memory
"""


def saved(places: PipelinePlaces, *notes: Note, scope: str = "user") -> None:
    places.notebook(scope).apply(AcceptedChange(notes, reason="added"), "extract")


def active(places: PipelinePlaces, scope: str = "user") -> list[str]:
    return sorted(places.notebook(scope).notes().active)


def test_notes_in_quarantine_expire_after_thirty_days_with_an_event(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    held = replace(NOTE, name="reference_page", kind="reference", trust="quarantined")
    saved(places, NOTE, held)
    consolidate_one(places, "user", None, Replies())
    clock_of(places).time += 29 * DAY
    saved(places, replace(held, name="reference_new", body="Another page.\n"))
    assert consolidate_one(places, "user", None, Replies()).status == "unchanged"
    clock_of(places).time += DAY
    assert consolidate_one(places, "user", None, Replies()).status == "done"
    assert list(places.notebook("user").notes().quarantine) == ["reference_new"]
    gone = [event.body for event in places.note_folder("user").history() if isinstance(event.body, NoteForgotten)]
    assert [(body.name, body.how) for body in gone] == [("reference_page", "expired")]


def test_beyond_the_most_notes_of_a_scope_the_least_important_leave(tmp_path: Path) -> None:
    places = places_in(tmp_path, MemoryConfig(notes_a_scope=2))
    words = ("alpha", "beta", "gamma")
    notes = [
        replace(NOTE, name=f"user_{word}", about=word, body=f"{word}\n", when=f"2026-05-{10 + place}T10:00:00Z")
        for place, word in enumerate(words)
    ]
    saved(places, replace(notes[0], pinned=True), notes[1], notes[2])
    consolidate_one(places, "user", None, Replies())
    assert active(places) == ["user_alpha", "user_gamma"]


def test_a_note_that_rests_on_forgotten_events_only_is_dropped_when_it_comes_back(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    saved(places, NOTE)
    places.notebook("user").forget("user_indent")
    saved(places, replace(NOTE, name="user_again"))
    consolidate_one(places, "user", None, Replies())
    assert active(places) == []
    with pytest.raises(BadInput):
        places.notebook("user").undo("user_again")


def test_a_summary_made_before_something_was_forgotten_is_made_again_without_it(tmp_path: Path) -> None:
    add_session(tmp_path, "s", (*CONVERSATION, UserSaid((Text("now the lexer"),))))
    places = places_in(tmp_path)
    run_now(places)
    (row,) = places.rows.all()
    assert "use tabs" in places.rollouts(row.scope).read()[row.stem]
    saved(places, NOTE)
    places.notebook("user").forget("user_indent")
    clock_of(places).time += HOUR
    run_now(places)
    (text,) = places.rollouts(row.scope).read().values()
    assert "tabs" not in text
    assert "now the lexer" in text
    assert "tabs" not in (places.scope_folder(row.scope) / "SUMMARY.md").read_text()


def test_after_the_database_was_deleted_summaries_are_adopted_and_nothing_is_lost(tmp_path: Path) -> None:
    add_session(tmp_path, "s")
    places = places_in(tmp_path)
    run_now(places)
    scope = places.scope_of(CWD)
    before = places.rollouts(scope).read()
    (tmp_path / "memory" / "jobs.sqlite").unlink()
    assert consolidate_one(places, scope, None, Replies()).status == "done"
    assert places.rollouts(scope).read() == before
    assert [row.session for row in places.rows.all()] == ["s"]


@pytest.mark.parametrize("days", [1, 200])
def test_what_the_logs_of_a_project_prove_becomes_a_note_without_a_model_however_old_they_are(tmp_path: Path, days: int) -> None:
    for number in range(3):
        add_session(tmp_path, f"s{number}")
    places = places_in(tmp_path, now=START + days * DAY)
    run_now(places)
    assert {each.status for each in run_now(places).scopes} == {"unchanged"}
    scope = places.scope_of(CWD)
    note = places.notebook(scope).notes().active["project_test_command"]
    assert (note.trust, note.by, "`pytest -q`" in note.body) == ("observed", "consolidate", True)
    assert "project_test_command" in (places.scope_folder(scope) / "SUMMARY.md").read_text()
    for number in range(3):
        places.home.store.remove(f"s{number}")
    run_now(places)
    assert active(places, scope) == []


def test_skills_are_proposed_in_the_memory_folder_only_and_one_that_a_person_changed_is_left_alone(tmp_path: Path) -> None:
    for number in range(2):
        add_session(tmp_path, f"s{number}")
    places = places_in(tmp_path)
    reply = {"title": "T", "slug": "t", "context": "", "tasks": [{"name": "n", "outcome": "success"}], "changes": []}
    for number in range(2):
        read_one(places, f"s{number}", model_use(places), Replies(json.dumps(reply)))
    scope = places.scope_of(CWD)
    stems = sorted(places.rollouts(scope).read())
    skill = {"name": "deploy", "description": "Deploy", "steps": ["make deploy"], "sessions": stems}
    empty = SUMMARY.replace("- uses tabs [user_indent](notes/user_indent.md)\n", "")
    assert consolidate_one(places, scope, model_use(places), Replies(json.dumps({"skills": [skill]}), empty)).status == "done"
    path = places.scope_folder(scope) / "skills" / "deploy" / "SKILL.md"
    assert "1. make deploy" in path.read_text()
    assert [found.parent.name for found in tmp_path.rglob("SKILL.md")] == ["deploy"]
    path.write_text(path.read_text() + "mine\n")
    consolidate_one(places, scope, model_use(places), Replies(json.dumps({"skills": []}), empty))
    assert path.read_text().endswith("mine\n")
