"""The database of memory's background work: claims, daily token spending, kept session summaries, and rows of stage one."""

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.items import Value
from palimpsest.core.ports import Clock
from palimpsest.stores.database import is_damaged
from palimpsest.stores.files import bounded_text, make_private_folder, open_in_folder, store_errors, write_private

FILE_NAME: Final = "jobs.sqlite"
# Another process holds the file for some milliseconds at most.
_WAIT_SECONDS: Final = 10.0
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS jobs (
        kind TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, token TEXT NOT NULL DEFAULT '', lease_until INTEGER NOT NULL DEFAULT 0,
        retries_left INTEGER NOT NULL, retry_at INTEGER NOT NULL DEFAULT 0, watermark INTEGER NOT NULL,
        success_watermark INTEGER NOT NULL DEFAULT -1, started_at INTEGER NOT NULL DEFAULT 0, finished_at INTEGER NOT NULL DEFAULT 0,
        succeeded_at INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', baseline TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (kind, key))""",
    """CREATE TABLE IF NOT EXISTS rollouts (
        session TEXT PRIMARY KEY, scope TEXT NOT NULL, stem TEXT NOT NULL, source_at INTEGER NOT NULL, made_at INTEGER NOT NULL,
        uses INTEGER NOT NULL DEFAULT 0, last_used INTEGER NOT NULL DEFAULT 0, selected_at INTEGER NOT NULL DEFAULT -1)""",
    "CREATE TABLE IF NOT EXISTS facts (session TEXT PRIMARY KEY, scope TEXT NOT NULL, data BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS stage1_outputs (
        root TEXT NOT NULL, thread_id TEXT NOT NULL, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
        rollout_summary TEXT NOT NULL, rollout_slug TEXT NOT NULL, stem TEXT NOT NULL, cwd TEXT NOT NULL, branch TEXT NOT NULL,
        user_words TEXT NOT NULL, generated_at INTEGER NOT NULL, usage_count INTEGER NOT NULL DEFAULT 0,
        last_usage INTEGER NOT NULL DEFAULT 0, selected_for_phase2 INTEGER NOT NULL DEFAULT -1, PRIMARY KEY (root, thread_id))""",
    "CREATE TABLE IF NOT EXISTS spending (day TEXT PRIMARY KEY, read INTEGER NOT NULL, written INTEGER NOT NULL)",
)


class JobsDatabase:
    """The file `jobs.sqlite` of a folder. It is made with the first transaction; a crash leaves the state before or after one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.path.exists()

    def compact(self) -> None:
        """Remove freed pages from the file. Raises `StoreError` if it cannot be used."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
                database.execute("VACUUM")
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def delete(self) -> None:
        """Delete the file with its side files; what it counts is counted again."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for one change, which takes place as a whole or not at all. Raises `StoreError` if it cannot be used."""
        if not self.path.exists():
            with store_errors(self.path, "create"):
                os.close(open_in_folder(self.path, os.O_RDWR | os.O_CREAT))
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
                # What is deleted is overwritten, so that nothing of what was forgotten stays in the file.
                database.execute("PRAGMA secure_delete=ON")
                database.execute("BEGIN IMMEDIATE")
                try:
                    for table in _TABLES:
                        database.execute(table)
                    yield database
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        """Return an error of SQLite with advice. A damaged file is not made again here, since it counts what the day may still cost."""
        advice = "; delete it, then sessions are read again and the tokens of this day count from 0" if is_damaged(error) else ""
        return StoreError(f"cannot use the database of memory's jobs: {error}{advice}", where=str(self.path))


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
            row = _claim_row(database, kind, key)
            if row is not None and row.success_watermark >= watermark:
                return "up_to_date"
            advanced = row is None or watermark > row.watermark
            if reason := self._hindrance(row, advanced=advanced):
                return reason
            return self._start(database, row, Claim(kind, key, secrets.token_hex(16), watermark), advanced=advanced)

    def claim_pending(self, kind: JobKind, key: str, cooldown_ms: int = 0) -> Claim | SkipReason:
        """Take a job that was enqueued since its last success, or say why not; after a success it waits for the cooldown."""
        with self._database.transaction() as database:
            row = _claim_row(database, kind, key)
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
        row = _claim_row(database, kind, key)
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
            return _claim_row(database, kind, key)

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


def _claim_row(database: sqlite3.Connection, kind: JobKind, key: str) -> ClaimRow | None:
    found = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE kind = ? AND key = ?", (kind, key)).fetchone()  # noqa: S608 - fixed names
    return None if found is None else ClaimRow(*found)


class Tokens(Value, frozen=True):
    """Tokens of requests and of replies."""

    read: int = 0
    written: int = 0


