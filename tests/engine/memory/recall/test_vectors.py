"""Embeddings in recall: notes and turns are found by meaning, vectors are kept and made again, and a missing extra is said once."""

import asyncio
import json
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace
from recalling_desk import QUIET, TABS, Desk, note

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.events import CallStarted, ModelReplied, TurnEnded, TurnStarted, UserSaid
from palimpsest.core.items import Text
from palimpsest.memory.note_index import NoteIndex
from palimpsest.memory.query import MemorySearch
from palimpsest.memory.recall_ranking import Similar, rank
from palimpsest.memory.session_index import open_sessions
from palimpsest.memory.session_memory import SessionMemory, session_memory
from palimpsest.memory.vectors import Embedder, query_similarity
from palimpsest.providers.scripted import Scripted

EMBEDDED = replace(QUIET, recall_embeddings=True)
KITTEN = note("project_kitten", "the kitten naps upstairs")
TAX = note("project_tax", "levy papers belong downstairs")


class Concepts(Embedder):
    """A small model: a vector says which of two groups of words a text has words of. It keeps the texts that it made vectors of."""

    name = "concepts"
    _groups = (("cat", "kitten"), ("tax", "levy"))

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.embedded += texts
        return [self._vector(text) for text in texts]

    def similarity(self, query: str, vectors: Sequence[bytes]) -> Similar:
        asked = struct.unpack("<2f", self._vector(query))
        rows = [struct.unpack("<2f", each or bytes(8)) for each in vectors]
        return Similar([sum(one * other for one, other in zip(asked, row, strict=True)) for row in rows])

    def _vector(self, text: str) -> bytes:
        counts = [float(any(word in text.lower().split() for word in group)) for group in self._groups]
        length = sum(counts) ** 0.5 or 1.0
        return struct.pack("<2f", *(count / length for count in counts))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def memory_of(desk: Desk, model: Concepts) -> tuple[SessionMemory, Agent]:
    agent = Agent("claude-sonnet-4-5", provider=Scripted(), cwd=desk.root, home=desk.home)
    memory = session_memory(agent.session, agent.toolbox.workspace.root, desk.home, EMBEDDED)
    assert memory is not None
    memory.made.append(model)
    return memory, agent


def found(index: NoteIndex, query: str) -> list[str]:
    joined = index.refresh()
    return [hit.unit.id for hit in rank(joined, query, most=1, similar=index.similar(joined, query))]


def vector_rows(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return [row[0] for row in database.execute("SELECT id FROM vectors ORDER BY id")]


def test_a_note_that_shares_no_word_with_a_query_is_found_by_its_meaning(desk: Desk) -> None:
    desk.save(KITTEN, TAX)
    memory, agent = memory_of(desk, Concepts())
    answer = MemorySearch(memory).query("my cat", history=False, all_projects=False)
    assert "project_kitten" in answer
    assert "project_tax" not in answer
    assert "project_kitten" not in MemorySearch(replace(memory, config=QUIET, made=[])).query("my cat", history=False, all_projects=False)
    agent.close()


def test_vectors_are_kept_in_the_database_and_only_changed_notes_are_embedded_again(desk: Desk) -> None:
    desk.save(KITTEN, TAX)
    notebooks = desk.memories.notebooks
    first, second, third = Concepts(), Concepts(), Concepts()
    assert found(NoteIndex(notebooks, first), "cat") == ["project_kitten"]
    assert len(first.embedded) == 2
    assert found(NoteIndex(notebooks, second), "cat") == ["project_kitten"]
    assert second.embedded == []
    desk.save(replace(TAX, rev=2, body="a cat may be taxed\n"))
    assert found(NoteIndex(notebooks, third), "levy") == ["project_tax"]
    assert [text.split("\n")[1] for text in third.embedded] == ["a cat may be taxed"]
    file = desk.memories.project.index_file
    assert vector_rows(file) == ["project_kitten", "project_tax"]
    file.unlink()
    again = Concepts()
    assert found(NoteIndex(notebooks, again), "cat") != []
    assert (len(again.embedded), vector_rows(file)) == (2, ["project_kitten", "project_tax"])


@pytest.mark.states("ME-09")
def test_no_vector_of_a_forgotten_note_stays(desk: Desk) -> None:
    desk.save(KITTEN, TAX)
    found(NoteIndex(desk.memories.notebooks, Concepts()), "cat")
    desk.memories.project.forget("project_kitten")
    assert "project_kitten" not in vector_rows(desk.memories.project.index_file)
    assert found(NoteIndex(desk.memories.notebooks, Concepts()), "cat") == ["project_tax"]


def test_turns_of_past_sessions_are_found_by_meaning_and_their_vectors_leave_with_the_session(desk: Desk) -> None:
    sessions = []
    for said in ("the kitten sleeps", "levy papers"):
        log = desk.home.new(cwd=str(desk.root))
        for body in (TurnStarted(), UserSaid((Text(said),)), CallStarted("m", "anthropic")):
            log.append(body)
        log.append(ModelReplied((Text("fine", "assistant"),), call=log.tip))
        log.append(TurnEnded("done"))
        sessions.append(log.session)
        log.close()
    part, model = desk.memories.project.scope, Concepts()
    with closing(open_sessions(desk.home.folder, desk.home.store, model)) as opened:
        opened.refresh(60.0)
        hits = rank(opened.index(part), "cat", most=1, similar=opened.similar(part, "cat"))
        assert [hit.unit.text for hit in hits] == ["the kitten sleeps"]
        assert len(vector_rows(desk.home.folder / "memory" / "index.sqlite")) == 4
        desk.home.store.remove(sessions[0])
        opened.refresh(60.0)
        rows = vector_rows(desk.home.folder / "memory" / "index.sqlite")
        assert [row for row in rows if row.startswith(sessions[0])] == []
        assert len(rows) == 2
        assert opened.similar(part, "cat") is not None
    assert len(model.embedded) == 4


def test_an_erased_unit_is_similar_to_nothing(desk: Desk) -> None:
    desk.save(KITTEN, TAX)
    index = NoteIndex(desk.memories.notebooks, Concepts())
    joined = index.refresh()
    desk.memories.project.forget("project_kitten")
    joined = index.refresh()
    similar = query_similarity(Concepts(), joined, "cat", {"project_tax": struct.pack("<2f", 0.0, 1.0)})
    assert list(similar.similarities(range(len(joined)))) == [0.0] * len(joined)


@pytest.mark.skipif(find_spec("wordllama") is not None, reason="the extra is installed here")
def test_without_the_extra_one_notice_says_so_and_recall_goes_by_words(desk: Desk) -> None:
    desk.save(TABS)
    agent = Agent("claude-sonnet-4-5", provider=Scripted("ok"), cwd=desk.root, home=desk.home)
    settings = CodingSettings(sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False), memory=EMBEDDED)
    said = [line for line in equip(agent, desk.home, settings) if "embed" in line]
    reason = "embeddings need the extra `embed`: pip install 'palimpsest-agent[embed]'"
    assert said == [f"memory.recall_embeddings is on, but recall goes by words alone: {reason}"]
    tool = agent.toolbox.tools["recall"]
    answer = asyncio.run(tool.run(json.dumps({"query": "Makefile tabs"}), agent.toolbox.workspace))
    assert "feedback_tabs" in answer.text
    agent.close()
