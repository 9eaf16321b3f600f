"""The stores of the pipeline, claims that are kept alive, budgets of a run and of a day, and the sessions that are due."""

import math
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from palimpsest.agent.limits import price_of_limit
from palimpsest.core.errors import BadInput, BudgetSpent, OverBudget, PalimpsestError, ProviderError, StoreError
from palimpsest.core.events import Event as DueSessionsEvent
from palimpsest.core.events import ModelReplied, SessionOpened, Usage
from palimpsest.core.items import text_of
from palimpsest.core.lines import decode_line
from palimpsest.core.plans import Answer, Ask, EventSpan, Want, span
from palimpsest.core.ports import Clock, LogFile, LogStat
from palimpsest.core.reading import LogReader, open_reader
from palimpsest.core.spending import total_of
from palimpsest.core.tokens import FAMILY_FACTORS, estimate, family_of
from palimpsest.memory.changes import Memory
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.store import USER_SCOPE, NoteFolder, all_tombstones, project_scope, scope_folder, tombstones_in
from palimpsest.memory.work_store import Claim, ClaimRules, DaySpending, JobClaims, JobsDatabase, RolloutFiles, RolloutRows, Tokens
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.memory_config import MemoryConfig
from palimpsest.wire.models import ModelCard

_ID_LENGTH: Final = 12


class PipelinePlaces:
    """Everything of a home that the pipeline reads and writes. Raises `BadInput` for a home in memory, which keeps nothing."""

    def __init__(self, home: Home, config: MemoryConfig) -> None:
        if not isinstance(home, FolderHome):
            raise BadInput("a home in memory has no notes; set PAL_HOME to a folder", where="memory")
        self.home = home
        self.config = config
        self.folder = home.folder / "memory"
        database = JobsDatabase(self.folder)
        rules = ClaimRules(int(config.lease_seconds * 1_000), int(config.retry_seconds * 1_000), config.retries)
        self.claims = JobClaims(database, home.clock, rules)
        self.rows = RolloutRows(database)
        self.spending = DaySpending(self.folder)
        self._scopes: dict[str, str] = {}

    def scope_of(self, cwd: str) -> str:
        """Return the scope of the project in which a session worked. Sessions of other machines have scopes of their own."""
        if cwd not in self._scopes:
            # A path of another system, or none, must not be read as one below the folder in which this process happens to run.
            known = Path(cwd).is_absolute() and "\0" not in cwd
            self._scopes[cwd] = project_scope(Path(cwd)) if known else f"project-{sha256(os.fsencode(cwd)).hexdigest()[:_ID_LENGTH]}"
        return self._scopes[cwd]

    def scopes(self) -> tuple[str, ...]:
        """Return the scopes that have a folder, or summaries that should be in one."""
        found = {row.scope for row in self.rows.all()}
        if self.folder.is_dir():
            found |= {entry.name for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False) and _is_scope(entry.name)}
        return tuple(sorted(found))

    def scope_folder(self, scope: str) -> Path:
        """Return the folder of a scope."""
        return scope_folder(self.home.folder, scope)

    def note_folder(self, scope: str) -> NoteFolder:
        """Return the notes of a scope as files."""
        return NoteFolder(self.scope_folder(scope), scope, self.home.clock)

    def notebook(self, scope: str) -> Notebook:
        """Return the notes of a scope."""
        return Notebook(self.note_folder(scope), self.home.clock)

    def memory_now(self, scope: str, notes: Mapping[str, Note]) -> Memory:
        """Return what changes of these notes are judged by, without taking the scope: for a look at what would change."""
        place = self.scope_folder(scope) / ".key"
        return Memory(notes, tombstones_in(place.parent), place.read_bytes() if place.is_file() else b"", "consolidate")

    def forgotten_events(self) -> frozenset[str]:
        """Return the ids of events whose notes were forgotten, in any scope of the home."""
        return frozenset(each for stone in all_tombstones(self.folder) for each in stone.evidence)

    def rollouts(self, scope: str) -> RolloutFiles:
        """Return the summaries of a scope as files."""
        return RolloutFiles(self.scope_folder(scope))


def _is_scope(name: str) -> bool:
    return name == USER_SCOPE or name.startswith("project-")


class Ownership:
    """Whether a claim is still held."""

    def __init__(self, claims: JobClaims, claim: Claim) -> None:
        self._claims = claims
        self._claim = claim
        self._is_lost = Event()

    def renew(self) -> bool:
        """Begin the lease again. Returns whether the claim is still held."""
        if not self._is_lost.is_set() and not self._claims.extend(self._claim):
            self._is_lost.set()
        return not self._is_lost.is_set()

    def prove(self) -> None:
        """Renew the lease before something is replaced. Raises `StoreError` if the job was taken over."""
        if not self.renew():
            raise StoreError("another process took over this job, so that nothing is replaced", where=self._claim.key)