class DaySpending:
    """What was used on a day (`YYYY-MM-DD`, UTC). Adding takes place at once, so that parallel workers see each other's use.

    Every method raises `StoreError` if the database cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._database = JobsDatabase(folder)

    def used(self, day: str) -> Tokens:
        """Return what was used on a day."""
        if not self._database.exists:
            return Tokens()
        with self._database.transaction() as database:
            row = database.execute("SELECT read, written FROM spending WHERE day = ?", (day,)).fetchone()
        return Tokens() if row is None else Tokens(*row)

    def add(self, day: str, tokens: Tokens) -> None:
        """Count further tokens of a day; negative ones correct a reservation."""
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO spending VALUES (?1, max(0, ?2), max(0, ?3))"
                " ON CONFLICT (day) DO UPDATE SET read = max(0, read + ?2), written = max(0, written + ?3)",
                (day, tokens.read, tokens.written),
            )

    def reserve(self, day: str, tokens: Tokens, most: Tokens) -> bool:
        """Count tokens that a call may use, unless the day would then exceed `most`. Returns whether they were counted.

        The caller corrects the count with `add` when it knows the use; after a crash the reservation counts as used.
        """
        with self._database.transaction() as database:
            database.execute("INSERT INTO spending VALUES (?, 0, 0) ON CONFLICT (day) DO NOTHING", (day,))
            changed = database.execute(
                "UPDATE spending SET read = read + ?2, written = written + ?3 WHERE day = ?1 AND read + ?2 <= ?4 AND written + ?3 <= ?5",
                (day, tokens.read, tokens.written, most.read, most.written),
            )
            return changed.rowcount == 1


FOLDER: Final = "rollouts"
# Bytes of one file, and files of one scope that are read.
LARGEST_SUMMARY: Final = 64 * 1024
MOST_SUMMARIES: Final = 5_000
_ROLLOUT_COLUMNS: Final = "session, scope, stem, source_at, made_at, uses, last_used, selected_at"


class RolloutRow(Value, frozen=True):
    """A summary and how it is used. Times are milliseconds since 1970; `source_at` is the last event of the session that it is of.

    `selected_at` is the `source_at` with which the last consolidation read it, -1 if it did not.
    """

    session: str
    scope: str
    stem: str
    source_at: int
    made_at: int
    uses: int = 0
    last_used: int = 0
    selected_at: int = -1


class RolloutRows:
    """The rows of all summaries of a home."""

    def __init__(self, database: JobsDatabase) -> None:
        self._database = database

    def all(self, scope: str = "") -> tuple[RolloutRow, ...]:
        """Return the rows of a scope, or of all, by session."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_ROLLOUT_COLUMNS} FROM rollouts WHERE ?1 IN ('', scope) ORDER BY session", (scope,))  # noqa: S608 - fixed names
            return tuple(RolloutRow(*each) for each in found)

    def of(self, session: str) -> tuple[RolloutRow, ...]:
        """Return the row of a session, if it has one."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_ROLLOUT_COLUMNS} FROM rollouts WHERE session = ?", (session,))  # noqa: S608 - fixed names
            return tuple(RolloutRow(*each) for each in found)

    def count_use(self, sessions: Iterable[str], at: int) -> int:
        """Count one use of each summary at a time, and return how many of them exist."""
        with self._database.transaction() as database:
            each = "UPDATE rollouts SET uses = uses + 1, last_used = max(last_used, ?) WHERE session = ?"
            return sum(database.execute(each, (at, session)).rowcount for session in dict.fromkeys(sessions))

    def drop(self, sessions: Iterable[str]) -> None:
        """Delete rows."""
        with self._database.transaction() as database:
            database.executemany("DELETE FROM rollouts WHERE session = ?", [(session,) for session in sessions])

    def facts(self, scope: str) -> tuple[bytes, ...]:
        """Return the facts of the sessions of a scope, by session; they are opaque here."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute("SELECT data FROM facts WHERE scope = ? ORDER BY session", (scope,))
            return tuple(bytes(data) for (data,) in found)

    def fact_sessions(self) -> dict[str, str]:
        """Return the scope of each session that has facts."""
        if not self._database.exists:
            return {}
        with self._database.transaction() as database:
            return dict(database.execute("SELECT session, scope FROM facts").fetchall())

    def drop_facts(self, sessions: Iterable[str]) -> None:
        """Delete the facts of sessions."""
        with self._database.transaction() as database:
            database.executemany("DELETE FROM facts WHERE session = ?", [(session,) for session in sessions])

    def adopt(self, rows: Iterable[RolloutRow]) -> None:
        """Add rows of files that have none, such as after the database was deleted; a row that exists stays."""
        with self._database.transaction() as database:
            for row in rows:
                put_row(database, row, replaces=False)


def put_row(database: sqlite3.Connection, row: RolloutRow, *, replaces: bool = True) -> None:
    """Add or replace a row within a transaction; its uses stay."""
    then = "UPDATE SET scope = ?2, stem = ?3, source_at = ?4, made_at = ?5" if replaces else "NOTHING"
    database.execute(
        f"INSERT INTO rollouts (session, scope, stem, source_at, made_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session) DO {then}",  # noqa: S608 - two fixed texts
        (row.session, row.scope, row.stem, row.source_at, row.made_at),
    )


def put_facts(database: sqlite3.Connection, session: str, scope: str, data: bytes) -> None:
    """Add or replace the facts of a session within a transaction."""
    database.execute(
        "INSERT INTO facts VALUES (?1, ?2, ?3) ON CONFLICT (session) DO UPDATE SET scope = ?2, data = ?3", (session, scope, data)
    )


