"""Forgetting: a note leaves every file of its scope, with all that says the same, and does not come back."""

import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, QuotableEvent, RefusedChange, Tombstone, judge_change
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.store import NoteFolder
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_780_000_000_000)
CITY = Note(
    name="user_lives_in_xanadu",
    kind="user",
    about="lives in Xanadu",
    backstory="told when the parcel from Xanadu was late",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="The user lives in Xanadu, Kubla street 7.\n",
    attribute="home.city",
    by="extract",
)
TEA = replace(
    CITY,
    name="user_tea",
    about="drinks green tea",
    body="The user drinks green tea.\n",
    backstory="said at lunch",
    attribute="",
    evidence=("s1:5",),
)


@pytest.fixture
def book(tmp_path: Path) -> Notebook:
    """An empty notebook."""
    return Notebook(NoteFolder(tmp_path / "memory", "user", CLOCK), CLOCK)


def saved(book: Notebook, *notes: Note) -> None:
    book.apply(AcceptedChange(notes, reason="added"), "extract")


def traces(folder: Path, *texts: bytes) -> list[str]:
    """The files in which one of the texts stands in any case."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(text in path.read_bytes().lower() or text in path.name.encode().lower() for text in texts)
    ]


@pytest.mark.states("ME-09")
def test_after_forget_no_byte_of_the_text_is_left_in_any_file(book: Notebook, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    saved(book, CITY, TEA)
    moved = replace(CITY, rev=2, body="The user lives in Xanadu, Kubla street 9.\n", supersedes=("user_lives_in_xanadu@1",))
    book.apply(AcceptedChange((moved,), (replace(CITY, status="superseded"),), "moved within Xanadu"), "extract")
    (folder / "SUMMARY.md").write_text(
        "v1\n\n## User profile\nLives in Xanadu.\nDrinks green tea.\n\n## Preferences\n## General tips\n"
        "## What is in memory\n- user_lives_in_xanadu\n- user_tea\n"
    )
    (folder / "rollouts").mkdir()
    (folder / "rollouts" / "2026-05-01T10-00-00-abcd-post.md").write_text(
        "# Parcel to Xanadu\n\nGreen tea came.\nIt went to Kubla street.\n"
    )
    (folder / "rollouts" / "2026-05-01T10-00-00-abcd-xanadu-trip.md").write_text("# Trip\n")
    (folder / "skills" / "post").mkdir(parents=True)
    (folder / "skills" / "post" / "SKILL.md").write_text("1. Go to Xanadu.\n2. Boil water.\n")
    with sqlite3.connect(folder / "index.sqlite") as index:
        index.execute("CREATE TABLE t (text)")
        index.execute("INSERT INTO t VALUES ('lives in Xanadu')")
    index.close()
    assert len(traces(folder, b"xanadu", b"kubla")) >= 8
    events = book.forget("user_lives_in_xanadu", reason="do not keep Xanadu")
    assert events == (NoteForgotten("user", "user_lives_in_xanadu", 2, "forgotten", "user", "do not keep Xanadu", ("s1:1",)),)
    assert traces(folder, b"xanadu", b"kubla") == []
    assert book.notes().active == {"user_tea": TEA}
    assert (folder / "MEMORY.md").read_text() == "- [user_tea](notes/user_tea.md) 2026-05-01: drinks green tea\n"
    assert (folder / "SUMMARY.md").read_text() == (
        "v1\n\n## User profile\nDrinks green tea.\n\n## Preferences\n## General tips\n## What is in memory\n- user_tea\n"
    )
    assert (folder / "rollouts" / "2026-05-01T10-00-00-abcd-post.md").read_text() == "# [forgotten]\n\nGreen tea came.\n"
    assert (folder / "skills" / "post" / "SKILL.md").read_text() == "2. Boil water.\n"


def test_what_stays_is_a_tombstone_and_a_log_without_the_name(book: Notebook, tmp_path: Path) -> None:
    saved(book, CITY, TEA)
    before = len(book.history())
    book.forget("user_lives_in_xanadu", asked=("s9:3",))
    (line,) = (tmp_path / "memory" / "tombstones.jsonl").read_bytes().splitlines()
    stone = msgspec.json.decode(line, type=Tombstone)
    assert (stone.at, stone.by, stone.evidence) == ("2026-05-28T20:26:40Z", "user", ("s1:1", "s9:3"))
    assert (len(stone.digest), [len(each) for each in stone.names]) == (64, [32])
    neutral = f"forgotten_{stone.names[0][:12]}"
    events = book.history()
    assert len(events) == before + 1
    assert events[1].body == NoteSaved("user", neutral, 1, "", "extract", "", ("s1:1",))
    assert events[-1].body == NoteForgotten("user", neutral, 0, "forgotten", "user", "", ("s1:1", "s9:3"))
    assert [book.forgotten()(name) > 0 for name in ("user_lives_in_xanadu", "user_tea", "user_other")] == [True, False, False]
    assert book.pick_up_edits() == ()


@pytest.mark.states("ME-09")
def test_what_says_the_same_is_forgotten_too(book: Notebook, tmp_path: Path) -> None:
    same = replace(CITY, name="user_home", backstory="said again", evidence=("s2:2",))
    old = replace(CITY, name="user_was", about="lived in Xanadu", body="Lived in Xanadu before.\n", evidence=("s0:1",))
    saved(book, CITY, same, old, TEA)
    book.apply(AcceptedChange((), (replace(old, status="superseded", superseded_by="user_home@1"),), "old"), "extract")
    events = book.forget("user_home")
    assert [event.name for event in events] == ["user_home", "user_lives_in_xanadu", "user_was"]
    assert traces(tmp_path / "memory", b"xanadu") == []
    assert list(book.notes().active) == ["user_tea"]


def test_links_to_a_forgotten_note_are_removed_from_the_others(book: Notebook, tmp_path: Path) -> None:
    saved(book, CITY, replace(TEA, supersedes=("user_lives_in_xanadu@1",)))
    (tmp_path / "memory" / "past").mkdir(exist_ok=True)
    book.forget("user_lives_in_xanadu")
    assert book.notes().active["user_tea"].supersedes == ()
    assert traces(tmp_path / "memory", b"xanadu") == []
    assert book.pick_up_edits() == ()


@pytest.mark.states("ME-11")
def test_a_forgotten_fact_is_not_learned_again_from_its_events_and_a_newer_statement_is(book: Notebook) -> None:
    saved(book, CITY)
    book.forget("user_lives_in_xanadu")
    said = QuotableEvent("s1:1", "user", "I live in Xanadu", "2026-05-01T10:00:00Z")
    reply = QuotableEvent("s1:2", "assistant", "You live in Xanadu, noted.", "2026-05-01T10:00:01Z")
    again = QuotableEvent("s7:1", "user", "I live in Xanadu", "2026-07-01T10:00:00Z")
    draft = Draft(kind="user", about="lives in Xanadu", body="The user lives in Xanadu.", backstory="said", attribute="home.city")
    memory = book.memory("extract")
    old = [
        AddNote(draft, ("s1:1",), "I live in Xanadu"),
        AddNote(replace(draft, attribute=""), ("s1:1", "s1:2"), "live in Xanadu"),
        AddNote(replace(draft, attribute="", kind="project"), ("s1:2",), "live in Xanadu"),
        AddNote(replace(draft, kind="project"), ("s1:2", "s1:1"), "live in Xanadu"),
    ]
    assert [isinstance(judge_change(each, (said, reply), memory), RefusedChange) for each in old] == [True] * 4
    assert isinstance(judge_change(AddNote(draft, ("s7:1",), "I live in Xanadu"), (said, again), memory), AcceptedChange)


def test_a_retracted_note_is_not_learned_again_from_its_events_unless_it_is_undone(book: Notebook) -> None:
    saved(book, CITY)
    book.apply(AcceptedChange((), (replace(CITY, status="retracted"),), "a joke"), "extract")
    said = QuotableEvent("s1:1", "user", "I live in Xanadu, Kubla street 7", "2026-05-01T10:00:00Z")
    draft = Draft(kind="user", about="lives in Xanadu", body="The user lives in Xanadu.", backstory="said")
    add = AddNote(draft, ("s1:1",), "I live in Xanadu")
    assert judge_change(add, (said,), book.memory("extract")) == RefusedChange("it rests on events whose note was forgotten")
    book.undo("user_lives_in_xanadu")
    assert isinstance(judge_change(add, (said,), book.memory("extract")), AcceptedChange)


@pytest.mark.states("ME-12")
def test_a_rule_with_two_supports_is_retracted_with_one_of_them_and_one_with_three_stays_rewritten(book: Notebook, tmp_path: Path) -> None:
    texts = {"user_a": "Asked for tea in Xanadu", "user_b": "Asked for tea in Ulm", "user_c": "Asked for tea in Rome"}
    facts = [replace(TEA, name=name, about=text, body=f"{text}.\n", evidence=(f"s:{name}",)) for name, text in texts.items()]
    facts = [replace(note, evidence=(f"s:{place}",)) for place, note in enumerate(facts)]
    body = "Always asks for tea.\nSo it was in Xanadu.\nSo it was in Ulm.\n"
    rule = replace(TEA, level="rule", about="asks for tea", body=body, evidence=("s:0", "s:1", "s:2"))
    two = replace(rule, name="user_rule_two", stands_for=("user_a", "user_b"))
    three = replace(rule, name="user_rule_three", stands_for=("user_a", "user_b", "user_c"), body=body + "All over.\n")
    saved(book, *facts, two, three)
    events = book.forget("user_a")
    assert [(type(event).__name__, event.name) for event in events] == [
        ("NoteForgotten", "user_a"),
        ("NoteSaved", "user_rule_three"),
        ("NoteForgotten", "user_rule_two"),
    ]
    left = book.notes().active["user_rule_three"]
    assert (left.stands_for, left.body, left.evidence) == (
        ("user_b", "user_c"),
        "Always asks for tea.\nSo it was in Ulm.\nAll over.\n",
        ("s:1", "s:2"),
    )
    assert traces(tmp_path / "memory", b"xanadu") == []


@pytest.mark.states("ME-12")
def test_a_rule_that_says_nothing_without_what_was_forgotten_leaves(book: Notebook, tmp_path: Path) -> None:
    facts = [replace(TEA, name=f"user_{city}", about=f"was in {city}", body=f"Was in {city}.\n") for city in ("xanadu", "ulm", "rome")]
    rule = replace(
        TEA, name="user_rule", level="rule", about="travels", body="Xanadu first.\n", stands_for=tuple(each.name for each in facts)
    )
    saved(book, *facts, rule)
    book.forget("user_xanadu")
    assert sorted(book.notes().active) == ["user_rome", "user_ulm"]
    assert traces(tmp_path / "memory", b"xanadu") == []


def test_forgetting_a_representative_forgets_what_it_stands_for(book: Notebook, tmp_path: Path) -> None:
    member = replace(
        CITY, name="user_city_2", body="He lives near Xanadu gate.\n", status="superseded", superseded_by="user_lives_in_xanadu@2"
    )
    standing = replace(CITY, level="representative", stands_for=("user_city_2",), rev=2)
    saved(book, replace(member, status="active"), TEA)
    book.apply(AcceptedChange((standing,), (member,), "clustered"), "consolidate")
    book.forget("user_lives_in_xanadu")
    assert traces(tmp_path / "memory", b"xanadu") == []


def test_a_missing_note_is_refused_and_nothing_is_begun(book: Notebook, tmp_path: Path) -> None:
    saved(book, TEA)
    with pytest.raises(BadInput, match="there is no note 'user_none'"):
        book.forget("user_none")
    assert not (tmp_path / "memory" / ".forgetting").exists()
    assert not (tmp_path / "memory" / "tombstones.jsonl").exists()
