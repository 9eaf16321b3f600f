"""Forgetting in a whole home: what other scopes, the database of jobs and running consolidations hold of a note leaves with it."""

import json
from pathlib import Path

import pytest
from finished_sessions import CWD, DAY, START, Replies, add_session, consolidate_one, model_use, places_in, read_one, run_now
from msgspec.structs import replace

from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.plans import Ask
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.home_removal import HomeRemoval, RemovedSessions
from palimpsest.memory.note import Note
from palimpsest.memory.work import PipelinePlaces

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
TEA = replace(
    TESTS, name="user_tea", kind="user", about="drinks green tea", body="The user drinks green tea.\n", trust="stated", evidence=("s9:5",)
)
NAME = "user_lives_in_xanadu"


def traces(folder: Path, *texts: bytes) -> list[str]:
    """The files in which one of the texts stands in any case, without the logs of sessions."""
    found = []
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not path.is_file() or name.startswith("sessions/"):
            continue
        data = path.read_bytes()
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
    places.notebook(places.scope_of(CWD)).apply(AcceptedChange((TESTS,), reason="added"), "extract")
    return places


@pytest.mark.states("ME-09")
def test_after_forget_no_byte_is_left_in_other_scopes_old_git_histories_and_the_database_of_jobs(
    places: PipelinePlaces, tmp_path: Path
) -> None:
    scope = places.scope_of(CWD)
    for each in ("user", scope):
        earlier = places.scope_folder(each) / ".git" / "objects" / "17" / "a-commit-of-an-earlier-version"
        earlier.parent.mkdir(parents=True)
        earlier.write_bytes(b"Xanadu")
    before = traces(tmp_path, b"xanadu", b"kubla")
    assert "memory/jobs.sqlite" in before
    assert any(name.startswith(f"memory/{scope}/rollouts/") for name in before)
    places.notebook("user").forget(NAME)
    assert traces(tmp_path, b"xanadu", b"kubla") == []
    # What another session of that project says stays, although it shares words with the note.
    (kept,) = places.rollouts(scope).read().values()
    assert "Fix the lexer of the live street map." in kept
    assert [row.session for row in places.rows.all()] == ["s2"]


@pytest.mark.states("ME-09")
def test_a_link_in_the_place_of_an_old_git_history_is_not_followed(places: PipelinePlaces, tmp_path: Path) -> None:
    repository = tmp_path / "mine" / "HEAD"
    repository.parent.mkdir()
    repository.write_text("ref: refs/heads/main")
    (places.scope_folder("user") / ".git").symlink_to(repository.parent)
    places.notebook("user").forget(NAME)
    assert repository.read_text() == "ref: refs/heads/main"


def test_a_folder_of_notes_has_no_git_history(places: PipelinePlaces, tmp_path: Path) -> None:
    assert list((tmp_path / "memory").rglob(".git")) == []


@pytest.mark.states("ME-11")
def test_the_session_is_read_again_without_what_was_forgotten_and_does_not_bring_it_back(places: PipelinePlaces, tmp_path: Path) -> None:
    places.notebook("user").forget(NAME)
    later = places_in(tmp_path, now=START + 2 * DAY)
    again = read_one(later, "s1", model_use(later), Replies(json.dumps(replies_without_quotation())))
    assert (again.saved, again.refused) == (0, 1)
    run_now(later)
    assert list(later.notebook("user").notes().active) == []


def replies_without_quotation() -> dict[str, object]:
    """A reply that gives the fact once more, by an event that is no longer read."""
    return {**REPLY, "title": "Parser", "slug": "parser", "context": "", "tasks": [{"name": "parser", "outcome": "success"}]}


SUMMARY = (
    f"v1\n\n## User profile\n- lives in Xanadu [{NAME}](notes/{NAME}.md)\n\n## Preferences\n\n## General tips\n\n## What is in memory\n"
)


@pytest.mark.states("ME-10")
def test_what_is_forgotten_while_a_model_writes_the_summary_is_not_in_it(places: PipelinePlaces, tmp_path: Path) -> None:
    user = places.notebook("user")
    # A change, so that there is something to summarise.
    user.apply(AcceptedChange((TEA,), reason="added"), "extract")

    def forget_first(_: Ask) -> str:
        user.forget(NAME)
        return SUMMARY

    result = consolidate_one(places, "user", model_use(places), Replies(forget_first))
    assert (result.status, result.reason) == ("skipped", "a note was forgotten meanwhile, so that the next run begins again")
    assert traces(tmp_path, b"xanadu", b"kubla") == []
    assert consolidate_one(places, "user", None, Replies()).status == "done"
    assert "drinks green tea" in user.summary()


@pytest.mark.states("ME-10")
def test_what_is_forgotten_while_a_session_is_summarised_goes_with_the_next_run(places: PipelinePlaces, tmp_path: Path) -> None:
    places.notebook("user").forget(NAME)
    again = replace(TEA, name="user_tea_2", evidence=("s1:2",), about="likes the parser", body="Likes the parser of Samarkand.\n")
    places.notebook("user").apply(AcceptedChange((again,), reason="added"), "extract")

    def forget_first(_: Ask) -> str:
        places.notebook("user").forget("user_tea_2")
        return json.dumps({**REPLY, "title": "Samarkand", "slug": "samarkand", "changes": []})

    assert read_one(places, "s1", model_use(places), Replies(forget_first)).status == "done"
    later = places_in(tmp_path, now=START + DAY + 5_000)
    run_now(later)
    assert traces(tmp_path, b"samarkand") == []


@pytest.mark.parametrize("change", ["forgotten", "edited"])
def test_a_note_that_was_changed_while_a_model_was_asked_for_its_line_stays_as_it_is(tmp_path: Path, change: str) -> None:
    places = places_in(tmp_path)
    user = places.notebook("user")
    texts = ("prefers tea over coffee at noon", "prefers tea over coffee at noon always", "prefers tea over coffee at noon today")
    notes = tuple(
        replace(
            TEA,
            name=f"project_tea_{number}",
            about=text,
            body=f"{text}\n",
            evidence=(f"s:{number}",),
            when="2025-12-20T10:00:00Z",
            kind="project",
            uses=1,
            last_used="2026-03-05T10:00:00Z",
        )
        for number, text in enumerate(texts)
    )
    user.apply(AcceptedChange(notes, reason="added"), "extract")

    def change_first(_: Ask) -> str:
        (name,) = user.notes().active
        if change == "forgotten":
            user.forget(name)
        else:
            place = places.scope_folder("user") / "notes" / f"{name}.md"
            place.write_text(place.read_text().replace("noon", "night"))
        return json.dumps({"wordings": [{"name": name, "about": "prefers tea"}]})

    replies = Replies(change_first, SUMMARY, SUMMARY)
    consolidate_one(places, "user", model_use(places), replies)
    assert len(replies.asked) >= 1
    assert {note.body for note in user.notes().active.values()} == (
        set() if change == "forgotten" else {f"{texts[0].replace('noon', 'night')}\n"}
    )


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