@contextmanager
def kept_alive(claims: JobClaims, claim: Claim, seconds: float) -> Iterator[Ownership]:
    """Renew a claim every so many seconds until the block ends; 0 renews it only when it is proved."""
    ownership, is_over = Ownership(claims, claim), Event()

    def renew() -> None:
        while not is_over.wait(seconds):
            try:
                if not ownership.renew():
                    return
            except PalimpsestError:
                # A database that cannot be used now may be later; the lease is longer than several renewals.
                continue

    thread = Thread(target=renew, daemon=True, name="memory-heartbeat")
    if seconds > 0:
        thread.start()
    try:
        yield ownership
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()


Result = TypeVar("Result")
# The reasons are the same at every turn, so that each is recorded once.
JOBS_OFF: Final = "memory.jobs is off, so no model is asked"
DAY_SPENT: Final = "the tokens of a day for memory are spent (memory.day_tokens_read, memory.day_tokens_written)"
# How far the tokens of a request may lie above their estimate, and tokens that every request has beside its prompt.
_MARGIN: Final = 1.3
_OVERHEAD: Final = 500
# Tokens of a reply of an unknown model that has no limit of its own.
_LONGEST_REPLY: Final = 4_000
_NEWEST: Final = 2**53


def check_jobs(config: MemoryConfig) -> None:
    """Raise `OverBudget` if jobs of memory may ask no model at all."""
    if config.jobs == "off":
        raise OverBudget(JOBS_OFF, where="memory")


class RunCost(Struct, frozen=True):
    """What a run has used: calls, tokens, and US dollars by the prices of its model."""

    calls: int = 0
    read: int = 0
    written: int = 0
    usd: float = 0.0


class Reservation(Struct, frozen=True):
    """The most that one call can use."""

    day: str
    tokens: Tokens
    usd: float


class MemoryMeter:
    """What memory may ask for: tokens of a day (UTC), which all processes of a home share, and dollars of one run. Safe in threads.

    Without a card, the model is that of a session: its tokens are estimated by the highest count of all models, and no dollars are
    counted. A call that uses more than was reserved for it counts in full, and later reservations grow by as much: a model that reads
    more tokens than estimated exceeds a budget by the excess of the calls that were under way when that was found out, and by no other
    call. Raises `BadInput` if no price of the model is known.
    """

    def __init__(self, card: ModelCard | None, spending: DaySpending, clock: Clock, *, day: Tokens, usd: float = math.inf) -> None:
        self._card = card
        self._tariff = None if card is None else price_of_limit(card, usd, "run without a model (--no-model)", "memory.run_usd")
        self._spending = spending
        self._clock = clock
        self._usd = usd
        self._day = day
        self._lock = Lock()
        self._reserved = 0.0
        # By how much calls used more than was estimated for them at most: read and written.
        self._excess = (1.0, 1.0)
        self.spent = RunCost()

    def with_budget(self, usd: float) -> "MemoryMeter":
        """Return a meter of the same model and day with another budget, which has spent nothing yet."""
        return MemoryMeter(self._card, self._spending, self._clock, usd=usd, day=self._day)

    def reserve(self, want: Ask, *, cached_is_free: bool = False) -> Reservation:
        """Reserve the most that a call can use. Raises `OverBudget` if the run or the day does not allow it."""
        tokens = self._with_excess(most_tokens(want, self._card, cached_is_free=cached_is_free))
        usd = self._usd_of(Usage(input=tokens.read, output=tokens.written))
        day = datetime.fromtimestamp(self._clock.now() / 1000, UTC).strftime("%Y-%m-%d")
        with self._lock:
            if self.spent.usd + self._reserved + usd > self._usd:
                raise OverBudget(f"the budget of ${self._usd:g} for a run does not allow another call of up to ${usd:.4f}", where="memory")
            if not self._spending.reserve(day, tokens, self._day):
                raise BudgetSpent(DAY_SPENT, where="memory")
            self._reserved += usd
        return Reservation(day, tokens, usd)

    def settle(self, reservation: Reservation, usage: Usage | None, most_read: int | None = None) -> None:
        """Replace a reservation by the use; what is cached is free and at most `most_read` counts as read, if that is given.

        Of a failed call nothing is known, so that its tokens count as used. The same holds for a reply that does not say what was read or
        written.
        """
        with self._lock:
            self._reserved -= reservation.usd
            if usage is None or not (usage.prompt and usage.output):
                used, usd = reservation.tokens, reservation.usd
            else:
                read = usage.prompt if most_read is None else min(usage.prompt - usage.cache_read, most_read)
                used, usd = Tokens(read, usage.output), self._usd_of(usage)
                self._learn_excess(used, reservation.tokens)
                difference = Tokens(used.read - reservation.tokens.read, used.written - reservation.tokens.written)
                self._spending.add(reservation.day, difference)
            spent = self.spent
            self.spent = RunCost(spent.calls + 1, spent.read + used.read, spent.written + used.written, spent.usd + usd)

    def give_back(self, reservation: Reservation) -> None:
        """Give back the reservation of a call that was refused, and so has used nothing."""
        with self._lock:
            self._reserved -= reservation.usd
            self._spending.add(reservation.day, Tokens(-reservation.tokens.read, -reservation.tokens.written))

    def _usd_of(self, usage: Usage) -> float:
        return 0.0 if self._tariff is None else self._tariff.bill(usage).total

    def _with_excess(self, estimated: Tokens) -> Tokens:
        read, written = self._excess
        return Tokens(math.ceil(estimated.read * read), math.ceil(estimated.written * written))

    def _learn_excess(self, used: Tokens, reserved: Tokens) -> None:
        """Let later reservations grow as far as a call exceeded its own."""
        read, written = self._excess
        over_read, over_written = used.read / max(1, reserved.read), used.written / max(1, reserved.written)
        self._excess = (read * max(1.0, over_read), written * max(1.0, over_written))


