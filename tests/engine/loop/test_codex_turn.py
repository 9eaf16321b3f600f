"""Codex in the real loop: the order of a turn, and the keys of its requests."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import CallStarted, ContextStated, Event, ModelReplied, TurnStarted, Usage
from palimpsest.core.items import Text
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome
from palimpsest.wire.models import ModelCard, card

SMALL = replace(card("openai-compatible/qwen3-coder"), wire="responses", window=60_000, reply=8_000)
FULL = ModelReplied((Text("I wrote the parser. " * 2_000, "assistant"),), usage=Usage(input=59_000, output=10))
SUMMARY = "The parser works; next is the lexer."


@dataclass(frozen=True)
class Project:
    root: Path
    home: FolderHome


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    root = tmp_path / "project"
    skill = root / ".agents/skills/deploy/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: how to deploy\n---\nRun make deploy.")
    (root / ".git").mkdir()
    return Project(root, FolderHome(tmp_path / "home"))


def turns(project: Project, profile: str, provider: Scripted, *prompts: str, model: ModelCard = SMALL) -> list[list[Event]]:
    """The events of each turn of a coding agent."""

    async def work() -> list[list[Event]]:
        found: list[list[Event]] = []
        async with Agent(model, provider=provider, profile=profile, cwd=project.root, home=project.home) as agent:
            equip(agent, project.home, CodingSettings(sandbox="off", tools=()))
            for prompt in prompts:
                first = agent.session.log.tip + 1
                (project.root / "AGENTS.md").write_text(f"before {prompt}: be kind")
                await agent.ask(prompt)
                found.append(list(agent.session.log.reader.run(first, agent.session.log.tip)))
        return found

    return asyncio.run(work())


def names(events: list[Event]) -> list[str]:
    """The events of a turn by name, calls with their purpose and statements with their keys."""
    found = []
    for event in events:
        body = event.body
        name = type(body).__name__
        if isinstance(body, CallStarted | ModelReplied):
            name += f" {body.purpose}"
        elif isinstance(body, ContextStated):
            name += " " + ",".join(statement.source for statement in (*(body.head or ()), *body.items))
        found.append(name)
    return found


@pytest.mark.parametrize("profile", ["codex", "codex-0.166"])
@pytest.mark.states("CX-01")
def test_a_turn_runs_compaction_check_context_message_skill_bodies_snapshot_then_calls(project: Project, profile: str) -> None:
    _, second = turns(project, profile, Scripted(FULL, SUMMARY, "deployed"), "write the parser", "now $deploy it")
    context = "permissions,mode,skills,instructions,environment" if profile == "codex" else "instructions+"
    assert names(second) == [
        "UserTyped",
        "TurnStarted",
        "CallStarted compact",
        "ModelReplied compact",
        "ViewEdited",
        "Noticed",
        "Noticed",
        f"ContextStated {context}",
        "UserSaid",
        "ContextStated skill",
        # The original has no snapshots since 0.166, and ours are taken before the first tool that may change files.
        *(["FilesSnapshotted"] if profile == "codex" else []),
        "CallStarted turn",
        "ModelReplied turn",
        *(["FilesSnapshotted"] if profile == "codex" else []),
        "TurnEnded",
    ]


def client_metadata(session: str, *, turn: int, epoch: int, kind: str) -> dict[str, str]:
    ids = {"session_id": session, "thread_id": session, "turn_id": f"{session}:{turn}", "root_turn_id": f"{session}:{turn}"}
    described = json.dumps({"request_kind": kind, **ids, "window_id": f"{session}:{epoch}"}, separators=(",", ":"))
    return {**ids, "x-codex-window-id": f"{session}:{epoch}", "x-codex-turn-metadata": described}


@pytest.mark.states("CX-69")
def test_every_request_names_its_turn_its_window_and_its_kind(project: Project) -> None:
    provider = Scripted(FULL, SUMMARY, "deployed")
    first, second = turns(project, "codex-0.166", provider, "write the parser", "now $deploy it")
    [session] = [stat.session for stat in project.home.store.stats()]
    started = [next(event.seq for event in turn if isinstance(event.body, TurnStarted)) for turn in (first, second)]
    sent = [json.loads(request.body)["client_metadata"] for request in provider.requests]
    kinds = [json.loads(each["x-codex-turn-metadata"])["request_kind"] for each in sent]
    assert [(each["turn_id"], kind) for each, kind in zip(sent, kinds, strict=True)] == [
        (f"{session}:{started[0]}", "turn"),
        (f"{session}:{started[1]}", "compaction"),
        (f"{session}:{started[1]}", "turn"),
    ]


@pytest.mark.parametrize("profile", ["codex", "codex-0.166"])
@pytest.mark.parametrize("model", [card("gpt-5.5"), SMALL])
@pytest.mark.states("CX-69")
def test_the_request_has_exactly_its_keys_and_the_id_of_the_session_as_cache_key(project: Project, profile: str, model: ModelCard) -> None:
    provider = Scripted("done")
    turns(project, profile, provider, "hello", model=model)
    body = json.loads(provider.requests[0].body)
    [session] = [stat.session for stat in project.home.store.stats()]
    reasons = model.name == "gpt-5.5"
    written = {"input", "tools"} | ({"instructions"} if profile == "codex" else set())
    assert {name: value for name, value in body.items() if name not in written} == {
        "model": "gpt-5.5" if reasons else "qwen3-coder",
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {} if reasons else None,
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"] if reasons else [],
        "prompt_cache_key": session,
        **({} if profile == "codex" else {"client_metadata": client_metadata(session, turn=4, epoch=0, kind="turn")}),
    }
    assert written <= body.keys()
    forms = {(tool["type"], *list(tool)[1:]) for tool in body["tools"]}
    assert forms == {("function", "name", "description", "strict", "parameters"), ("custom", "name", "description", "format")}
    first = body["input"][0]
    base = body["instructions"] if profile == "codex" else first["content"][0]["text"]
    assert base.startswith("You are a coding agent")
    assert (first["type"], first["role"]) == ("message", "developer")
