"""Running notes as a job of a session: when it asks, what it shares with the session, and the fold that needs no model."""

import asyncio
import json
from pathlib import Path

import pytest
from remembering import RememberingAgent, runs_of

from palimpsest.agent.agent import Agent
from palimpsest.core.events import Body, CallStarted, ModelReplied, NotesTaken, Rewound, ToolReturned, ViewEdited
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Sendable
from palimpsest.memory.running_notes import SECTIONS, empty_notes, settled_items, uses_notes
from palimpsest.policies.named import PROFILES, profile
from palimpsest.providers.scripted import ScriptedAnswer, ScriptedReply, StalledReply
from palimpsest.stores.memory_config import MemoryConfig

JOB = "running_notes"
STATE = f"_{SECTIONS['Current State']}_\n"
# About 7,000 tokens, so that one of them brings a session over 10,000 together with its tools, and over 5,000 without them.
LONG = "some words of a long question " * 900
ONLY_NOTES = MemoryConfig(jobs="auto", extract_every=0)


def edits(*texts: str, also: tuple[ToolCall, ...] = ()) -> tuple[ScriptedReply, ...]:
    """Replies that add a line to the section Current State, in the file that the request names."""

    def edit(text: str) -> ScriptedReply:
        def answer(request: Sendable) -> ScriptedAnswer:
            prompt = json.loads(request.body)["messages"][-1]["content"][-1]["text"]
            path = prompt.partition("The notes are in the file ")[2].partition(". This is what")[0]
            call = ToolCall("e1", "edit", json.dumps({"path": path, "old": STATE, "new": f"{STATE}{text}\n"}))
            return ModelReplied((*also, call))

        return answer

    return tuple(edit(text) for text in texts)


def taken(bodies: list[Body]) -> list[str]:
    return [body.text for body in bodies if isinstance(body, NotesTaken)]


@pytest.mark.states("CC-44")
def test_notes_are_taken_when_a_session_has_10000_tokens_and_again_when_it_has_grown_by_5000(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("1", "2", "3", "4"), (), edits("first", "second"), ONLY_NOTES, "claude-code")
    bodies = agent.work("short", LONG, "short", LONG)
    sizes = [body.tokens for body in bodies if isinstance(body, NotesTaken)]
    assert [text.count("first") + 10 * text.count("second") for text in taken(bodies)] == [1, 11]
    assert sizes[0] >= 10_000
    assert sizes[1] - sizes[0] >= 5_000
    order = [
        type(body).__name__ if isinstance(body, NotesTaken) else "reply"
        for body in bodies
        if _is_turn(body) or isinstance(body, NotesTaken)
    ]
    assert order == ["reply", "reply", "NotesTaken", "reply", "reply", "NotesTaken"]


def _is_turn(body: Body) -> bool:
    return isinstance(body, ModelReplied) and body.purpose == "turn"


@pytest.mark.states("CC-44")
def test_three_calls_in_a_turn_are_enough_and_open_calls_are_left_out_of_the_request(tmp_path: Path) -> None:
    replies = tuple(ModelReplied((ToolCall(f"c{number}", "read", json.dumps({"path": f"{number}.txt"})),)) for number in range(4))
    stalled = StalledReply("done", after=0)
    agent = RememberingAgent(tmp_path, (*replies, stalled), (), edits("now"), ONLY_NOTES, "claude-code")
    for number in range(4):
        (agent.root / f"{number}.txt").write_text(f"{number} " + "words of a file\n" * 1_900)

    async def run() -> int:
        async with agent.opened() as live:
            turn = asyncio.ensure_future(live.ask("read the files"))
            await stalled.reached.wait()
            await live.jobs.wait()
            count = sum(isinstance(event.body, NotesTaken) for event in live.session.log.events())
            stalled.released.set()
            await turn
            return count

    assert asyncio.run(run()) == 1
    request, *_ = agent.updating.requests
    blocks = [block for message in json.loads(request.body)["messages"] for block in message["content"]]
    called = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(called) >= 2
    assert called == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def test_the_request_shares_head_tools_and_messages_with_the_session(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("1", "2"), (), edits("x"), ONLY_NOTES, "claude-code")
    agent.work("short", LONG)
    turn, update = (json.loads(script.requests[-1].body) for script in (agent.turns, agent.updating))
    assert (update["system"], update["tools"]) == (turn["system"], turn["tools"])
    assert _texts(update)[: len(_texts(turn))] == _texts(turn)