def day_meter(memory: Path, clock: Clock, config: MemoryConfig) -> MemoryMeter:
    """Return what the jobs of a session may use on a day, counted in the folder `memory` of a home."""
    return MemoryMeter(None, DaySpending(memory), clock, day=Tokens(config.day_tokens_read, config.day_tokens_written))


def most_tokens(want: Ask, card: ModelCard | None, *, cached_is_free: bool = False) -> Tokens:
    """Return the most tokens that a call reads and writes, as far as an estimate tells; without the items if what is cached is free."""
    shown = "" if cached_is_free else "\n".join(text_of(item.content) for item in want.items)
    factor = max(FAMILY_FACTORS.values()) if card is None else FAMILY_FACTORS[family_of(card.name)]
    text = estimate(f"{want.system}{want.prompt}{want.schema}{shown}", factor)
    written = want.reply or _LONGEST_REPLY if card is None else min(want.reply or card.reply, card.reply)
    return Tokens((int(text * _MARGIN) + _OVERHEAD) * want.turns, written * want.turns)


def metered(
    steps: Generator[Want, Answer, Result], meter: MemoryMeter, *, cached_is_free: bool = False, after: int = -1
) -> Generator[Want, Answer, Result]:
    """Run steps so that each of their calls is reserved before and settled after it; `OverBudget` is thrown into them.

    With `cached_is_free`, the prefix that a request shares with its session is not counted, nor what is read from a cache, also where a
    server does not report that. `after` is the event behind which the replies to a want of several turns are found.
    """
    given: Answer | PalimpsestError = None
    while True:
        try:
            want = steps.throw(given) if isinstance(given, PalimpsestError) else steps.send(given)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            given = (yield want) if not isinstance(want, Ask) else (yield from _counted(want, meter, after, cached_is_free=cached_is_free))
        except PalimpsestError as error:
            given = error


def _counted(want: Ask, meter: MemoryMeter, after: int, *, cached_is_free: bool) -> Generator[Want, Answer, Answer]:
    reservation = meter.reserve(want, cached_is_free=cached_is_free)
    try:
        answer = yield want
    except BaseException as error:
        if isinstance(error, ProviderError) and error.is_refusal:
            meter.give_back(reservation)
        else:
            # Also after an interrupt: what was sent may have to be paid.
            meter.settle(reservation, None)
        raise
    if not (isinstance(answer, ModelReplied) and answer.usage.prompt and answer.usage.output):
        meter.settle(reservation, None)
        return answer
    replies = (answer,) if want.turns == 1 else (yield from _replies_of_turns(answer, after))
    # What was reserved for a turn is its request without the prefix, which the session has paid for.
    most_read = reservation.tokens.read * len(replies) // want.turns if cached_is_free else None
    meter.settle(reservation, total_of(reply.usage for reply in replies), most_read)
    return answer


