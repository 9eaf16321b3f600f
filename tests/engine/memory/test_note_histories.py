"""Facts that are stated, corrected twice and asked for, and facts that are forgotten, in a thousand generated histories."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from palimpsest.memory.changes import AcceptedChange, AddNote, Change, ConfirmNote, Draft, QuotableEvent, SupersedeNote, judge_change
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_terms import RecallUnit, stems, words
from palimpsest.memory.store import NoteFolder
from palimpsest.memory.weigh import consolidate
from palimpsest.stores.in_memory import FixedClock

NOTEBOOKS, FACTS = 10, 100
# Notebooks of every run of the tests; the others belong to `pytest -m long`, with which there are a thousand histories.
AT_ONCE = 1
START = datetime(2026, 5, 1, tzinfo=UTC)


def content_words(text: str) -> frozenset[str]:
    return frozenset(stems(words(text)))


class Histories:
    """A hundred facts in one notebook, each with its own order of statements, confirmations, edits by hand and undone corrections."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = FixedClock(int(START.timestamp() * 1000))
        self.book = Notebook(NoteFolder(folder, "project", self.clock), self.clock)
        self.notes = folder / "notes"
        values = self.rng.sample(range(10_000, 99_999), FACTS * 3)
        self.values = [[f"v{each}" for each in values[3 * fact : 3 * fact + 3]] for fact in range(FACTS)]
        self.services = [f"service{self.rng.randrange(10**6)}x{fact}" for fact in range(FACTS)]
        self.ways = [self.rng.choice(("supersede", "attribute", "near", "hand")) for _ in range(FACTS)]
        self.sources: list[QuotableEvent] = []
        self.proposed: list[Change] = []
        self.names = [""] * FACTS

    def pass_time(self) -> str:
        self.clock = FixedClock(self.clock.now() + 3_600_000)
        self.book = Notebook(NoteFolder(self.notes.parent, "project", self.clock), self.clock)
        return datetime.fromtimestamp(self.clock.now() / 1000, UTC).isoformat().replace("+00:00", "Z")

    def say(self, text: str, at: str) -> QuotableEvent:
        self.sources.append(QuotableEvent(f"s:{len(self.sources)}", "user", text, at))
        return self.sources[-1]

    def apply(self, changes: list[Change]) -> None:
        """Judge changes one after the other, and save all that hold at once."""
        memory = self.book.memory("extract")
        saved: dict[str, Note] = {}
        past: list[Note] = []
        for change in changes:
            self.proposed.append(change)
            outcome = judge_change(change, self.sources, memory)
            assert isinstance(outcome, AcceptedChange), (change, outcome)
            saved |= {note.name: note for note in outcome.saved}
            past += outcome.past
            gone = {note.name for note in outcome.past}
            memory = replace(memory, notes={**{k: v for k, v in memory.notes.items() if k not in gone}, **saved})
        self.book.apply(AcceptedChange(tuple(saved.values()), tuple(past), "said"), "extract")

    def state(self, turn: int) -> None:
        """State every fact for the first time, or correct it in its own way."""
        at = self.pass_time()
        changes: list[Change] = []
        for fact, value in enumerate(each[turn] for each in self.values):
            text = f"the port of {self.services[fact]} is {value}"
            way = self.ways[fact]
            if turn and way == "hand":
                place = self.notes / f"{self.names[fact]}.md"
                place.write_text(place.read_text().replace(f" {self.values[fact][turn - 1]}", f" {value}"))
                continue
            event = self.say(text, at)
            attribute = f"{self.services[fact]}.port" if way == "attribute" else ""
            draft = Draft(kind="project", about=text, body=f"{text}.", backstory="said by the user", attribute=attribute)
            if turn and way == "supersede":
                changes.append(SupersedeNote(self.names[fact], draft, (event.id,), text))
            else:
                changes.append(AddNote(draft, (event.id,), text))
        self.apply(changes)
        self.book.pick_up_edits()
        self.consolidate()
        self.find_names()

    def find_names(self) -> None:
        by_service = {service: fact for fact, service in enumerate(self.services)}
        for note in self.book.notes().active.values():
            fact = by_service[note.about.split()[3]]
            self.names[fact] = note.name

    def interleave(self, turn: int) -> None:
        """Confirm some facts, and undo and redo the correction of others."""
        at = self.pass_time()
        chosen = self.rng.sample(range(FACTS), 10)
        confirmations: list[Change] = []
        for fact in chosen:
            text = f"yes, the port of {self.services[fact]} is {self.values[fact][turn]}"
            confirmations.append(ConfirmNote(self.names[fact], (self.say(text, at).id,), text))
        self.apply(confirmations)
        superseded = [fact for fact in range(FACTS) if self.ways[fact] == "supersede" and turn]
        for fact in self.rng.sample(superseded, min(2, len(superseded))):
            links = self.book.notes().active[self.names[fact]].supersedes
            old = next(link.partition("@")[0] for link in links if not link.startswith(f"{self.names[fact]}@"))
            self.book.undo(old)
            assert self.values[fact][turn - 1] in self.book.notes().active[old].body
            self.book.undo(self.names[fact])
        self.find_names()

    def consolidate(self) -> None:
        now = datetime.fromtimestamp(self.clock.now() / 1000, UTC) + timedelta(hours=1)
        steps = consolidate(self.book.notes().active.values(), now, content_words).steps
        saved = {note.name: note for step in steps for note in step.saved}
        past = tuple(note for step in steps for note in step.past)
        kept = tuple(note for name, note in saved.items() if all(name != each.name for each in past))
        if steps:
            self.book.apply(AcceptedChange(kept, past, "consolidated"), "consolidate")


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] if seed >= AT_ONCE else []) for seed in range(NOTEBOOKS)])
@pytest.mark.states("ME-05", "ME-07")
def test_a_fact_corrected_twice_has_its_last_value_and_a_forgotten_one_never_comes_back(tmp_path: Path, seed: int) -> None:
    facts = Histories(tmp_path / "memory", seed)
    for turn in range(3):
        facts.state(turn)
        facts.interleave(turn)
    active = facts.book.notes().active
    index = RecallIndex(RecallUnit(note.name, f"{note.about}\n{note.body}", kind=note.kind) for note in active.values())
    assert len(active) == FACTS
    for fact in range(FACTS):
        best = rank(index, f"What is the port of {facts.services[fact]}?")[0].unit.text
        assert [value in best for value in facts.values[fact]] == [False, False, True]
    forgotten = facts.rng.sample(range(FACTS), 3)
    for fact in forgotten:
        facts.book.forget(facts.names[fact])
    facts.pass_time()
    memory = facts.book.memory("extract")
    again = [judge_change(change, facts.sources, memory) for change in facts.proposed]
    # A session that is imported again has the same events; those of forgotten facts bring nothing back.
    accepted = [each for each in again if isinstance(each, AcceptedChange) and each.saved]
    for each in accepted:
        assert not any(facts.services[fact] in note.body for fact in forgotten for note in each.saved)
    facts.consolidate()
    left = b"\n".join(path.read_bytes() for path in sorted((tmp_path / "memory").rglob("*")) if path.is_file())
    for fact in forgotten:
        assert [value.encode() in left for value in (facts.services[fact], *facts.values[fact])] == [False] * 4
    assert len(facts.book.notes().active) == FACTS - len(forgotten)
