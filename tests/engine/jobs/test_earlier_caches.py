"""What is remembered of the caches of finished sessions, and what a later session learns from it."""

import asyncio
from pathlib import Path

import pytest
from job_stubs import MODEL

from palimpsest.agent.agent import Agent
from palimpsest.agent.jobs import MOST_SESSIONS, earlier_caches
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text
from palimpsest.core.plans import CacheAccount
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.files import FileDocument
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock, MemoryDocument

MINUTE = 60_000
WROTE = ModelReplied((Text("done", "assistant"),), usage=Usage(cache_write=10_000), model=MODEL)


def run_session(home: FolderHome, clock: FixedClock, *pauses: int, away: int = 0, profile: str = "lossless", resume: str = "") -> str:
    """A session of one turn, and one more after each pause in minutes; in the end the user is away for so many."""

    async def run() -> str:
        async with Agent(MODEL, provider=Scripted(*[WROTE] * 9), home=home, profile=profile, resume=resume) as agent:
            await agent.ask("go")
            for pause in pauses:
                clock.time += pause * MINUTE
                await agent.ask("go on")
            clock.time += away * MINUTE
            return agent.id

    return asyncio.run(run())


def test_a_session_learns_the_pauses_of_earlier_ones(tmp_path: Path) -> None:
    clock = FixedClock(1_000_000, 0)
    home = FolderHome(tmp_path, clock)
    first = run_session(home, clock, 20, 2)
    # After twenty minutes an hour would have read what was written again; after two minutes the provider reported no read at all.
    once = CacheAccount(37_500.0, 37_500.0, 41_000.0, waiting=(20 * MINUTE,))
    assert earlier_caches(home.pauses, "another") == earlier_caches(home.pauses) == once
    assert earlier_caches(home.pauses, first) == CacheAccount()
    run_session(home, clock, 8, away=30)
    both = earlier_caches(home.pauses)
    assert (both.waiting, both.ends) == ((20 * MINUTE, 8 * MINUTE), 1)
    assert (both.paid, both.short, both.long) == ((37_500 + 25_000) / 2, (37_500 + 25_000) / 2, (41_000 + 21_000) / 2)
    assert first not in (tmp_path / "pauses.json").read_text()


@pytest.mark.parametrize(("pauses", "profile"), [((), "lossless"), ((20,), "none")])
def test_one_turn_and_profiles_that_choose_nothing_leave_nothing(tmp_path: Path, pauses: tuple[int, ...], profile: str) -> None:
    clock = FixedClock(1_000_000, 0)
    run_session(FolderHome(tmp_path, clock), clock, *pauses, profile=profile)
    assert not (tmp_path / "pauses.json").exists()


def test_a_session_that_goes_on_later_counts_once(tmp_path: Path) -> None:
    clock = FixedClock(1_000_000, 0)
    home = FolderHome(tmp_path, clock)
    first = run_session(home, clock, 20)
    clock.time += 90 * MINUTE
    run_session(home, clock, resume=first)
    assert earlier_caches(home.pauses).waiting == (20 * MINUTE, 90 * MINUTE)


def test_only_the_newest_sessions_are_kept_and_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    clock = FixedClock(1_000_000, 0)
    home = FolderHome(tmp_path, clock)
    home.pauses.save(b"{nonsense")
    assert earlier_caches(home.pauses) == CacheAccount()
    for number in range(MOST_SESSIONS + 2):
        run_session(home, clock, 6 + number)
    assert earlier_caches(home.pauses).waiting == tuple((8 + number) * MINUTE for number in range(MOST_SESSIONS))
    assert isinstance(home.pauses, FileDocument)
    assert earlier_caches(MemoryDocument()) == CacheAccount()
