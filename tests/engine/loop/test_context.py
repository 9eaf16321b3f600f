"""Context through the engine: stated before the prompt, byte-equal within an epoch, and restated after a real fold."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from every_case import every_case
from workplace import offline, online, reply, say, use, work
from worlds import MemoryWorld, state, state_context, texts

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session, in_thread
from palimpsest.coding.world import LocalWorld, session_state, unconfined
from palimpsest.core.events import ContextStated, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.view import CHANGED
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted
from palimpsest.sources.source import GitFacts, observe, recorded, recorded_fields, stated_value
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.request import Tool

SUMMARY = "<summary>The user asked for a parser; a.py has it and its tests pass. Next: the lexer in b.py.</summary>"
PROFILES = ("palimpsest", "codex", "codex-0.166", "claude-code", "claude-code-2.1.325", "opencode", "opencode-1.18", "classroom")
SKILL = "---\nname: deploy\ndescription: how to deploy\n---\nRun make."
WORLD = MemoryWorld(
    files={
        "/repo/.git/HEAD": "",
        "/repo/AGENTS.md": "be kind",
        "/repo/.claude/skills/deploy/SKILL.md": SKILL,
        "/repo/.agents/skills/deploy/SKILL.md": SKILL,
        "/home/u/.claude/CLAUDE.md": "my own",
    },
    repository=GitFacts("main", "main", (), ("abc first",)),
).with_state(
    model="claude-sonnet-4-5",
    sandbox="workspace-write",
    approval="on-request",
    mode="plan",
    personality="friendly",
    tasks=("[>] 1 write the parser",),
    agents={"explore": "searches"},
    deferred=(Tool("WebFetch"),),
    business=("working", "handling the request"),
    texts={"session_start": "the hook ran", "memory": "- notes.md", "attribution": "Sign commits.", "cards": "one card"},
)


def worked(name: str) -> Session:
    """Turns of real work under a profile, enough to be worth a fold."""
    session = work(profile(name))
    state(session, WORLD)
    for number in range(6):
        say(session, f"ask {number}")
        use(session, f"c{number}", "Read", json.dumps({"file_path": f"/repo/a{number}.py"}), f"line {number}\n" * 4_000)
        reply(session, Text(f"done {number}", "assistant"))
    return session


def fold(session: Session) -> None:
    assert online(session, run_policies(session, "asked"), Scripted(*[SUMMARY] * 4)).folded


def current(session: Session, world: MemoryWorld) -> bool:
    """Whether the view states all that is observed, and each statement is really visible."""
    view = session.log.view
    visible = {item.id for item in (*view.head, *view.items) if item.mask is None}
    for key, fields in observe(session.profile.sources, world).items():
        if fields is None or key == "personality" or (key == "git_status" and stated_value(view, key) is not None):
            continue
        if stated_value(view, key) != recorded_fields(recorded(fields)):
            return False
    return {fact.id for fact in view.facts.values()} <= visible


@every_case("name", PROFILES)
def test_after_a_fold_everything_that_is_current_is_stated_again_and_nothing_is_dropped(name: str) -> None:
    session = worked(name)
    before = dict(session.log.view.facts)
    head = session.log.view.head
    fold(session)
    state(session, WORLD)

    assert current(session, WORLD)
    assert before.keys() == session.log.view.facts.keys()
    assert session.log.view.head == head
    assert state(session, WORLD) is None


@every_case("name", PROFILES)
def test_after_a_fold_the_values_of_now_are_stated_and_not_those_of_before(name: str) -> None:
    session = worked(name)
    later = replace(WORLD, date="2026-11-17", files={**WORLD.files, "/repo/AGENTS.md": "be brief", "/home/u/.claude/CLAUDE.md": "mine"})
    later = later.with_state(mode="execute", tasks=("[>] 2 write the lexer",), business=("done", "request completed"))
    state(session, later)
    fold(session)
    state(session, later)
    view = session.log.view
    shown = "\n".join(text_of(item.content) for item in (*view.head, *view.items) if not item.hidden)

    assert current(session, later)
    # A fold of Codex 0.166 keeps what was stated: the old instructions and behind them those that replace them.
    assert ("be kind" in shown or "my own" in shown) == (name == "codex-0.166")


@pytest.mark.states("PA-21")
def test_after_a_fold_head_instructions_mode_tasks_and_skills_are_those_of_now() -> None:
    session = worked("palimpsest")
    changed = WORLD.with_state(personality="pragmatic", mode="execute", tasks=("[>] 2 write the lexer",), model="gpt-5.2")
    state(session, changed)
    assert session.log.view.epoch == 1
    fold(session)
    state(session, changed)

    view = session.log.view
    assert view.epoch == 2
    assert [item.source for item in view.head] == ["base"]
    assert "matter-of-fact" in text_of(view.head[0].content)
    assert stated_value(view, "mode") == {"mode": "execute"}
    assert stated_value(view, "tasks") == {"tasks": "[>] 2 write the lexer"}


def test_a_measured_claude_fold_states_again_in_its_own_order() -> None:
    session = worked("claude-code-2.1.325")
    fold(session)
    event = state(session, WORLD)

    assert list(texts(event)) == [
        "deferred_tools",
        "agents",
        "skills",
        "environment",
        "model",
        "instructions",
        "session_context",
        "date",
        "attribution",
        "session_start",
        "mode",
    ]


def test_a_codex_fold_states_the_context_behind_the_summary_before_the_next_message() -> None:
    session = worked("codex")
    fold(session)
    state(session, WORLD)
    say(session, "ask 6")

    kinds = [item.kind for item in session.log.view.items]
    assert kinds[:7] == ["user"] * 6 + ["summary"]
    assert set(kinds[7:-1]) == {"context"}
    assert kinds[-1] == "user"


@every_case("name", PROFILES)
def test_the_prefix_of_a_request_stays_byte_equal_while_values_change_within_an_epoch(name: str) -> None:
    session = work(profile(name))
    state(session, WORLD)
    say(session, "ask")
    first = encode(session.log.view, session.card, params=session.params).body
    items = session.log.view.items
    reply(session, Text("done", "assistant"))
    later = replace(WORLD, date="2026-11-17").with_state(mode="execute", model="gpt-5.2", tasks=())
    state(session, later)
    say(session, "more")
    second = encode(session.log.view, session.card, params=session.params).body

    assert session.log.view.items[: len(items)] == items
    assert json.loads(first).get("system") == json.loads(second).get("system")
    assert json.loads(first)["messages"][0]["content"][0]["text"] == json.loads(second)["messages"][0]["content"][0]["text"]
    assert session.log.view.epoch == 1


def test_a_real_project_is_observed_outside_of_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("be kind")
    session = work(profile("palimpsest"))
    session.environment = replace(session.environment, offload=in_thread)
    world = LocalWorld(
        session_state(session, tmp_path, home=str(tmp_path / "home")), FixedClock(1_700_000_000_000), hides=lambda _: False, wrap=unconfined
    )

    async def twice() -> list[bool]:
        first = await state_context(session, world)
        session.log.append(UserSaid((Text("hello"),)))
        second = await state_context(session, world)
        assert first is not None
        assert isinstance(first.body, ContextStated)
        return ["be kind" in texts(first)["instructions"], second is None]

    assert asyncio.run(twice()) == [True, True]


def test_changes_have_a_key_of_their_own_so_that_a_fold_that_keeps_only_the_change_is_noticed() -> None:
    session = work(profile("palimpsest"))
    state(session, WORLD)
    state(session, WORLD.with_state(mode="execute"))

    assert f"mode{CHANGED}" in session.log.view.facts
    assert offline(session, run_policies(session, "before_call")).events == ()
