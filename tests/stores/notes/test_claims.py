"""Claims of background jobs: leases, tokens, tries and watermarks, between processes that may be killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import StoreError
from palimpsest.memory.work_store import Claim, ClaimRow, ClaimRules, JobClaims, JobsDatabase, RolloutRow, RolloutRows, put_row
from palimpsest.stores.in_memory import FixedClock

HOUR = 3_600_000
START = 1_780_000_000_000


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(START)


@pytest.fixture
def claims(tmp_path: Path, clock: FixedClock) -> JobClaims:
    return JobClaims(JobsDatabase(tmp_path), clock, ClaimRules())


def taken(found: Claim | str) -> Claim:
    assert isinstance(found, Claim), found
    return found


@pytest.mark.states("CX-47")
def test_a_claim_is_exclusive_and_a_live_lease_is_respected(claims: JobClaims, clock: FixedClock) -> None:
    claim = taken(claims.claim("session", "s", 5))
    clock.time += HOUR - 1
    assert claims.claim("session", "s", 5) == "running"
    assert claims.claim("session", "s", 9) == "running"
    row = claims.row("session", "s")
    assert row == ClaimRow("session", "s", "running", claim.token, START + HOUR, 3, 0, 5, -1, START)


@pytest.mark.states("ME-32")
def test_an_expired_lease_can_be_taken_and_a_late_completion_changes_nothing(claims: JobClaims, clock: FixedClock) -> None:
    late = taken(claims.claim("session", "s", 5))
    clock.time += HOUR
    other = taken(claims.claim("session", "s", 5))
    before = claims.rows()
    assert (claims.complete(late), claims.fail(late, "x"), claims.extend(late), claims.release(late)) == (False, False, False, False)
    assert claims.rows() == before
    assert claims.complete(other)
    assert claims.claim("session", "s", 5) == "up_to_date"


@pytest.mark.states("CX-47")
def test_what_a_stolen_job_would_have_stored_is_not_stored(claims: JobClaims, clock: FixedClock, tmp_path: Path) -> None:
    late = taken(claims.claim("session", "s", 5))
    clock.time += HOUR
    taken(claims.claim("session", "s", 5))
    row = RolloutRow("s", "user", "stem", 5, START)
    assert not claims.complete(late, also=lambda database: put_row(database, row))
    assert RolloutRows(JobsDatabase(tmp_path)).all() == ()


@pytest.mark.states("CX-48")
def test_a_failed_job_waits_an_hour_and_has_three_tries(claims: JobClaims, clock: FixedClock) -> None:
    for _ in range(3):
        assert claims.fail(taken(claims.claim("session", "s", 5)), "no\n answer")
        assert claims.claim("session", "s", 5) == "retry_later"
        clock.time += HOUR
    assert claims.claim("session", "s", 5) == "retries_used_up"
    row = claims.row("session", "s")
    assert row is not None
    assert (row.status, row.error, row.retries_left) == ("failed", "no answer", 0)


@pytest.mark.states("CX-48")
def test_a_newer_watermark_resets_the_pause_and_the_tries(claims: JobClaims) -> None:
    claims.fail(taken(claims.claim("session", "s", 5)), "no answer")
    assert claims.claim("session", "s", 5) == "retry_later"
    assert claims.claim("session", "s", 4) == "retry_later"
    assert taken(claims.claim("session", "s", 6)).watermark == 6
    row = claims.row("session", "s")
    assert row is not None
    assert (row.retries_left, row.retry_at) == (3, 0)


@pytest.mark.states("CX-53")
def test_a_consolidation_runs_only_when_its_watermark_passed_the_last_success(claims: JobClaims, clock: FixedClock) -> None:
    assert claims.claim_pending("scope", "user") == "up_to_date"
    claims.enqueue("scope", "user")
    claim = taken(claims.claim_pending("scope", "user"))
    assert claims.complete(claim)
    assert claims.claim_pending("scope", "user") == "up_to_date"
    clock.time -= HOUR
    claims.enqueue("scope", "user")
    assert taken(claims.claim_pending("scope", "user")).watermark == claim.watermark + 1


@pytest.mark.states("CX-53")
def test_what_is_enqueued_during_a_run_is_done_after_it(claims: JobClaims) -> None:
    claims.enqueue("scope", "user")
    claim = taken(claims.claim_pending("scope", "user"))
    claims.enqueue("scope", "user")
    assert claims.claim_pending("scope", "user") == "running"
    assert claims.complete(claim)
    assert taken(claims.claim_pending("scope", "user")).watermark == claim.watermark + 1


def test_a_consolidation_waits_for_its_cooldown_and_enqueueing_gives_it_new_tries(claims: JobClaims, clock: FixedClock) -> None:
    claims.enqueue("scope", "user")
    claims.complete(taken(claims.claim_pending("scope", "user")))
    claims.enqueue("scope", "user")
    assert claims.claim_pending("scope", "user", 6 * HOUR) == "cooldown"
    clock.time += 6 * HOUR
    claims.fail(taken(claims.claim_pending("scope", "user", 6 * HOUR)), "no answer")
    assert claims.claim_pending("scope", "user", 6 * HOUR) == "retry_later"
    claims.enqueue("scope", "user")
    taken(claims.claim_pending("scope", "user", 6 * HOUR))


@pytest.mark.states("CX-54")
def test_a_heartbeat_extends_the_lease(claims: JobClaims, clock: FixedClock) -> None:
    claims.enqueue("scope", "user")
    claim = taken(claims.claim_pending("scope", "user"))
    clock.time += HOUR - 1
    assert claims.extend(claim)
    clock.time += HOUR - 1
    assert claims.claim_pending("scope", "user") == "running"
    clock.time += 1
    taken(claims.claim_pending("scope", "user"))
    assert not claims.extend(claim)


def test_a_released_job_can_be_taken_at_once_and_has_lost_no_try(claims: JobClaims) -> None:
    assert claims.release(taken(claims.claim("session", "s", 5)))
    claim = taken(claims.claim("session", "s", 5))
    row = claims.row("session", "s")
    assert row is not None
    assert (row.token, row.retries_left) == (claim.token, 3)


@given(st.lists(st.sampled_from(("enqueue", "claim", "complete", "fail", "later")), max_size=30))
@pytest.mark.states("CX-53")
def test_enqueueing_always_moves_the_watermark_forward(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    clock = FixedClock(START)
    claims = JobClaims(JobsDatabase(tmp_path_factory.mktemp("jobs")), clock, ClaimRules())
    held: Claim | None = None
    for step in steps:
        before = claims.row("scope", "user")
        match step:
            case "enqueue":
                claims.enqueue("scope", "user")
                after = claims.row("scope", "user")
                assert after is not None
                assert after.watermark > (-1 if before is None else before.watermark)
                assert after.watermark > after.success_watermark
            case "claim":
                found = claims.claim_pending("scope", "user")
                held = found if isinstance(found, Claim) else held
            case "later":
                clock.time += HOUR
            case _ if held is not None:
                claims.complete(held) if step == "complete" else claims.fail(held, "x")
            case _:
                continue
    row = claims.row("scope", "user")
    assert row is None or row.success_watermark <= row.watermark


_WORKER = """
import sys
from pathlib import Path
from palimpsest.stores.in_memory import FixedClock
from palimpsest.memory.work_store import Claim, ClaimRules, JobClaims
from palimpsest.memory.work_store import JobsDatabase
claims = JobClaims(JobsDatabase(Path(sys.argv[1])), FixedClock(1_780_000_000_000), ClaimRules())
sys.stdin.readline()
for number in range(40):
    found = claims.claim("session", f"s{number}", 1)
    if isinstance(found, Claim):
        print(number, claims.complete(found), flush=True)
