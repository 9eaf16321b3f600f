"""After a note is forgotten no view shows it: recalled items, results of recall, statements, the head and checkpoints."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from recalling_desk import TABS, Desk, ask, note, recalled, view_text

from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, ModelReplied, Statement, ViewEdited
from palimpsest.core.items import Fold, Keep, Mask, ToolCall
from palimpsest.core.undo import restore, undo
from palimpsest.memory.note_index import NoteIndex

SECRET = note("user_home", "the user lives in Xanadu", "Xanadu is where the user lives.\n")
PROMPT = "where does the user live, in Xanadu?"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def masks(agent: Agent) -> list[tuple[str, tuple[str, ...], str]]:
    log = agent.session.log
    edits = [event.body for event in log.reader.run(0, log.tip) if isinstance(event.body, ViewEdited)]
    return [(body.by, edit.ids, edit.text) for body in edits for edit in body.edits if isinstance(edit, Mask)]


def without_prompts(agent: Agent) -> str:
    return view_text(agent).replace(PROMPT, "")


@pytest.mark.states("ME-10")
def test_items_that_showed_a_forgotten_note_are_masked_at_the_next_turn_and_no_request_has_them(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    agent = desk.agent("in Xanadu", "I do not know", "nor now")
    ask(agent, PROMPT)
    assert recalled(agent) == [("user_home",)]
    shown = [item.id for item in agent.session.log.view.items if item.kind == "recalled"]
    desk.clock.time += 1_000
    desk.memories.user.forget("user_home")
    ask(agent, "hello")
    assert [item.mask.text for item in agent.session.log.view.items if item.id in shown and item.mask is not None] == ["[forgotten]"]
    assert {by for by, _, _ in masks(agent)} == {"forget"}
    context = "\n".join(line for line in without_prompts(agent).splitlines() if "in Xanadu" not in line or "lives" in line)
    assert "lives in Xanadu" not in context
    assert "user_home" not in context
    assert "[feedback_tabs]" in context


@pytest.mark.states("ME-10")
def test_another_session_that_shows_it_hides_it_when_it_is_opened(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    agent = desk.agent("noted")
    ask(agent, PROMPT)
    name = agent.id
    agent.close()
    desk.clock.time += 1_000
    desk.memories.user.forget("user_home")
    again = desk.agent("hello", resume=name)
    ask(again, "hello")
    body = str(desk.model.requests[0].body)
    assert "lives in Xanadu" not in body
    assert "where the user lives" not in body
    again.close()
    checkpoint = b"".join(path.read_bytes() for path in (desk.home.folder / "sessions").glob("*.checkpoint*"))
    assert checkpoint
    assert b"lives in Xanadu" not in checkpoint
    assert b"user lives" not in checkpoint


@pytest.mark.states("CL-49")
def test_forgetting_a_card_removes_no_event_but_masks_what_showed_it(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    agent = desk.agent("one", "two", way="classroom")
    ask(agent, "first")
    assert "Xanadu is where the user lives." in view_text(agent)
    before = [event.body for event in agent.session.log.reader.run(0, agent.session.log.tip)]
    desk.clock.time += 1_000
    desk.memories.user.forget("user_home")
    ask(agent, "second")
    after = [event.body for event in agent.session.log.reader.run(0, agent.session.log.tip)]
    assert after[: len(before)] == before
    assert "Xanadu" not in view_text(agent)
    assert "[forgotten]" in view_text(agent)
    assert "[feedback_tabs] Makefiles are indented with tabs" in view_text(agent)


def test_a_head_that_shows_a_forgotten_note_is_stated_again_at_once(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    agent = desk.agent("one")
    ask(agent, "first")
    log = agent.session.log
    # As version 0.2 stated notes under the profile of Claude Code, whose sessions go on.
    index = Statement("memory", "- [user_home](notes/user_home.md) 2026-05-01: where the user lives", "system")
    log.append(ContextStated(head=(Statement("base", "Be brief.", "system"), index)))
    epoch = log.view.epoch
    desk.clock.time += 1_000
    desk.memories.user.forget("user_home")
    assert agent.parts.context is not None
    agent.parts.context.restate()
    assert log.view.epoch == epoch + 1
    assert "user_home" not in "\n".join(str(item.content) for item in log.view.head)


def test_a_forget_during_a_turn_is_followed_before_the_next_request(desk: Desk) -> None:
    desk.save(SECRET, TABS)

    def forget(_: object) -> ModelReplied:
        desk.clock.time += 1_000
        desk.memories.user.forget("user_home")
        return ModelReplied((ToolCall("c1", "read", '{"path": "none.txt"}'),))

    ask(desk.agent(forget, "done"), PROMPT)
    first, second = (str(request.body) for request in desk.model.requests)
    assert "where the user lives" in first
    assert "where the user lives" not in second
    assert "[user_home]" not in second


def test_what_was_forgotten_is_not_brought_back_by_undo_or_restore_and_a_restored_fold_is_hidden_again(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    agent = desk.agent("noted", "fine", "good")
    ask(agent, PROMPT)
    log = agent.session.log
    shown = next(item.id for item in log.view.items if item.kind == "recalled")
    others = [item.id for item in log.view.items]
    fold = log.append(ViewEdited((Fold(others[0], others[-1], tuple(Keep(each) for each in others if each != shown)),), by="test"))
    desk.clock.time += 1_000
    desk.memories.user.forget("user_home")
    ask(agent, "hello")
    undo(log, fold.seq)
    assert log.view[shown].mask is None
    ask(agent, "again")
    assert log.view[shown].mask is not None
    edit = next(
        event.seq
        for event in log.events()
        if isinstance(event.body, ViewEdited)
        and event.body.by == "forget"
        and any(shown in each.ids for each in event.body.edits if isinstance(each, Mask))
    )
    with pytest.raises(BadInput, match="not shown again"):
        undo(log, edit)
    with pytest.raises(BadInput, match="not shown again"):
        restore(log, shown)


def test_a_note_that_is_learned_again_is_shown_again(desk: Desk) -> None:
    desk.save(SECRET, TABS)
    desk.memories.user.forget("user_home")
    desk.clock.time += 1_000
    desk.save(replace(SECRET, evidence=("s9:9",)))
    agent = desk.agent("in Xanadu", "yes")
    ask(agent, PROMPT, "hello")
    assert recalled(agent) == [("user_home",)]
    assert masks(agent) == []


@pytest.mark.states("ME-09")
def test_no_byte_of_a_forgotten_note_is_in_the_databases(desk: Desk) -> None:
    desk.save(SECRET, *(note(f"user_fact_{number}", f"fact {number}") for number in range(30)))
    agent = desk.agent("noted")
    ask(agent, PROMPT)
    agent.close()
    asyncio.run(agent.jobs.close())
    index = NoteIndex(desk.memories.notebooks)
    index.refresh()
    index.save()
    file = desk.memories.user.folder / "index.sqlite"
    assert b"xanadu" in b"".join(path.read_bytes() for path in file.parent.glob("index.sqlite*")).lower()
    desk.memories.user.forget("user_home")
    left = [path.name for path in (desk.home.folder / "memory").rglob("*") if path.is_file() and b"xanadu" in path.read_bytes().lower()]
    assert left == []