def _replies_of_turns(last: ModelReplied, after: int) -> Generator[Want, Answer, tuple[ModelReplied, ...]]:
    """Return all replies to a want of several turns: its last one, and those before it in the log."""
    events = yield from span(EventSpan(after + 1, _NEWEST))
    return tuple(event.body for event in events if isinstance(event.body, ModelReplied) and event.body.purpose == last.purpose)


NotDue: TypeAlias = Literal["current", "open", "sub_agent", "not_interactive", "fresh", "too_old", "unreadable"]
# Logs that one search looks at, newest first.
MOST_SCANNED: Final = 5_000
_DAY_MS, _HOUR_MS, _NS_PER_MS = 86_400_000, 3_600_000, 1_000_000
_TAIL_BYTES: Final = 64 * 1024
# Greater than the number of any event.
_NO_LAST: Final = 10**17
# Sources of Codex threads that a person types into; others are started by programs.
_TYPED_INTO: Final = frozenset({"", "cli", "vscode"})


class DueSession(Struct, frozen=True):
    """A session to be read: when its last event was, in milliseconds since 1970, and the folder in which it worked."""

    session: str
    updated: int
    cwd: str
    origin: str


class SearchResult(Struct, frozen=True):
    """The sessions that are due, newest first, and the reasons of those that are not, by session."""

    due: tuple[DueSession, ...]
    not_due: dict[str, NotDue]


def due_sessions(places: PipelinePlaces, *, current: str = "", everything: bool = False) -> SearchResult:
    """Return the sessions that phase one may read. With `everything`, those that are fresh or old as well.

    Sub-agents, sessions that a program started (where the log says so), the current one and those that are open for writing are never due.
    """
    config, now = places.config, places.home.clock.now()
    oldest = now - int(config.age_days * _DAY_MS)
    newest = now - int(config.idle_hours * _HOUR_MS)
    due: list[DueSession] = []
    reasons: dict[str, NotDue] = {}
    stats = sorted(places.home.store.stats(), key=lambda stat: (stat.changed, stat.session), reverse=True)
    for stat in stats[: None if everything else MOST_SCANNED]:
        found = _judged(places, stat, current, oldest=0 if everything else oldest, newest=None if everything else newest)
        if isinstance(found, DueSession):
            due.append(found)
        else:
            reasons[stat.session] = found
    return SearchResult(tuple(sorted(due, key=lambda each: (-each.updated, each.session))), reasons)


def session_events(places: PipelinePlaces, session: str) -> Iterator[DueSessionsEvent]:
    """Yield the events of a session on its current path; of a fork its own, because the others are those of another session."""
    store = places.home.store
    with closing(store.open(session)) as lines, closing(open_reader(store, session, lines, check=False)) as reader:
        # Read once: opening the log as a session would compute its view, which nothing here needs.
        events = list(reader.run(reader.first, _NO_LAST))
        for event in events:
            reader.note_branching(event)
        path = reader.path(events[-1].seq) if events else None
    if path is not None:
        yield from (event for event in events if event.seq in path)


def _judged(places: PipelinePlaces, stat: LogStat, current: str, *, oldest: int, newest: int | None) -> DueSession | NotDue:
    if stat.session == current:
        return "current"
    if stat.changed // _NS_PER_MS < oldest:
        # A file is never older than the last event in it, so that most files of a large home need not be opened.
        return "too_old"
    try:
        with closing(places.home.store.open(stat.session)) as lines, closing(open_reader(places.home.store, stat.session, lines)) as reader:
            opened, updated = reader.opened.body, _last_event_at(lines, reader)
        is_open = places.home.store.has_writer(stat.session)
    except (PalimpsestError, OSError):
        return "unreadable"
    if not isinstance(opened, SessionOpened):
        return "unreadable"
    if opened.opener is not None:
        return "sub_agent"
    if not _is_interactive(opened):
        return "not_interactive"
    if is_open:
        return "open"
    if newest is not None and updated > newest:
        return "fresh"
    return "too_old" if updated < oldest else DueSession(stat.session, updated, opened.cwd, opened.origin)


def _is_interactive(opened: SessionOpened) -> bool:
    """Whether a person took part, where the log says: Codex records what started a thread."""
    return opened.origin != "codex" or opened.meta.get("source", "") in _TYPED_INTO


def _last_event_at(lines: LogFile, reader: LogReader) -> int:
    """Return the time of the last event, from the end of the file."""
    size, wanted = lines.size, _TAIL_BYTES
    while True:
        start = max(0, size - wanted)
        tail = lines.read(start, size - start).rstrip(b"\n")
        place = tail.rfind(b"\n")
        if place >= 0 or start == 0:
            return decode_line(tail[place + 1 :], lines.name, start + place + 1).at if tail else reader.opened.at
        wanted *= 4
