"""Rewinds after random work of tools, commands and the user: what turns changed goes back, and nothing else."""

import asyncio
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from file_turns import allow_once
from git_projects import Project
from random_work import Work, expected, put, random_work, replies, state_of

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.file_undo import FileRewinding
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ToolReturned, TurnStarted
from palimpsest.core.items import text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome

pytestmark = pytest.mark.machine

SEQUENCES = 200
IN_ONE_TEST = 20
# Sequences of every run of the tests; the others belong to `pytest -m long`.
AT_ONCE = 20


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a snapshot is synced, and the law is not about the disk."""
    shared = Path("/dev", "shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


def digest_of_git(root: Path) -> str:
    """A digest of every file of the user's repository."""
    digest = sha256()
    for path in sorted((root / ".git").rglob("*")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


async def worked(work: Work, root: Path, home: FolderHome, profile: str) -> Agent:
    """An agent after the work, which is still open."""
    turns = replies(work)
    provider = Scripted(*(reply for turn in turns for reply in turn))
    agent = Agent("claude-sonnet-4-5", provider=provider, cwd=root, home=home, profile=profile)
    equip(agent, home, CodingSettings(mode="edits", sandbox="off", tools=()), allow_once)
    for who, changes in work.changes:
        if who == "user":
            put(root, changes)
        elif who == "turn":
            answer = await agent.ask("work")
            assert answer.stop == "done"
    results = [event.body for event in agent.session.log.events() if isinstance(event.body, ToolReturned)]
    assert [text_of(body.result) for body in results if body.result.error or body.exit] == []
    return agent


def check(seed: int, place: Path) -> None:
    work = random_work(seed)
    root, home = place / f"project{seed}", FolderHome(place / f"home{seed}")
    root.mkdir()
    (root / ".gitignore").write_text("*.log\n")
    if seed % 2:
        Project(root).git("init", "-q")
        Project(root).git("add", ".gitignore")
    agent = asyncio.run(worked(work, root, home, ("palimpsest", "codex", "opencode")[seed % 3]))
    try:
        assert state_of(root) == work.now
        git_before = digest_of_git(root)
        log = agent.session.log
        starts = [event.seq for event in log.events() if isinstance(event.body, TurnStarted)]
        turn = seed % len(starts)
        state, conflicts = expected(work, turn)
        rewinding = FileRewinding(log, place / f"home{seed}")
        plan = rewinding.plan(starts[turn] - 1)
        assert {conflict.path for conflict in plan.conflicts} == conflicts
        if conflicts:
            with pytest.raises(BadInput, match="nothing was changed"):
                rewinding.carry_out(plan)
            assert state_of(root) == work.now
        rewinding.carry_out(plan, partial=True)
        assert state_of(root) == state
        rewinding.carry_out(rewinding.plan_undo())
        assert state_of(root) == work.now
        assert digest_of_git(root) == git_before
    finally:
        agent.close()


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.long] if first >= AT_ONCE else []) for first in range(0, SEQUENCES, IN_ONE_TEST)]
)
def test_a_rewind_restores_what_turns_changed_and_never_what_the_user_changed(place: Path, first: int) -> None:
    for seed in range(first, first + IN_ONE_TEST):
        check(seed, place)


def test_the_random_work_has_conflicts_merges_and_clean_rewinds() -> None:
    found = [expected(random_work(seed), seed % len(random_work(seed).before)) for seed in range(SEQUENCES)]
    assert 20 < sum(bool(conflicts) for _, conflicts in found) < 150
