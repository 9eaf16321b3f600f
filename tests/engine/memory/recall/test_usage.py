"""How notes are used: what prompts showed and replies cited is counted once, and citation blocks are not shown."""

import asyncio
from pathlib import Path

import pytest
from recalling_desk import TABS, Desk, note, recalled

from palimpsest.agent.agent import Agent
from palimpsest.core.deltas import TextDelta
from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.items import Text
from palimpsest.memory.note_index import NoteIndex
from palimpsest.memory.recall_store import NoteUse
from palimpsest.memory.work_store import JobsDatabase, RolloutRow, RolloutRows

PROMPT = "How do I indent the Makefile recipe?"
NOON = "2026-05-28T20:26:40Z"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def turns(agent: Agent, *prompts: str) -> None:
    for prompt in prompts:
        await agent.ask(prompt)
        await agent.jobs.wait()


def usage(desk: Desk) -> dict[str, NoteUse]:
    index = NoteIndex(desk.memories.notebooks)
    index.refresh()
    return index.usage()


def test_showing_a_note_adds_to_shown_and_citing_it_to_uses_once_a_reply(desk: Desk) -> None:
    desk.save(TABS, note("user_name", "is called Kim"))
    agent = desk.agent("with tabs, see [feedback_tabs] and again [feedback_tabs]", "as [feedback_tabs] and [unknown_note] say", "bye")
    asyncio.run(turns(agent, PROMPT, "sure?", "thanks"))
    assert usage(desk) == {"feedback_tabs": NoteUse(2, 1, NOON)}


def test_counting_twice_changes_nothing_and_files_are_not_written(desk: Desk) -> None:
    desk.save(TABS)
    place = desk.memories.project.folder / "notes" / "feedback_tabs.md"
    before = place.read_bytes()
    agent = desk.agent("[feedback_tabs]", "yes")
    asyncio.run(turns(agent, PROMPT))
    asyncio.run(turns(agent, "hello"))
    name = agent.id
    agent.close()
    again = desk.agent("done", resume=name)
    asyncio.run(turns(again, "hello"))
    assert usage(desk) == {"feedback_tabs": NoteUse(1, 1, NOON)}
    assert place.read_bytes() == before


def test_a_cited_note_outranks_an_equal_one_that_was_not(desk: Desk) -> None:
    desk.save(
        note("project_aa", "the harbour port is near", "the harbour port is near one\n"),
        note("project_bb", "the harbour port is near", "the harbour port is near two\n"),
    )
    index = NoteIndex(desk.memories.notebooks)
    index.refresh()
    index.add_usage({"project_bb": NoteUse(uses=6)})
    agent = desk.agent("done")
    asyncio.run(turns(agent, "the harbour port"))
    (shown,) = recalled(agent)
    assert shown[0] == "project_bb"


@pytest.mark.states("CX-60")
def test_a_citation_block_reaches_no_user_interface_and_stays_in_the_log(desk: Desk) -> None:
    block = "<oai-mem-citation>\n<rollout_ids>\n0194f5a6-89ab-7cde-8123-456789abcdef\n</rollout_ids>\n"

    async def shown(agent: Agent) -> tuple[str, list[ModelReplied]]:
        pieces = [piece async for piece in agent.run("hello")]
        replies = [piece.body for piece in pieces if isinstance(piece, Event) and isinstance(piece.body, ModelReplied)]
        return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), replies

    for way in ("codex", "codex-0.166"):
        agent = desk.agent(f"It is done.\n{block}", way=way)
        text, (reply,) = asyncio.run(shown(agent))
        assert text.rstrip() == "It is done."
        assert reply.parts == (Text("It is done.", "assistant"),)
        logged = [event.body for event in agent.session.log.events() if isinstance(event.body, ModelReplied)]
        assert "oai-mem-citation" in str(logged[0].parts)


@pytest.mark.states("CX-60")
def test_a_summary_that_a_reply_cites_by_session_file_or_stem_counts_one_use_a_reply(desk: Desk) -> None:
    uuid = "0194f5a6-89ab-7cde-8123-456789abcdef"
    scope = desk.memories.project.scope
    rows = RolloutRows(JobsDatabase(desk.home.folder / "memory"))
    rows.adopt(
        (
            RolloutRow(f"codex-{uuid}", scope, "2026-05-01T10-00-00-AbC1-parser", 1, 1),
            RolloutRow("own", scope, "2026-05-02T10-00-00-AbC2-lexer", 1, 1),
            RolloutRow("elsewhere", "project-000000000000", "2026-05-03T10-00-00-AbC3-other", 1, 1),
        )
    )
    block = f"<oai-mem-citation>\n<rollout_ids>\n{uuid}\n</rollout_ids>\n</oai-mem-citation>"
    agent = desk.agent(block, "as in [2026-05-02T10-00-00-AbC2-lexer] and [2026-05-03T10-00-00-AbC3-other]", "bye")
    asyncio.run(turns(agent, "one", "two", "three"))
    assert {row.session: row.uses for row in rows.all()} == {f"codex-{uuid}": 1, "own": 1, "elsewhere": 0}
