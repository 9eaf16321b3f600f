"""The tool `recall` over notes and past sessions: ranks, corrections, projects and what was forgotten."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from recalling_desk import QUIET, TABS, Desk, bodies, note

from palimpsest.agent.agent import Agent
from palimpsest.agent.workspace import Workspace
from palimpsest.core.events import CallStarted, JobRan, ModelReplied, TurnEnded, TurnStarted, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.tokens import estimate
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.session_index import IndexPastSessions, open_sessions, unread_sessions


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def session(desk: Desk, *turns: tuple[str, str], cwd: str = "") -> str:
    """Record a past session of the project and return its id."""
    log = desk.home.new(cwd=cwd or str(desk.root))
    for said, replied in turns:
        log.append(TurnStarted())
        log.append(UserSaid((Text(said),)))
        started = log.append(CallStarted("m", "anthropic"))
        log.append(ModelReplied((Text(replied, "assistant"),), call=started.seq))
        log.append(TurnEnded("done"))
    name = log.session
    log.close()
    return name


def recall(agent: Agent, **arguments: object) -> str:
    tool = agent.toolbox.tools["recall"]
    return str(asyncio.run(tool.run(json.dumps(arguments), Workspace(Path("/")))).text)


def corrected(desk: Desk, *values: tuple[str, str]) -> None:
    """Save a chain of corrections of one fact: each value with the event that states it."""
    book = desk.memories.project
    old: Note | None = None
    for number, (value, evidence) in enumerate(values, 1):
        links = () if old is None else (old.revision,)
        new = note(
            f"project_port_{number}",
            f"the harbour server listens on port {value}",
            evidence=(evidence,),
            supersedes=links,
            when=f"2026-05-0{number}T10:00:00Z",
        )
        past = () if old is None else (replace(old, status="superseded", superseded_by=new.revision, valid_to=f"2026-05-0{number}"),)
        book.apply(AcceptedChange((new,), past, "corrected"), "remember")
        old = new


def test_a_query_finds_notes_and_turns_of_past_sessions_with_their_ids_within_its_budget(desk: Desk) -> None:
    desk.save(TABS)
    past = session(
        desk,
        ("the zeppelin build fails with a linker error", "add the flag to the zeppelin Makefile"),
        *[(f"zeppelin {n} " + f"word{n} " * 90, "done") for n in range(60)],
    )
    agent = desk.agent()
    text = recall(agent, query="why did the zeppelin Makefile fail?")
    assert "[feedback_tabs] · 2026-05-01 10:00:00 · about user (self) · stated" in text
    assert f"[{past}:2] " in text
    assert estimate(text) <= 4_096
    assert "more, recall(" in text


def test_sessions_of_another_project_are_found_only_if_all_projects_are_asked_for(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = session(desk, ("the walrus cache is broken", "cleared it"), cwd=str(tmp_path / "elsewhere"))
    gone = session(desk, ("the walrus cache moved", "yes"), cwd=str(tmp_path / "deleted"))
    agent = desk.agent()
    assert "nothing was found" in recall(agent, query="walrus cache")
    text = recall(agent, query="walrus cache", all_projects=True)
    assert f"[{other}:2]" in text
    assert f"[{gone}:2]" in text


def test_a_session_that_goes_on_or_is_deleted_is_indexed_again(desk: Desk) -> None:
    past = session(desk, ("the walrus cache is broken", "cleared it"))
    agent = desk.agent()
    assert f"[{past}:2]" in recall(agent, query="walrus cache")
    with desk.home.open(past) as log:
        log.append(UserSaid((Text("and the pelican queue too"),)))
    assert "pelican" in recall(agent, query="pelican queue")
    assert f"[{past}:2]" in recall(agent, query="walrus cache")
    desk.home.store.remove(past)
    assert "nothing was found" in recall(agent, query="walrus cache")


def test_the_session_itself_is_no_past_session(desk: Desk) -> None:
    agent = desk.agent("noted")
    asyncio.run(agent.ask("the walrus cache is broken"))
    assert "nothing was found" in recall(agent, query="walrus cache")


@pytest.mark.states("ME-05")
def test_with_history_an_old_note_stands_below_its_successor_and_without_it_nowhere(desk: Desk) -> None:
    corrected(desk, ("8080", "s:1"), ("9090", "s:2"))
    agent = desk.agent()
    for query in ("which port does the harbour server listen on?", "port 8080"):
        assert "8080" not in recall(agent, query=query)
        text = recall(agent, query=query, history=True)
        assert text.index("port 9090") < text.index("was: the harbour server listens on port 8080 until 2026-05-02")


@pytest.mark.states("ME-07")
def test_a_chain_of_three_corrections_returns_the_last_and_its_chronology_lists_all_in_order(desk: Desk) -> None:
    corrected(desk, ("85", "s:1"), ("100", "s:2"), ("95", "s:3"))
    agent = desk.agent()
    text = recall(agent, query="harbour server port")
    assert "port 95" in text
    assert "port 85" not in text
    assert "port 100" not in text
    with_history = recall(agent, query="harbour server port", history=True)
    assert with_history.index("port 95") < with_history.index("port 100") < with_history.index("port 85")
    timeline = recall(agent, timeline="harbour")
    assert [line.rpartition(" ")[2] for line in timeline.splitlines()] == ["85", "100", "95"]
    assert recall(agent, timeline="harbour", **{"from": "2026-05-02", "to": "2026-05-02"}).count("\n") == 0


@pytest.mark.states("ME-06")
def test_evidence_of_a_superseded_note_never_precedes_that_of_its_successor(desk: Desk) -> None:
    old = session(desk, ("the harbour server listens on port 8080", "noted"))
    new = session(desk, ("it moved to nine thousand and ninety", "noted"))
    corrected(desk, ("8080", f"{old}:2"), ("9090", f"{new}:2"))
    text = recall(desk.agent(), query="harbour server port 8080")
    assert text.index(f"[{new}:2]") < text.index(f"[{old}:2]")
    assert f"(no longer so since 2026-05-02, see [{new}:2])" in text


@pytest.mark.states("ME-06")
def test_of_a_successor_whose_session_is_not_here_the_note_itself_stands_before(desk: Desk) -> None:
    old = session(desk, ("quokka says eighty eighty", "noted"))
    corrected(desk, ("8080", f"{old}:2"), ("9090", "elsewhere:7"))
    text = recall(desk.agent(), query="quokka eighty")
    assert text.index("[project_port_2]") < text.index(f"[{old}:2]")


words = st.sampled_from(("harbour", "server", "port", "8080", "nine", "moved", "listens", "walrus"))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, min_size=1, max_size=4), st.permutations(range(3)))
@pytest.mark.states("ME-06")
def test_whatever_is_asked_old_evidence_stands_behind_new(
    tmp_path_factory: pytest.TempPathFactory, query: list[str], order: list[int]
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    turns = [("the harbour server listens on port 8080?", "walrus"), ("moved to nine", "port"), ("now listens elsewhere", "server")]
    names = {place: session(desk, turns[place], ("more of the harbour port", "yes")) for place in order}
    corrected(desk, *((str(place), f"{names[place]}:2") for place in range(3)))
    text = recall(desk.agent(), query=" ".join(query))
    places = {place: text.find(f"[{names[place]}:2]") for place in range(3)}
    for old in (0, 1):
        if places[old] >= 0:
            assert 0 <= places[2] < places[old]


def test_forgotten_evidence_is_never_returned_and_leaves_the_database(desk: Desk, tmp_path: Path) -> None:
    past = session(desk, ("my home is in Xanadu near the river", "noted"), ("the river is long", "yes"))
    desk.save(note("user_home", "lives in Xanadu", evidence=(f"{past}:2",)))
    agent = desk.agent()
    assert "Xanadu" in recall(agent, query="home near the river")
    agent.close()
    desk.memories.user.forget("user_home")
    fresh = desk.agent()
    assert "Xanadu" not in recall(fresh, query="home near the river in Xanadu", history=True, all_projects=True)
    assert "the river is long" in recall(fresh, query="home near the river in Xanadu")
    asyncio.run(fresh.resources.aclose())
    memory = desk.home.folder / "memory"
    assert [path.name for path in memory.rglob("*") if path.is_file() and b"xanadu" in path.read_bytes().lower()] == []


def test_without_memory_the_tool_says_what_to_do_instead(desk: Desk) -> None:
    agent = desk.agent(config=replace(QUIET, use=False))
    assert "search by `words` and `all_sessions`" in recall(agent, query="anything")


def test_past_sessions_are_read_into_the_index_after_a_turn_without_the_session_itself(desk: Desk) -> None:
    session(desk, ("the kestrel build fails", "run make clean first"))
    agent = desk.agent("ok", change=lambda agent: agent.jobs.add((IndexPastSessions(desk.home, desk.home.folder),)))

    async def turn(prompt: str) -> None:
        await agent.ask(prompt)
        await agent.jobs.wait()

    assert unread_sessions(desk.home.folder, desk.home.store) == 2
    asyncio.run(turn("hello"))
    (ran,) = (body for body in bodies(agent, JobRan) if isinstance(body, JobRan) and body.job == "past_sessions")
    assert (ran.status, ran.why) == ("done", "read 1 session")
    with closing(open_sessions(desk.home.folder, desk.home.store)) as sessions:
        units = sessions.index(desk.memories.project.scope).units
        assert [unit.text for unit in units] == ["the kestrel build fails", "run make clean first"]


def test_counted_work_of_reading_sessions_grows_with_the_sessions_that_are_new_and_with_no_others(desk: Desk) -> None:
    def read(count: int) -> int:
        for number in range(count):
            session(desk, (f"question {number}", f"answer {number}"))
        with closing(open_sessions(desk.home.folder, desk.home.store)) as sessions:
            return sessions.refresh(60.0).units

    assert [read(4), read(8), read(0), read(1)] == [8, 16, 0, 2]
