"""`pal memory search`: notes and past sessions, in which nothing stands before what corrected it."""

from pathlib import Path
from typing import Any

from pal_runs import BEGAN, Pal

from palimpsest.core.events import SessionOpened, TurnEnded, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import memories_of
from palimpsest.stores.in_memory import FixedClock


def session(pal: Pal, name: str, cwd: Path, *texts: str) -> None:
    with Log.create(pal.home.store, SessionOpened(name, cwd=str(cwd)), FixedClock(BEGAN, 1_000)) as log:
        for text in texts:
            log.append(UserSaid((Text(text),)))
            log.append(TurnEnded())
        log.sync()


def search(pal: Pal, cwd: Path, *words: str, code: int = 0) -> Any:
    return pal.json("memory", "search", *words, "--cwd", str(cwd), code=code)


def test_the_json_has_the_fields_that_scripts_rely_on(pal: Pal, tmp_path: Path) -> None:
    pal("memory", "add", "The staging server is alpha.", "--about", "staging", "--cwd", str(tmp_path))
    (found,) = search(pal, tmp_path, "staging", "server")
    assert {key: found[key] for key in ("note", "text", "status", "tokens", "scope", "stale")} == {
        "note": "project_staging",
        "text": "The staging server is alpha.",
        "status": "active",
        "tokens": 6,
        "scope": "project",
        "stale": False,
    }
    assert isinstance(found["score"], float)
    assert len(found["evidence"]) == 1


def test_turns_of_past_sessions_of_this_project_follow_the_notes(pal: Pal, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    session(pal, "one", here, "The flamingo cache is rebuilt by the nightly job.")
    session(pal, "two", there, "The flamingo database is elsewhere.")
    pal("memory", "add", "The flamingo service is ours.", "--about", "flamingo", "--cwd", str(here))
    assert [each["note"] for each in search(pal, here, "flamingo")] == ["project_flamingo"]
    own = search(pal, here, "flamingo", "--sessions")
    assert [(each["note"], each["status"], each["evidence"]) for each in own[1:]] == [("", "said", ["one:1"])]
    every = search(pal, here, "flamingo", "--all-sessions")
    assert sorted(each["evidence"][0] for each in every[1:]) == ["one:1", "two:1"]


def test_every_project_answers_the_questions_that_are_about_it(pal: Pal, tmp_path: Path) -> None:
    animals = ("flamingo", "walrus", "badger", "heron")
    things = ("cache", "queue", "gateway", "ledger", "scheduler", "mailer", "importer", "index", "proxy", "archive")
    for animal in animals:
        (tmp_path / animal).mkdir()
        talk = [f"Please look at the {thing} of the service again, step {step}." for step in range(3) for thing in things]
        session(pal, animal, tmp_path / animal, *talk, *(f"The {thing} of {animal} listens on {thing}-{animal}." for thing in things))
    for animal in animals:
        for place, thing in enumerate(things):
            every = search(pal, tmp_path / "flamingo", f"where does the {thing} of {animal} listen", "--all-sessions", "--limit", "3")
            assert f"{animal}:{2 * (30 + place) + 1}" in [each["evidence"][0] for each in every], (animal, thing)


def test_notes_leave_room_for_what_was_said(pal: Pal, tmp_path: Path) -> None:
    session(pal, "one", tmp_path, "The flamingo cache is rebuilt by the nightly job.")
    for place in range(4):
        pal("memory", "add", f"The flamingo has wing {place}.", "--about", f"flamingo {place}", "--cwd", str(tmp_path))
    assert [each["status"] for each in search(pal, tmp_path, "flamingo", "--sessions", "--limit", "2")] == ["active", "said"]


def test_what_holds_only_later_is_not_found_as_true_now_and_what_it_replaces_holds_until_then(pal: Pal, tmp_path: Path) -> None:
    add = ("memory", "add", "--attribute", "staging.name", "--cwd", str(tmp_path))
    pal(*add, "The staging server is alpha.")
    pal(*add, "The staging server is beta.", "--from", "2099-01-01")
    assert [each["text"] for each in search(pal, tmp_path, "staging", "server")] == ["The staging server is alpha."]
    pal(*add, "The staging server is gamma.", "--from", "2020-01-01")
    assert [each["text"] for each in search(pal, tmp_path, "staging", "server")][:1] == ["The staging server is gamma."]


def test_what_was_forgotten_is_found_in_no_session(pal: Pal, tmp_path: Path) -> None:
    session(pal, "one", tmp_path, "The flamingo code is 4711.")
    assert [each["evidence"] for each in search(pal, tmp_path, "flamingo", "--sessions")] == [["one:1"]]
    memories = memories_of(pal.home, tmp_path)
    assert memories is not None
    note = Note(
        name="project_flamingo",
        kind="project",
        about="flamingo code",
        backstory="said",
        when="2031-04-01T09:00:00Z",
        evidence=("one:1",),
        trust="stated",
        body="The flamingo code is 4711.\n",
    )
    memories.project.apply(AcceptedChange((note,)), "extract")
    assert pal("memory", "forget", "project_flamingo", "--yes", "--cwd", str(tmp_path)).exit_code == 0
    assert search(pal, tmp_path, "flamingo", "--sessions", code=1) == []


def test_history_lists_a_chain_newest_first_and_is_found_by_old_words(pal: Pal, tmp_path: Path) -> None:
    for value in ("85 kilos", "100 kilos", "95 kilos"):
        pal("memory", "add", f"The load is {value}.", "--attribute", "load", "--cwd", str(tmp_path))
    assert [each["text"] for each in search(pal, tmp_path, "load")] == ["The load is 95 kilos."]
    assert [each["text"] for each in search(pal, tmp_path, "85", "--history")] == [
        "The load is 95 kilos.",
        "The load is 100 kilos.",
        "The load is 85 kilos.",
    ]
    shown = pal("memory", "search", "load", "--history", "--cwd", str(tmp_path)).stdout
    assert shown.count("  was ") == 2


def test_summaries_of_sessions_are_found_as_files_unless_only_notes_of_the_user_are_asked_for(pal: Pal, tmp_path: Path) -> None:
    summary = pal.home.folder / "memory" / "memories_v2" / "rollout_summaries" / "moving.md"
    summary.parent.mkdir(parents=True)
    summary.write_text("# Moving the shop\n\nThe shop moved to the harbour.\n")
    (found,) = search(pal, tmp_path, "harbour")
    assert (found["note"], found["status"]) == (str(summary), "summary")
    assert search(pal, tmp_path, "harbour", "--scope", "user", code=1) == []


def test_nothing_found_is_exit_code_1(pal: Pal, tmp_path: Path) -> None:
    result = pal("memory", "search", "nothing", "--cwd", str(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "nothing found\n")
