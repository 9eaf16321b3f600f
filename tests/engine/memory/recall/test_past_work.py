"""The tool `recall` over past coding work: how an error was fixed before, and what is forgotten of what tools printed."""

import asyncio
import json
from pathlib import Path

import pytest
from past_sessions import PastSession
from recalling_desk import Desk, note

from palimpsest.agent.agent import Agent
from palimpsest.agent.workspace import Workspace

FAILURE = "src/net/socket.ts(14,3): error TS2554: Expected 2 arguments, but got 1."


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def recorded(desk: Desk, session: PastSession) -> str:
    """Record the events of a past session in the home and return its id; their sequence numbers stay."""
    log = desk.home.new(cwd=str(desk.root))
    for event in session.events[1:]:
        log.append(event.body)
    name = log.session
    log.close()
    return name


def recall(agent: Agent, **arguments: object) -> str:
    tool = agent.toolbox.tools["recall"]
    return str(asyncio.run(tool.run(json.dumps(arguments), Workspace(Path("/")))).text)


def test_how_we_fixed_this_the_last_time_finds_the_turn_its_edits_and_the_command_that_proved_it(desk: Desk) -> None:
    session = PastSession()
    session.user("make the build green")
    session.run("make check-web", 2, FAILURE)
    session.edit(str(desk.root / "src" / "net" / "socket.ts"))
    session.run("make check-web")
    session.reply("The call has its second argument now.")
    name = recorded(desk, session)
    found = recall(desk.agent(), query="lib/other.ts(99,1): error TS2554: Expected 4 arguments, but got 3.")
    assert f"[{name}:3]" in found
    assert "then edited: src/net/socket.ts (events 5)" in found
    assert "then succeeded: make check-web (event 7)" in found


@pytest.mark.states("ME-10")
def test_an_error_line_of_a_forgotten_event_is_in_no_unit_of_another_event(desk: Desk) -> None:
    session = PastSession()
    session.user("is the harbour server there")
    printed = session.run("make probe", 1, "Error: the server of Xanadu does not answer")
    session.reply("The harbour does not answer.")
    name = recorded(desk, session)
    desk.save(note("project_server", "the server is in Xanadu", evidence=(f"{name}:{printed}",)))
    agent = desk.agent()
    assert "Xanadu does not answer" in recall(agent, query="harbour server probe")
    agent.close()
    desk.memories.project.forget("project_server")
    fresh = desk.agent()
    assert "Xanadu" not in recall(fresh, query="harbour server probe", all_projects=True)
    asyncio.run(fresh.resources.aclose())
    memory = desk.home.folder / "memory"
    assert [path.name for path in memory.rglob("*") if path.is_file() and b"xanadu" in path.read_bytes().lower()] == []
    again = desk.agent()
    assert "is the harbour server there" in recall(again, query="harbour server probe")
