"""Claims of background jobs: which process works on what and until when, how it ended, and when it may be tried again."""

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from palimpsest.core.items import Value
from palimpsest.core.ports import Clock
from palimpsest.stores.notes.jobs_database import JobsDatabase

JobKind: TypeAlias = Literal["session", "scope", "memory_stage1", "memory_consolidate_global"]
ClaimStatus: TypeAlias = Literal["pending", "running", "done", "failed"]
SkipReason: TypeAlias = Literal["up_to_date", "running", "retry_later", "retries_used_up", "cooldown"]
_COLUMNS: Final = (
    "kind, key, status, token, lease_until, retries_left, retry_at, watermark, success_watermark, started_at, finished_at, succeeded_at,"
    " error, baseline"
)
_LONGEST_ERROR: Final = 300


class ClaimRules(Value, frozen=True):
    """Milliseconds of a lease and of the pause after a failure, and the number of tries."""

    lease_ms: int = 3_600_000
    retry_ms: int = 3_600_000
    retries: int = 3


class Claim(Value, frozen=True):
    """A job that this process may do until its lease ends. `watermark` is the state of the input that it is done for."""

    kind: JobKind
    key: str
    token: str
    watermark: int


class ClaimRow(Value, frozen=True):
    """The state of one job. Times are milliseconds since 1970; 0 means never."""

    kind: JobKind
    key: str
    status: ClaimStatus
    token: str = ""
    lease_until: int = 0
    retries_left: int = 0
    retry_at: int = 0
    watermark: int = 0
    success_watermark: int = -1
    started_at: int = 0
    finished_at: int = 0
    succeeded_at: int = 0
    error: str = ""
    baseline: str = ""