def delete_row(database: sqlite3.Connection, session: str) -> bool:
    """Delete a row within a transaction. Returns whether there was one."""
    return database.execute("DELETE FROM rollouts WHERE session = ?", (session,)).rowcount == 1


def mark_selected(database: sqlite3.Connection, scope: str, selected: Mapping[str, int]) -> None:
    """State which summaries a consolidation has read, with the time of their last event, within a transaction."""
    database.execute("UPDATE rollouts SET selected_at = -1 WHERE scope = ?", (scope,))
    database.executemany("UPDATE rollouts SET selected_at = ? WHERE session = ?", [(at, session) for session, at in selected.items()])


class RolloutFiles:
    """The folder of summaries of one scope. Texts are opaque here; each file is written in one step."""

    def __init__(self, scope_folder: Path) -> None:
        self.folder = scope_folder / FOLDER

    def read(self) -> dict[str, str]:
        """Return the texts by stem. Links, other kinds of files, and files that are too large or no text are left out."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".md"))[:MOST_SUMMARIES]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        texts = {name.removesuffix(".md"): bounded_text(self.folder / name, LARGEST_SUMMARY) for name in names}
        return {stem: text for stem, text in texts.items() if text is not None}

    def write(self, stem: str, text: str) -> None:
        """Write a summary. Raises `StoreError` if it cannot be written."""
        with store_errors(self.folder, "create"):
            # One by one: parents that are made along the way would be readable by others.
            for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                make_private_folder(folder)
        write_private(self._path(stem), text.encode())

    def delete(self, stem: str) -> None:
        """Delete a summary, if it exists."""
        path = self._path(stem)
        with store_errors(path, "delete"):
            path.unlink(missing_ok=True)

    def _path(self, stem: str) -> Path:
        if not stem or stem.startswith(".") or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in stem):
            raise BadInput("the name of a summary has letters, digits, - and _", where=stem[:80])
        return self.folder / f"{stem}.md"


_STAGE_COLUMNS: Final = (
    "thread_id, source_updated_at, raw_memory, rollout_summary, rollout_slug, stem, cwd, branch, user_words, generated_at, usage_count,"
    " last_usage, selected_for_phase2"
)


class StageRows:
    """The rows of one folder of memory."""

    def __init__(self, database: JobsDatabase, root: str) -> None:
        self._database = database
        self._root = root

    def all(self) -> tuple[tuple[str | int, ...], ...]:
        """Return all rows, by session; what they say is opaque here."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_STAGE_COLUMNS} FROM stage1_outputs WHERE root = ? ORDER BY thread_id", (self._root,))  # noqa: S608 - fixed names
            return tuple(found)

    def count_use(self, sessions: Iterable[str], at: int) -> int:
        """Count one use of each session at a time, and return how many of them have a row."""
        if not self._database.exists:
            return 0
        with self._database.transaction() as database:
            each = (
                "UPDATE stage1_outputs SET usage_count = usage_count + 1, last_usage = max(last_usage, ?) WHERE root = ? AND thread_id = ?"
            )
            return sum(database.execute(each, (at, self._root, session)).rowcount for session in dict.fromkeys(sessions))

    def drop(self, sessions: Iterable[str]) -> None:
        """Delete rows."""
        with self._database.transaction() as database:
            database.executemany(
                "DELETE FROM stage1_outputs WHERE root = ? AND thread_id = ?", [(self._root, session) for session in sessions]
            )

    def put(self, database: sqlite3.Connection, row: Sequence[str | int]) -> None:
        """Add or replace a row, up to `generated_at`, within a transaction, unless that of newer events is there; its uses stay."""
        database.execute(
            "INSERT INTO stage1_outputs (root, thread_id, source_updated_at, raw_memory, rollout_summary, rollout_slug, stem, cwd, branch,"
            " user_words, generated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (root, thread_id) DO UPDATE SET"
            " source_updated_at = ?3, raw_memory = ?4, rollout_summary = ?5, rollout_slug = ?6, stem = ?7, cwd = ?8, branch = ?9,"
            " user_words = ?10, generated_at = ?11 WHERE source_updated_at <= ?3",
            (self._root, *row),
        )

    def delete(self, database: sqlite3.Connection, session: str) -> bool:
        """Delete a row within a transaction. Returns whether there was one."""
        return database.execute("DELETE FROM stage1_outputs WHERE root = ? AND thread_id = ?", (self._root, session)).rowcount == 1

    def mark_selected(self, database: sqlite3.Connection, selected: Mapping[str, int]) -> None:
        """State which rows a consolidation has read, with the time of their last event, within a transaction."""
        database.execute("UPDATE stage1_outputs SET selected_for_phase2 = -1 WHERE root = ?", (self._root,))
        database.executemany(
            "UPDATE stage1_outputs SET selected_for_phase2 = ? WHERE root = ? AND thread_id = ?",
            [(at, self._root, session) for session, at in selected.items()],
        )
