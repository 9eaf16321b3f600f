"""Context of a real project in the real loop: stated before the prompt, only what changed, again after a fold, and byte-equal later."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from loops import calls

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import ContextStated, Event, ToolReturned, ViewEdited
from palimpsest.core.items import Fold, text_of
from palimpsest.providers.scripted import Scripted, ScriptedReply
from palimpsest.stores.home import FolderHome

SKILL = "---\nname: deploy\ndescription: how to deploy\n---\nRun make deploy."
SUMMARY = "<summary>The parser works; next is the lexer.</summary>"


class Sessions:
    """One session of a coding agent in a project with instructions and a skill, opened as often as asked."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        self.profile = profile
        self.session = ""
        self.events: list[Event] = []

    def __call__(self, *replies: ScriptedReply, work: Callable[[Agent], Awaitable[object]]) -> Scripted:
        provider = Scripted(*replies)

        async def opened() -> None:
            home = FolderHome(self.home)
            async with Agent(
                "claude-sonnet-4-5", provider=provider, profile=self.profile, cwd=self.root, home=home, resume=self.session
            ) as agent:
                equip(agent, home, CodingSettings(sandbox="off", tools=()))
                self.session = agent.id
                await work(agent)
                self.events = list(agent.session.log.events())

        asyncio.run(opened())
        return provider

    def ask(self, prompt: str, *replies: ScriptedReply) -> Scripted:
        return self(*replies, work=lambda agent: agent.ask(prompt))

    def stated(self) -> list[list[str]]:
        """The sources of each statement, without those of the head."""
        return [[each.source for each in body.items] for event in self.events if isinstance(body := event.body, ContextStated)]


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for path, text in {
        ".git/HEAD": "ref: refs/heads/main",
        "AGENTS.md": "be kind",
        "CLAUDE.md": "be kind",
        ".agents/skills/deploy/SKILL.md": SKILL,
        "sub/AGENTS.md": "here be brief",
        "sub/a.py": "a = 1",
        "sub/b.py": "b = 2",
        "big.txt": "one line of a large file\n" * 1_500,
    }.items():
        file = tmp_path / "project" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def texts(body: bytes) -> list[str]:
    """The texts of the messages of a request of Anthropic, in order."""
    blocks = [block for message in json.loads(body)["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


# The documented variant states changed instructions with the next full context only.
@pytest.mark.parametrize(("profile", "expected"), [("codex", []), ("codex-0.166", [["instructions"]])])
@pytest.mark.states("CX-10")
def test_a_turn_without_changes_states_nothing_and_changed_instructions_state_only_themselves(
    tmp_path: Path, profile: str, expected: list[list[str]]
) -> None:
    sessions = Sessions(tmp_path, profile)
    sessions.ask("one", "1")
    sessions.ask("two", "2")
    assert len(sessions.stated()) == 1
    (sessions.root / "AGENTS.md").write_text("be brief")
    sessions.ask("three", "3")
    assert [[name.removesuffix("+") for name in names] for names in sessions.stated()[1:]] == expected


@pytest.mark.parametrize("profile", ["codex", "claude-code", "claude-code-2.1.325", "palimpsest"])
@pytest.mark.states("CX-12")
def test_what_a_fold_removed_is_stated_again_on_the_next_turn(tmp_path: Path, profile: str) -> None:
    sessions = Sessions(tmp_path, profile)
    for number in range(4):
        read = calls((f"r{number}", "read", json.dumps({"path": "big.txt", "offset": number + 1})))
        sessions.ask(f"write parser {number}", read, "words of a long reply " * 200)
    sessions(SUMMARY, work=lambda agent: agent.compact())
    provider = sessions.ask("go on", "ok")
    assert sum("be kind" in text for text in texts(provider.requests[0].body)) == 1
    edits = [edit for event in sessions.events if isinstance(event.body, ViewEdited) for edit in event.body.edits]
    assert any(isinstance(edit, Fold) for edit in edits)


@pytest.mark.states("CX-16")
def test_a_mentioned_skill_follows_the_message_and_a_variable_or_an_unknown_name_states_nothing(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path, "codex")
    provider = sessions.ask("$deploy it to $PATH, $nobody", "ok")
    *_, said, body = texts(provider.requests[0].body)
    assert said == "$deploy it to $PATH, $nobody"
    assert "Run make deploy." in body
    again = sessions.ask("echo $PATH", "ok")
    assert texts(again.requests[0].body)[-1] == "echo $PATH"


@pytest.mark.parametrize("profile", ["claude-code", "claude-code-2.1.325"])
@pytest.mark.states("CC-62")
def test_the_first_request_carries_instructions_and_date_before_the_prompt(tmp_path: Path, profile: str) -> None:
    sessions = Sessions(tmp_path, profile)
    provider = sessions.ask("write the parser", "ok")
    whole = texts(provider.requests[0].body)
    assert whole[-1] == "write the parser"
    instructions = next(place for place, text in enumerate(whole) if "be kind" in text)
    date = next(place for place, text in enumerate(whole) if "date is" in text)
    assert instructions <= date < len(whole) - 1


@pytest.mark.states("CC-63")
def test_statements_are_byte_equal_in_all_later_requests_and_after_a_resume(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path, "claude-code-2.1.325")
    first = sessions.ask("one", calls(("r", "read", '{"path":"sub/b.py"}')), "1")
    second = sessions.ask("two", "2")
    requests = [json.loads(request.body) for request in (*first.requests, *second.requests)]
    start = texts(first.requests[0].body)
    for request, sent in zip(requests, (*first.requests, *second.requests), strict=True):
        assert texts(sent.body)[: len(start)] == start
        assert [block["text"] for block in request["system"]] == [block["text"] for block in requests[0]["system"]]


@pytest.mark.parametrize("profile", ["opencode", "opencode-1.18"])
@pytest.mark.states("OC-36")
def test_nested_instructions_are_attached_to_the_first_read_of_their_folder_only(tmp_path: Path, profile: str) -> None:
    sessions = Sessions(tmp_path, profile)
    reads = [calls((name, "read", json.dumps({"path": f"sub/{name}.py"}))) for name in ("a", "b")]
    sessions.ask("read", *reads, calls(("c", "read", '{"path":"CLAUDE.md"}')), "done")
    results = [text_of(event.body.result) for event in sessions.events if isinstance(event.body, ToolReturned)]
    assert ["here be brief" in text for text in results] == [True, False, False]