class JobClaims:
    """The jobs of a home. Every method is one transaction, so that two processes never hold one job.

    A completion, a failure or a renewal counts only with the token of the claim; each returns whether it did. `also` of a completion is
    done in the same transaction, and not at all if the job was taken over.
    """

    def __init__(self, database: JobsDatabase, clock: Clock, rules: ClaimRules) -> None:
        self._database = database
        self._clock = clock
        self._rules = rules

    def claim(self, kind: JobKind, key: str, watermark: int) -> Claim | SkipReason:
        """Take a job whose input has this watermark, or say why not. A newer watermark than that of the last try resets the tries."""
        with self._database.transaction() as database:
            row = _row(database, kind, key)
            if row is not None and row.success_watermark >= watermark:
                return "up_to_date"
            advanced = row is None or watermark > row.watermark
            if reason := self._hindrance(row, advanced=advanced):
                return reason
            return self._start(database, row, Claim(kind, key, secrets.token_hex(16), watermark), advanced=advanced)

    def claim_pending(self, kind: JobKind, key: str, cooldown_ms: int = 0) -> Claim | SkipReason:
        """Take a job that was enqueued since its last success, or say why not; after a success it waits for the cooldown."""
        with self._database.transaction() as database:
            row = _row(database, kind, key)
            if row is None or row.watermark <= row.success_watermark:
                return "up_to_date"
            # A clock that was set back does not make the cooldown longer.
            if row.status != "running" and 0 <= self._clock.now() - row.succeeded_at < cooldown_ms:
                return "cooldown"
            if reason := self._hindrance(row, advanced=False):
                return reason
            return self._start(database, row, Claim(kind, key, secrets.token_hex(16), row.watermark), advanced=False)

    def enqueue(self, kind: JobKind, key: str) -> None:
        """State that a job has something to do: its watermark moves forward, and its tries begin again unless it is running."""
        with self._database.transaction() as database:
            self.enqueue_in(database, kind, key)

    def enqueue_in(self, database: sqlite3.Connection, kind: JobKind, key: str) -> None:
        """As `enqueue`, within a transaction."""
        row = _row(database, kind, key)
        watermark = max(self._clock.now(), 0 if row is None else row.watermark + 1)
        database.execute(
            "INSERT INTO jobs (kind, key, status, retries_left, watermark) VALUES (?1, ?2, 'pending', ?3, ?4)"
            " ON CONFLICT (kind, key) DO UPDATE SET watermark = ?4, retries_left = max(retries_left, ?3),"
            " retry_at = CASE status WHEN 'running' THEN retry_at ELSE 0 END,"
            " status = CASE status WHEN 'running' THEN status ELSE 'pending' END",
            (kind, key, self._rules.retries, watermark),
        )

    def extend(self, claim: Claim) -> bool:
        """Begin the lease of a claim again."""
        with self._database.transaction() as database:
            changed = database.execute(
                "UPDATE jobs SET lease_until = ? WHERE kind = ? AND key = ? AND status = 'running' AND token = ?",
                (self._clock.now() + self._rules.lease_ms, claim.kind, claim.key, claim.token),
            )
            return changed.rowcount == 1

    def complete(self, claim: Claim, baseline: str = "", also: Callable[[sqlite3.Connection], None] | None = None) -> bool:
        """End a job with success. `baseline` describes the state that it left, by which the next change is found."""
        with self._database.transaction() as database:
            now = self._clock.now()
            changed = database.execute(
                "UPDATE jobs SET status = CASE WHEN watermark > ?1 THEN 'pending' ELSE 'done' END, token = '', lease_until = 0,"
                " success_watermark = max(success_watermark, ?1), finished_at = ?2, succeeded_at = ?2, error = '', retry_at = 0,"
                " baseline = ?3 WHERE kind = ?4 AND key = ?5 AND status = 'running' AND token = ?6",
                (claim.watermark, now, baseline, claim.kind, claim.key, claim.token),
            )
            if changed.rowcount != 1:
                return False
            if also is not None:
                also(database)
            return True

    def fail(self, claim: Claim, error: str) -> bool:
        """End a job with a failure: it can be tried again after the pause, as long as tries are left."""
        with self._database.transaction() as database:
            now = self._clock.now()
            changed = database.execute(
                "UPDATE jobs SET status = 'failed', token = '', lease_until = 0, retry_at = ?, retries_left = retries_left - 1, error = ?,"
                " finished_at = ? WHERE kind = ? AND key = ? AND status = 'running' AND token = ?",
                (now + self._rules.retry_ms, " ".join(error.split())[:_LONGEST_ERROR], now, claim.kind, claim.key, claim.token),
            )
            return changed.rowcount == 1

    def release(self, claim: Claim) -> bool:
        """Give a job back as if it had not been claimed, such as after Ctrl-C or without budget; no try is used up."""
        with self._database.transaction() as database:
            changed = database.execute(
                "UPDATE jobs SET status = 'pending', token = '', lease_until = 0"
                " WHERE kind = ? AND key = ? AND status = 'running' AND token = ?",
                (claim.kind, claim.key, claim.token),
            )
            return changed.rowcount == 1

    def reset(self, kind: JobKind, keys: Iterable[str]) -> None:
        """Forget that jobs were done, so that they can be done again; one that is running stays."""
        with self._database.transaction() as database:
            database.executemany("DELETE FROM jobs WHERE kind = ? AND key = ? AND status != 'running'", [(kind, key) for key in keys])

    def row(self, kind: JobKind, key: str) -> ClaimRow | None:
        """Return the state of a job; `None` if there never was one."""
        if not self._database.exists:
            return None
        with self._database.transaction() as database:
            return _row(database, kind, key)

    def rows(self) -> tuple[ClaimRow, ...]:
        """Return the states of all jobs, by kind and key."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            return tuple(ClaimRow(*each) for each in database.execute(f"SELECT {_COLUMNS} FROM jobs ORDER BY kind, key"))  # noqa: S608 - fixed names

    def _hindrance(self, row: ClaimRow | None, *, advanced: bool) -> SkipReason | None:
        now = self._clock.now()
        if row is None:
            return None
        if row.status == "running" and row.lease_until > now:
            return "running"
        if not advanced and row.retry_at > now:
            return "retry_later"
        return "retries_used_up" if not advanced and row.retries_left <= 0 else None

    def _start(self, database: sqlite3.Connection, row: ClaimRow | None, claim: Claim, *, advanced: bool) -> Claim:
        now = self._clock.now()
        retries = self._rules.retries if row is None or advanced else row.retries_left
        database.execute(
            "INSERT INTO jobs (kind, key, status, token, lease_until, retries_left, watermark, started_at)"
            " VALUES (?1, ?2, 'running', ?3, ?4, ?5, ?6, ?7) ON CONFLICT (kind, key) DO UPDATE SET status = 'running', token = ?3,"
            " lease_until = ?4, retries_left = ?5, retry_at = 0, watermark = ?6, started_at = ?7",
            (claim.kind, claim.key, claim.token, now + self._rules.lease_ms, retries, claim.watermark, now),
        )
        return claim


def _row(database: sqlite3.Connection, kind: JobKind, key: str) -> ClaimRow | None:
    found = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE kind = ? AND key = ?", (kind, key)).fetchone()  # noqa: S608 - fixed names
    return None if found is None else ClaimRow(*found)
