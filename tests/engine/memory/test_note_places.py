"""Notes on disk: the index, edits by hand, quarantine, cards, and the bounds of a scope."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.core.tokens import estimate
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, Memory, QuotableEvent, RefusedChange, judge_change
from palimpsest.memory.note import LONGEST_BODY, LONGEST_FRONT_MATTER, Note, encode_note
from palimpsest.memory.notebook import Notebook, memories_of
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.store import LARGEST_FILE, NoteFolder, digest_of
from palimpsest.memory.weigh import consolidate
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_780_000_000_000)
LATER = FixedClock(1_780_000_000_000 + 31 * 86_400_000)
PORT = Note(
    name="project_port",
    kind="project",
    about="port of the service",
    backstory="seen in the settings",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="observed",
    body="The port of the service is 8080.\n",
    attribute="service.port",
    by="extract",
)
PAGE = replace(PORT, name="project_page", trust="quarantined", attribute="", about="limits of the API", body="A page states limits.\n")


def content_words(text: str) -> frozenset[str]:
    return frozenset(stems(words(text)))


def notebook(tmp_path: Path, clock: FixedClock = CLOCK) -> Notebook:
    return Notebook(NoteFolder(tmp_path / "memory", "project-a", clock), clock)


def saved(book: Notebook, *notes: Note) -> None:
    book.apply(AcceptedChange(notes, reason="added"), "extract")


@pytest.mark.states("ME-03")
def test_the_index_is_byte_equal_after_the_databases_and_itself_were_deleted(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT, replace(PORT, name="project_office", attribute="", about="office in Ulm", body="The office is in Ulm.\n"))
    place = tmp_path / "memory" / "MEMORY.md"
    before = place.read_bytes()
    (tmp_path / "memory" / "index.sqlite").write_bytes(b"lost")
    (tmp_path / "memory" / "index.sqlite").unlink()
    place.unlink()
    assert notebook(tmp_path).pick_up_edits() == ()
    assert place.read_bytes() == before
    place.write_text("edited by hand\n")
    notebook(tmp_path).pick_up_edits()
    assert place.read_bytes() == before


@pytest.mark.states("ME-04")
def test_a_hand_edit_holds_against_what_was_noted_before_it_and_survives_consolidation(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    newer = replace(PORT, name="project_port_2", body="The port of the service is 7070.\n", when="2026-05-20T10:00:00Z", evidence=("s2:1",))
    saved(book, PORT, newer)
    place = tmp_path / "memory" / "notes" / "project_port.md"
    place.write_text(place.read_text().replace("8080", "9090"))
    edited = place.read_text()
    assert [(event.by, event.reason) for event in book.pick_up_edits()] == [("user", "edited by hand")]
    shown = book.notes().active["project_port"]
    assert (shown.by, shown.trust, shown.when) == ("user", "stated", "2026-05-28T20:26:40Z")
    result = consolidate(book.notes().active.values(), datetime(2026, 6, 1, tzinfo=UTC), content_words)
    for step in result.steps:
        book.apply(AcceptedChange(step.saved, step.past, step.why), "consolidate")
    assert {name: note.body for name, note in book.notes().active.items()} == {"project_port": "The port of the service is 9090.\n"}
    assert "9090" in edited
    assert book.pick_up_edits() == ()


@pytest.mark.states("ME-04")
def test_a_statement_after_the_edit_corrects_it(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    place = tmp_path / "memory" / "notes" / "project_port.md"
    place.write_text(place.read_text().replace("8080", "9090"))
    book.pick_up_edits()
    said = replace(PORT, name="project_port_2", body="The port is 7070.\n", trust="stated", when="2026-06-20T10:00:00Z", evidence=("s2:1",))
    saved(book, said)
    result = consolidate(book.notes().active.values(), datetime(2026, 7, 1, tzinfo=UTC), content_words)
    assert [note.body for note in result.notes.values()] == ["The port is 7070.\n"]


def test_a_note_that_was_deleted_by_hand_is_retracted_and_not_learned_again_from_its_events(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    (tmp_path / "memory" / "notes" / "project_port.md").unlink()
    assert book.pick_up_edits() == (NoteForgotten("project-a", "project_port", 0, "retracted", "user", "deleted by hand", ("s1:1",)),)
    source = QuotableEvent("s1:1", "tool", "the port of the service is 8080", "2026-05-01T10:00:00Z")
    draft = Draft(kind="project", about="port of the service", body="The port of the service is 8080.", backstory="seen")
    outcome = judge_change(AddNote(draft, ("s1:1",), "the port of the service"), (source,), book.memory("extract"))
    assert isinstance(outcome, RefusedChange)


def test_a_file_that_cannot_be_read_is_a_problem_and_not_deleted(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    place = tmp_path / "memory" / "notes" / "project_port.md"
    text = place.read_text()
    place.write_text(text + "x" * LARGEST_FILE)
    assert (book.pick_up_edits(), [name for name, _ in book.notes().problems]) == ((), ["notes/project_port.md"])
    place.write_text(text)
    assert (book.pick_up_edits(), list(book.notes().active)) == ((), ["project_port"])


@pytest.mark.parametrize(("line", "why"), [("when: someday", "a time with a zone"), ("valid_to: 2026-99-99", "are dates")])
def test_a_note_with_an_impossible_time_is_a_problem_and_breaks_nothing(tmp_path: Path, line: str, why: str) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    key = line.partition(":")[0]
    lines = [each for each in encode_note(PORT).split("\n") if not each.startswith(f"{key}:")]
    (tmp_path / "memory" / "notes" / "project_bad.md").write_text(
        "\n".join([lines[0], line, *lines[1:]]).replace("project_port", "project_bad")
    )
    read = book.notes()
    assert (list(read.active), [(place, why in reason) for place, reason in read.problems]) == (
        ["project_port"],
        [("notes/project_bad.md", True)],
    )


@pytest.mark.states("ME-13")
def test_a_promotion_moves_a_note_out_of_quarantine_and_records_who(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PAGE)
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == ""
    with pytest.raises(BadInput, match="by a person, not by extract"):
        book.promote("project_page", by="extract")
    (event,) = book.promote("project_page", by="user")
    text = (tmp_path / "memory" / "notes" / "project_page.md").read_text()
    assert event == NoteSaved(
        "project-a",
        "project_page",
        2,
        digest_of(text),
        "user",
        "promoted from quarantine",
        ("s1:1", "memory.project-a:2"),
        "limits of the API",
    )
    notes = book.notes()
    assert (notes.active["project_page"].trust, notes.active["project_page"].by, dict(notes.quarantine)) == ("stated", "user", {})
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == "- [project_page](notes/project_page.md) 2026-05-28: limits of the API\n"


def test_what_no_person_promotes_expires_with_an_event(tmp_path: Path) -> None:
    saved(notebook(tmp_path), PAGE, PORT)
    assert notebook(tmp_path).expire_quarantine(30) == ()
    (event,) = notebook(tmp_path, LATER).expire_quarantine(30)
    why = "no person promoted it within 30 days"
    assert event == NoteForgotten("project-a", "project_page", 1, "expired", "consolidate", why, ("s1:1",))
    notes = notebook(tmp_path).notes()
    assert (dict(notes.quarantine), list(notes.active)) == ({}, ["project_port"])
    assert notebook(tmp_path).pick_up_edits() == ()


@pytest.mark.states("CL-45")
def test_a_card_without_person_relationship_backstory_or_date_is_no_note(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    for field in ("backstory", "when"):
        lines = [each for each in encode_note(PORT).split("\n") if not each.startswith(f"{field}:")]
        (tmp_path / "memory" / "notes" / f"project_{field}.md").write_text("\n".join(lines).replace("project_port", f"project_{field}"))
    for field in ("person", "relationship"):
        text = encode_note(replace(PORT, name=f"project_{field}", person="Ann", relationship="sister"))
        value = {"person": "Ann", "relationship": "sister"}[field]
        (tmp_path / "memory" / "notes" / f"project_{field}.md").write_text(text.replace(f"{field}: {value}", f"{field}:"))
    read = book.notes()
    assert list(read.active) == ["project_port"]
    assert [place for place, _ in read.problems] == [f"notes/project_{each}.md" for each in ("backstory", "person", "relationship", "when")]


@pytest.mark.states("CL-46")
def test_two_cards_that_differ_only_in_person_are_both_kept(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    ann = replace(
        PORT, name="project_ann", person="Ann", relationship="sister", about="birthday in May", body="Born in May.\n", attribute="birthday"
    )
    bob = replace(ann, name="project_bob", person="Bob", relationship="brother")
    saved(book, ann, bob)
    result = consolidate(book.notes().active.values(), datetime(2026, 6, 1, tzinfo=UTC), content_words)
    assert (result.steps, result.contested) == ((), ())
    assert {name: (note.person, note.relationship) for name, note in book.notes().active.items()} == {
        "project_ann": ("Ann", "sister"),
        "project_bob": ("Bob", "brother"),
    }


@pytest.mark.states("CL-48")
def test_a_replaced_card_is_in_the_log_and_in_nothing_that_is_shown(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    saved(book, PORT)
    new = replace(PORT, name="project_port_2", about="port is 9090", body="The port is 9090.\n", supersedes=("project_port@1",))
    book.apply(AcceptedChange((new,), (replace(PORT, status="superseded", superseded_by="project_port_2@1"),), "corrected"), "extract")
    assert [
        (type(event.body).__name__, event.body.name) for event in book.history()[1:] if isinstance(event.body, NoteSaved | NoteForgotten)
    ] == [
        ("NoteSaved", "project_port"),
        ("NoteSaved", "project_port_2"),
        ("NoteForgotten", "project_port"),
    ]
    assert list(book.notes().active) == ["project_port_2"]
    assert "8080" not in (tmp_path / "memory" / "MEMORY.md").read_text()


@pytest.mark.states("ME-17")
def test_notes_of_one_project_never_appear_in_another_and_those_of_the_user_in_both(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (memories_of(Home.at(tmp_path / "home"), tmp_path / name) for name in ("one", "two"))
    assert one is not None
    assert two is not None
    saved(one.project, PORT)
    saved(one.user, replace(PORT, name="user_tea", kind="user", trust="stated", about="drinks tea", body="Drinks tea.\n"))
    assert [note.name for _, note in one.active()] == ["user_tea", "project_port"]
    assert [note.name for _, note in two.active()] == ["user_tea"]


letters = st.text(max_size=9_000)


@settings(max_examples=40, deadline=None)
@given(letters, letters, st.lists(st.text("abc:0", max_size=300), max_size=40))
@pytest.mark.states("ME-16")
def test_a_draft_of_any_size_is_refused_or_kept_within_its_bounds(body: str, about: str, evidence: list[str]) -> None:
    source = QuotableEvent("s:1", "user", f"{about}\n{body}", "2026-05-01T10:00:00Z")
    draft = Draft(kind="project", about=about, body=body, backstory=about)
    quote = " ".join(about.split()[:25])
    outcome = judge_change(
        AddNote(draft, ("s:1", *evidence), quote), (source, *(replace(source, id=each) for each in evidence)), Memory({})
    )
    if isinstance(outcome, AcceptedChange):
        (note,) = outcome.saved
        assert estimate(note.body) <= LONGEST_BODY
        assert len(note.about) <= 150
        assert len(note.evidence) <= 8
        assert estimate(encode_note(note)) <= LONGEST_BODY + LONGEST_FRONT_MATTER + 10


@pytest.mark.states("ME-16")
def test_a_note_with_more_events_and_links_than_fit_keeps_the_newest(tmp_path: Path) -> None:
    book = notebook(tmp_path)
    events = tuple(f"0198c0de-0000-7000-8000-{number:012}:{number}" for number in range(60))
    saved(book, replace(PORT, evidence=events, stands_for=tuple(f"project_other_{number}" for number in range(60))))
    kept = book.notes().active["project_port"]
    assert kept.evidence == events[-len(kept.evidence) :]
    assert kept.stands_for[-1] == "project_other_59"
    assert min(len(kept.evidence), len(kept.stands_for)) >= 5