"""


@pytest.mark.states("ME-32")
def test_two_processes_at_once_do_each_job_once(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        outputs += worker.communicate(timeout=120)[0].splitlines()
    assert sorted(outputs) == sorted(f"{number} True" for number in range(40))


_KILLED = """
import os, signal, sys
from pathlib import Path
from palimpsest.memory.work_store import JobsDatabase
with JobsDatabase(Path(sys.argv[1])).transaction() as database:
    database.execute("INSERT INTO jobs (kind, key, status, retries_left, watermark) VALUES ('session', 's', 'running', 3, 1)")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_killed_within_a_transaction_leaves_nothing_of_it(tmp_path: Path, claims: JobClaims) -> None:
    claims.enqueue("scope", "user")
    before = claims.rows()
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert claims.rows() == before
    taken(claims.claim("session", "s", 1))


def test_a_database_that_is_none_is_an_error_with_its_path(tmp_path: Path, clock: FixedClock) -> None:
    (tmp_path / "jobs.sqlite").write_bytes(b"no database, but longer than the header of one " * 20)
    claims = JobClaims(JobsDatabase(tmp_path), clock, ClaimRules())
    with pytest.raises(StoreError) as caught:
        claims.claim("session", "s", 1)
    assert caught.value.where == str(tmp_path / "jobs.sqlite")


def test_the_database_is_private(claims: JobClaims, tmp_path: Path) -> None:
    claims.enqueue("scope", "user")
    assert (tmp_path / "jobs.sqlite").stat().st_mode & 0o077 == 0
