"""What the user asks to remember is noted without a model, once."""

from pathlib import Path

import pytest
from remembering import RememberingAgent, add, changes, runs_of

from pal.text import saved_note_line
from palimpsest.core.events import NoteSaved, UserSaid
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, QuotableEvent, SupersedeNote
from palimpsest.memory.extraction import AppliedChanges, apply_changes
from palimpsest.memory.note import Note
from palimpsest.stores.memory_config import MemoryConfig

OFF = MemoryConfig(jobs="off")
LATER = QuotableEvent("s:9", "user", "no, use four spaces for the indent", "2036-05-04T10:00:00Z")


def test_a_message_that_begins_with_remember_is_a_note_in_the_words_of_the_user_with_jobs_off(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF, goes_on=False)
    bodies = agent.work("Remember: run `make lint` before a push")
    (seq,) = [place for place, body in enumerate(bodies) if isinstance(body, UserSaid)]
    (name, note), *rest = agent.notes().items()
    assert rest == []
    assert (name, note.kind, note.trust, note.by, note.body) == (
        "feedback_run_make_lint_before_a_push",
        "feedback",
        "stated",
        "remember",
        "run `make lint` before a push\n",
    )
    (saved,) = [body for body in bodies if isinstance(body, NoteSaved)]
    assert (saved.by, saved.reason, saved.evidence) == ("remember", "added", (note.evidence[0],))
    assert note.evidence[0].endswith(f":{seq}")
    assert runs_of(bodies, "remember") == [("done", "")]
    line = f"noted as {name}: run `make lint` before a push (`pal memory forget {name}` takes it back)"
    assert (saved_note_line(saved), agent.notices) == (line, [])


def test_secrets_are_redacted_and_a_second_equal_message_adds_evidence_only(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok", "fine"), config=OFF)
    agent.work("remember: the key is sk-abcdefghijklmnopqrstuvwxyz0123", "remember: the key is sk-abcdefghijklmnopqrstuvwxyz0123")
    (note,) = agent.notes().values()
    assert note.body == "the key is [REDACTED:openai]\n"
    assert len(note.evidence) == 2
    texts = [path.read_bytes() for path in (agent.home.folder / "memory").rglob("*") if path.is_file()]
    assert not any(b"sk-abcdefg" in text for text in texts)


def test_other_messages_leave_no_trace(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF, goes_on=False)
    bodies = agent.work("do you remember what we did?")
    assert runs_of(bodies, "remember") == []
    assert not (agent.home.folder / "memory").exists()


def test_a_note_that_is_too_long_is_refused_and_the_user_is_told_why(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF, goes_on=False)
    bodies = agent.work("remember: " + "many words of a text " * 600)
    ((status, why),) = runs_of(bodies, "remember")
    assert status == "done"
    assert "at most 1,200 fit in a note" in why
    assert agent.notices == [f"the job remember: not noted: {why}"]


@pytest.mark.states("ME-24")
def test_a_later_extraction_does_not_note_the_same_event_again(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF)
    agent.work("remember: use tabs for the indent")
    (note,) = agent.notes().values()
    source = QuotableEvent(note.evidence[0], "user", "remember: use tabs for the indent", note.when)
    draft = Draft(kind="feedback", about="tabs for the indent", body="The user wants tabs for the indent.", backstory="said so")
    applied = apply_changes(agent.memories, (AddNote(draft, (source.id,), "use tabs for the indent"),), (source,), "extract")
    assert applied == AppliedChanges((), (f"the user had it noted already, in {note.name}",))
    assert agent.notes() == {note.name: note}


def superseding(name: str, kind: str = "user") -> SupersedeNote:
    text = "use four spaces for the indent"
    draft = Draft(kind="user" if kind == "user" else "feedback", about=text, body=text, backstory="the user corrected it")
    return SupersedeNote(name, draft, ("s:9",), "use four spaces for the indent")


def test_a_correction_stays_in_the_scope_of_what_it_corrects(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF)
    agent.work("remember: use tabs for the indent")
    applied = apply_changes(agent.memories, (superseding("feedback_use_tabs_for_the_indent"),), (LATER,), "extract")
    assert applied.refused == ()
    assert [(event.scope, event.name) for event in applied.events] == [
        (agent.memories.project.scope, "feedback_use_four_spaces_for_the_indent"),
        (agent.memories.project.scope, "feedback_use_tabs_for_the_indent"),
    ]
    assert list(agent.notes()) == ["feedback_use_four_spaces_for_the_indent"]


def test_changes_of_one_reply_cannot_touch_what_it_added_nor_names_that_do_not_exist_nor_notes_of_the_team(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, config=OFF)
    (agent.root / ".palimpsest" / "memory" / "notes").mkdir(parents=True)
    team = Note(
        name="project_indent",
        kind="project",
        about="indent by tabs",
        backstory="decided",
        when="2026-05-04T10:00:00Z",
        evidence=("s:1",),
        trust="observed",
        body="Indent by tabs.\n",
    )
    notebook = agent.memories.team
    assert notebook is not None

    notebook.apply(AcceptedChange((team,), reason="added"), "user")
    text = "use four spaces for the indent"
    draft = Draft(kind="user", about=text, body=text, backstory="the user said so")
    adding = AddNote(draft, ("s:9",), text)
    found = apply_changes(
        agent.memories,
        (adding, superseding("user_use_four_spaces_for_the_indent"), superseding("user_missing"), superseding("project_indent")),
        (LATER,),
        "extract",
    )
    assert [event.name for event in found.events] == ["user_use_four_spaces_for_the_indent"]
    assert found.refused == (
        "a reply cannot change a note that it adds itself",
        "there is no note 'user_missing'",
        "notes of the team are changed by people only",
    )


@pytest.mark.parametrize("kind", ["user", "project"])
@pytest.mark.states("ME-11")
def test_what_was_forgotten_in_one_scope_does_not_come_back_in_the_other(tmp_path: Path, kind: str) -> None:
    agent = RememberingAgent(tmp_path, ("ok",), config=OFF)
    agent.work("remember user: I live in Xanadu")
    (note,) = agent.notes().values()
    agent.memories.user.forget(note.name)
    source = QuotableEvent(note.evidence[0], "user", "I live in Xanadu", note.when)
    draft = Draft(kind="user" if kind == "user" else "project", about="lives in Xanadu", body="I live in Xanadu.", backstory="said so")
    applied = apply_changes(agent.memories, (AddNote(draft, (source.id,), "I live in Xanadu"),), (source,), "extract")
    assert applied == AppliedChanges((), ("it rests on events whose note was forgotten",))


def test_extraction_and_the_command_write_into_one_place_without_losing_each_other(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("ok", "fine"), (changes(add("none:1", "x y")),))
    agent.work("remember: use tabs", "second")
    assert list(agent.notes()) == ["feedback_use_tabs"]
