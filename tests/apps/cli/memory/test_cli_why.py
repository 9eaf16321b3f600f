"""`pal memory why`: each note leads to the events that it rests on, also in imported and deleted sessions."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import memories_of
from palimpsest.stores.in_memory import FixedClock

NOTE = Note(
    name="project_timeout",
    kind="project",
    about="the timeout is 30 seconds",
    backstory="said in a session",
    when="2031-04-01T09:00:00Z",
    evidence=(f"{SMALL}:2",),
    trust="stated",
    body="The timeout is 30 seconds.\n",
)


def save(pal: Pal, project: Path, *evidence: str) -> None:
    memories = memories_of(pal.home, project)
    assert memories is not None
    memories.project.apply(AcceptedChange((replace(NOTE, evidence=evidence),), reason="added"), "extract")


def why(pal: Pal, project: Path) -> str:
    result = pal("memory", "why", "project_timeout", "--cwd", str(project))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.states("ME-51")
def test_why_prints_the_quoted_events_with_time_and_session(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    save(pal, tmp_path, f"{SMALL}:2", f"{SMALL}:4", f"{SMALL}:6")
    found = pal.json("memory", "why", "project_timeout", "--cwd", str(tmp_path))
    cited = [(each["id"], each["state"], each["speaker"], each["at"]) for each in found["evidence"]]
    assert cited == [
        (f"{SMALL}:2", "found", "user", "2031-04-01T09:00:02.000Z"),
        (f"{SMALL}:4", "found", "assistant", "2031-04-01T09:00:04.000Z"),
        (f"{SMALL}:6", "found", "tool", "2031-04-01T09:00:06.000Z"),
    ]
    assert found["evidence"][0]["text"] == "What is in a.py?"
    assert [(change["what"], change["by"], change["reason"]) for change in found["changes"]] == [("saved", "extract", "added")]
    assert found["changes"][0]["evidence"] == [f"{SMALL}:2", f"{SMALL}:4", f"{SMALL}:6"]
    assert "  > What is in a.py?\n" in why(pal, tmp_path)


@pytest.mark.states("ME-51")
def test_a_deleted_session_and_an_event_that_is_not_there_are_said(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    save(pal, tmp_path, f"{SMALL}:2", f"{SMALL}:99", "20200101-000000-gone:3")
    text = why(pal, tmp_path)
    assert "(the session has no such event)" in text
    assert "20200101-000000-gone:3\n  (the session was deleted)\n" in text
    assert pal("delete", SMALL, "--yes").exit_code == 0
    assert why(pal, tmp_path).count("(the session was deleted)") == 3


@pytest.mark.states("ME-51")
def test_an_imported_session_is_quoted(pal: Pal, tmp_path: Path) -> None:
    source = tmp_path / "claude" / "5a1b9c3e-0d8f-4b7a-9a51-2f60c1d2e3f4.jsonl"
    source.parent.mkdir()
    line = (
        '{"type":"user","uuid":"11111111-1111-4111-8111-111111111111","parentUuid":null,"isSidechain":false,"userType":"external",'
        '"cwd":"/repo","sessionId":"5a1b9c3e-0d8f-4b7a-9a51-2f60c1d2e3f4","version":"2.1.19","timestamp":"2026-05-04T10:00:00.000Z",'
        '"message":{"role":"user","content":"Set the timeout to 30 seconds, always."}}'
    )
    source.write_text(line + "\n")
    imported = pal.json("import", str(source))
    session = imported["files"][0]["session"]
    with Log.open(pal.home.store, session, FixedClock(BEGAN)) as log:
        seq = next(event.seq for event in log.events() if isinstance(event.body, UserSaid))
    save(pal, tmp_path, f"{session}:{seq}")
    assert "> Set the timeout to 30 seconds, always." in why(pal, tmp_path)


def test_of_a_long_event_the_part_is_quoted_that_the_note_is_about(pal: Pal, tmp_path: Path) -> None:
    text = "Weather report. " * 400 + "The timeout is 30 seconds now. " + "More about gardens. " * 400
    with Log.create(pal.home.store, SessionOpened("long", cwd=str(tmp_path)), FixedClock(BEGAN, 1_000)) as log:
        seq = log.append(UserSaid((Text(text),))).seq
        log.sync()
    save(pal, tmp_path, f"long:{seq}")
    quoted = pal.json("memory", "why", "project_timeout", "--cwd", str(tmp_path))["evidence"][0]["text"]
    assert "The timeout is 30 seconds now." in quoted
    assert len(quoted) < 700


def test_secrets_of_a_quoted_event_are_replaced(pal: Pal, tmp_path: Path) -> None:
    secret = "sk-" + "a1b2c3d4e5" * 4
    with Log.create(pal.home.store, SessionOpened("keys", cwd=str(tmp_path)), FixedClock(BEGAN, 1_000)) as log:
        seq = log.append(UserSaid((Text(f"the key is {secret}"),))).seq
        log.sync()
    save(pal, tmp_path, f"keys:{seq}")
    assert secret not in why(pal, tmp_path)


@pytest.mark.states("ME-51")
def test_a_command_an_edit_and_a_retraction_are_events_with_author_and_reason(pal: Pal, tmp_path: Path) -> None:
    where = ("--cwd", str(tmp_path))
    pal("memory", "add", "The server is alpha.", "--about", "server", *where)
    pal("memory", "add", "The server is beta.", "--about", "host", "--replaces", "project_server", *where)
    found = pal.json("memory", "why", "project_server", *where)
    assert [(change["what"], change["by"], change["reason"]) for change in found["changes"]] == [
        ("saved", "user", "added"),
        ("superseded", "user", "corrected"),
    ]
    (cited,) = found["evidence"]
    assert (cited["state"], cited["text"]) == ("command", "added by a command of the user")
    pal("memory", "forget", "project_host", "--yes", "--reason", "wrong", *where)
    gone = pal.json("memory", "why", "project_host", *where)
    assert gone["evidence"] == []
    assert [(change["what"], change["reason"]) for change in gone["changes"]] == [("saved", ""), ("forgotten", "")]


@pytest.mark.parametrize("evidence", ["hand:0", "import.claude-code.0123456789abcdef:0"])
def test_a_note_that_was_written_by_hand_or_imported_says_so(pal: Pal, tmp_path: Path, evidence: str) -> None:
    save(pal, tmp_path, evidence)
    (cited,) = pal.json("memory", "why", "project_timeout", "--cwd", str(tmp_path))["evidence"]
    assert (cited["state"], cited["text"]) in {("hand", "the file was written by hand"), ("import", "said in a session")}