def _texts(body: dict[str, object]) -> list[str]:
    messages = body["messages"]
    assert isinstance(messages, list)
    return [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]


@pytest.mark.states("CC-45")
def test_only_the_file_of_the_notes_is_edited_and_no_other_call_is_run(tmp_path: Path) -> None:
    victim = tmp_path / "project" / "a.txt"
    others = (
        ToolCall("x", "bash", json.dumps({"command": f"rm {victim}"})),
        ToolCall("y", "edit", json.dumps({"path": "a.txt", "old": "kept", "new": "gone"})),
    )
    agent = RememberingAgent(tmp_path, ("1", "2"), (), edits("fixing a.py", also=others), ONLY_NOTES, "claude-code")
    victim.write_text("kept")
    bodies = agent.work("short", LONG)
    expected = empty_notes().replace(STATE, f"{STATE}fixing a.py\n")
    assert taken(bodies) == [expected]
    (file,) = (agent.home.folder / "sessions").rglob("running-notes.md")
    assert file.read_text() == expected
    assert file.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "kept"
    assert not any(isinstance(body, ToolReturned) for body in bodies)


def test_a_reply_that_edits_nothing_is_a_failure_so_that_it_is_not_asked_for_after_every_reply(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("1", "2"), (), ("nothing new",), ONLY_NOTES, "claude-code")
    assert runs_of(agent.work("short", LONG), JOB) == [("failed", "the reply edits nothing in the running notes")]


@pytest.mark.states("CC-48")
def test_with_the_notes_of_the_job_a_compaction_asks_no_model(tmp_path: Path) -> None:
    agent = RememberingAgent(
        tmp_path, tuple("123456"), (), edits(*(f"the lexer is next {number}" for number in range(3))), ONLY_NOTES, "claude-code"
    )

    async def run() -> tuple[list[Body], list[Item]]:
        async with agent.opened() as live:
            for prompt in (LONG, LONG, LONG, "a", "b", "c"):
                await live.ask(prompt)
                await live.jobs.wait()
            before = len(agent.turns.requests) + len(agent.updating.requests)
            await live.compact()
            assert len(agent.turns.requests) + len(agent.updating.requests) == before
            return [event.body for event in live.session.log.events()], list(live.session.log.view.items)

    bodies, items = asyncio.run(run())
    (edit,) = [body for body in bodies if isinstance(body, ViewEdited) and body.by == "swap_notes"]
    assert edit.why.startswith("manual: the running notes stand for")
    (summary,) = [item for item in items if item.kind == "summary"]
    assert "the lexer is next" in text_of(summary.content)
    assert {body.purpose for body in bodies if isinstance(body, CallStarted)} == {"turn", "job:running_notes"}


@pytest.mark.parametrize("place", ["home", "claude"])
@pytest.mark.states("CC-47")
def test_own_template_and_prompt_files_replace_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    folder = tmp_path / ("home/running-notes" if place == "home" else "claude/session-memory/config")
    folder.mkdir(parents=True)
    (folder / "template.md").write_text("# Mine\n_what I want_\n")
    (folder / "prompt.md").write_text("You keep the running notes of this session, in {{notesPath}}:\n{{currentNotes}}")

    def answer(request: Sendable) -> ModelReplied:
        prompt = json.loads(request.body)["messages"][-1]["content"][-1]["text"]
        assert prompt.endswith("running-notes.md:\n# Mine\n_what I want_")
        path = prompt.partition("session, in ")[2].partition(":\n")[0]
        return ModelReplied((ToolCall("e", "edit", json.dumps({"path": path, "old": "_what I want_\n", "new": "_what I want_\ndone\n"})),))

    agent = RememberingAgent(tmp_path, ("1", "2"), (), (answer,), ONLY_NOTES, "claude-code")
    assert taken(agent.work("short", LONG)) == ["# Mine\n_what I want_\ndone\n"]


def test_a_file_of_the_user_that_is_too_large_or_no_text_is_not_used(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, profile="claude-code")
    folder = agent.home.folder / "running-notes"
    folder.mkdir(parents=True)
    (folder / "template.md").write_text("x" * 70_000)
    (folder / "prompt.md").write_bytes(b"\xff\xfe")
    (job,) = [job for job in agent.opened().jobs.jobs if job.name == JOB]
    assert job.settings().template == ""  # type: ignore[attr-defined]  # a job of this kind
    assert job.settings().prompt == ""  # type: ignore[attr-defined]  # a job of this kind


@pytest.mark.parametrize(
    ("name", "setting", "is_asked"),
    [
        ("palimpsest", "auto", False),
        ("palimpsest", "on", True),
        ("claude-code", "auto", True),
        ("claude-code", "off", False),
        ("claude-code-2.1.325", "on", False),
        ("opencode", "on", False),
    ],
)
@pytest.mark.states("CC-61", "OC-50")
def test_the_profile_and_the_setting_decide_whether_notes_are_taken(tmp_path: Path, name: str, setting: str, is_asked: object) -> None:
    config = MemoryConfig(jobs="auto", extract_every=0, running_notes="on" if setting == "on" else "off" if setting == "off" else "auto")
    agent = RememberingAgent(tmp_path, ("1", "2"), (), edits("x"), config, name)
    agent.work("short", LONG)
    assert bool(agent.updating.requests) is is_asked


def test_of_all_profiles_one_can_fold_into_running_notes() -> None:
    assert [name for name in PROFILES if uses_notes(profile(name))] == ["claude-code"]


@pytest.mark.states("ME-20")
def test_with_jobs_off_notes_that_are_wanted_by_name_say_once_why_there_are_none(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("1", "2", "3"), config=MemoryConfig(running_notes="on", jobs="off"), profile="claude-code")
    assert runs_of(agent.work("short", LONG, "go on"), JOB) == [("skipped", "memory.jobs is off, so no model is asked")]
    assert agent.updating.requests == []


def test_after_a_rewind_the_notes_of_the_left_branch_are_gone_and_new_ones_are_taken(tmp_path: Path) -> None:
    agent = RememberingAgent(tmp_path, ("1", "2", "3"), (), edits("left", "new"), ONLY_NOTES, "claude-code")

    async def run() -> tuple[str | None, list[str]]:
        async with agent.opened() as live:
            tips, log = list[int](), live.session.log
            for prompt in ("short", LONG):
                tips.append(log.tip)
                await live.ask(prompt)
                await live.jobs.wait()
            log.append(Rewound(tips[1]))
            notes = log.view.notes
            await live.ask(LONG)
            await live.jobs.wait()
            return None if notes is None else notes.text, taken([event.body for event in log.reader.run(0, log.tip)])

    left, texts = asyncio.run(run())
    assert left is None
    assert ["left" in text for text in texts] == [True, False]


def item(name: str, content: Content) -> Item:
    return Item(name, "assistant" if isinstance(content, Text | ToolCall) else "result", content)


def test_items_up_to_the_first_reply_with_an_open_call_are_settled() -> None:
    said, first, result = item("1.0", Text("a")), item("2.0", ToolCall("c1", "read", "{}")), item("3.0", ToolResult("c1", (Text("x"),)))
    words, second = item("4.0", Text("now", "assistant")), item("4.1", ToolCall("c2", "read", "{}"))
    assert settled_items((said, first, result, words, second)) == (said, first, result)
    assert settled_items((said, first, result, words)) == (said, first, result, words)
    assert settled_items((second,)) == ()


def test_the_agent_can_be_opened_with_all_jobs_of_memory(tmp_path: Path) -> None:
    agent: Agent = RememberingAgent(tmp_path, profile="claude-code").opened()
    assert [job.name for job in agent.jobs.jobs] == ["extract_notes", "running_notes", "past_sessions"]
