"""The ledger: token usage of a log, split by all that decides the price of a call, with costs of sub-agents and cursors of jobs."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from operator import add
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from palimpsest.core.events import (
    UNOBSERVED,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Event,
    Failed,
    Interrupted,
    JobRan,
    ModelReplied,
    ModelSwitched,
    Noticed,
    SessionOpened,
    Titled,
    Usage,
)
from palimpsest.core.items import EMPTY_MAPPING, Text, Thinking, ToolCall, Value, frozen, text_of
from palimpsest.core.lines import Path
from palimpsest.core.spending import PRICE_STEPS, RUNNING, ChildRecord, Ledger, OpenCall, Spending, SpendingKey, spending_key
from palimpsest.core.tokens import estimate, learn
from palimpsest.core.view import Scope, StateProjection

# The most open calls that are remembered; older calls without an outcome are dropped.
MAX_OPEN_CALLS: Final = 64
_DAY_MS: Final = 86_400_000
# By how much a prompt may exceed its estimate, and the fewest bytes of a request that are one token.
_MARGIN: Final = 1.3
_BYTES_PER_TOKEN: Final = 3
# Parameters of a request that change its price, also as `extra` fields, and their values that do not. `auto` is what no value means: the
# reply says what it was.
_PRICED_APART: Final = ("service_tier", "speed", "inference_geo", "web_search_options", "search_parameters", "plugins")
_LISTED: Final = ("", "auto", "default", "standard", "standard_only", "on_demand", "global", "not_available")
_PRICED_APART_BYTES: Final = re.compile("|".join(_PRICED_APART).encode())


class LedgerProjection(StateProjection):
    """Projection of the ledger, over all events of the file, because every branch costs money."""

    name: ClassVar = "ledger"
    version: ClassVar = 3
    watches: ClassVar = frozenset({ModelReplied, CallStarted, Interrupted, Failed, SessionOpened, ModelSwitched})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = Ledger

    __slots__ = ("_calibration", "_model", "_open", "_sums", "_value")

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.start_from(Ledger() if ledger is None else ledger)

    def start_from(self, ledger: Ledger) -> None:
        """Replace the state by a ledger."""
        # Calls, unmeasured and estimated calls, the six parts of the usage.
        self._sums: dict[SpendingKey, list[int]] = {
            spending_key(spending): [spending.calls, spending.unmeasured, spending.estimated, *astuple(spending.usage)]
            for spending in ledger.spendings
        }
        self._calibration = ledger.calibration
        self._open: dict[int, OpenCall] = {call.seq: call for call in ledger.open}
        self._model = ledger.model
        self._value: Ledger | None = ledger

    def take(self, event: Event) -> None:
        """Count one event; events that are no calls are ignored."""
        body = event.body
        if isinstance(body, ModelReplied):
            self._count_reply(body, event.at)
        elif isinstance(body, CallStarted):
            self._start_call(body, event.seq)
        elif isinstance(body, Interrupted):
            self._count_interrupted(body, event.at)
        elif isinstance(body, Failed) and body.what == "call":
            self._count_failed(body, event.at)
        elif isinstance(body, SessionOpened | ModelSwitched):
            self._model = body.model
        else:
            return
        self._value = None

    def value(self) -> Ledger:
        """Return the ledger after the last event."""
        if self._value is None:
            spendings = tuple(
                Spending(model, purpose, sums[0], Usage(*sums[3:]), asked, day, above, sums[1], sums[2])
                for (model, purpose, asked, day, above), sums in self._sums.items()
            )
            self._value = Ledger(spendings, self._calibration, tuple(self._open.values()), self._model)
        return self._value

    def _start_call(self, body: CallStarted, seq: int) -> None:
        # Calls of version 0.2 do not say how much of their prompt is tools, so that they teach nothing about the view.
        is_whole = bool(body.tools_estimate or not body.tools)
        is_ours = bool(body.digest)
        by_text = int((body.estimate + body.tools_estimate) * self._calibration.factor(body.model) * _MARGIN)
        prompt = by_text if is_whole and by_text else max(by_text, body.size // _BYTES_PER_TOKEN)
        known = body.estimate if is_whole else 0
        has_tier, cached = is_priced_apart(bytes(body.params)), min(body.cached, prompt)
        sent = prompt if is_ours else 0
        self._open[seq] = OpenCall(seq, body.model, body.purpose, known, body.tools_estimate, is_ours, sent, cached, has_tier)
        if len(self._open) > MAX_OPEN_CALLS:
            del self._open[next(iter(self._open))]

    def _count_reply(self, reply: ModelReplied, at: int) -> None:
        call = self._close(reply.call, reply.purpose)
        if call is None:
            self._add(reply.model, "", reply.purpose, reply.usage, at=at, unmeasured=int(bool(reply.tier)))
            self._add_beside(reply, "", reply.purpose, at)
            return
        # Of a call whose view was counted we have seen the reply, in whatever program.
        unmeasured = int(((call.is_ours or call.estimate) and not is_measured(reply)) or call.has_tier or bool(reply.tier))
        self._add(reply.model, call.model, call.purpose, reply.usage, at=at, unmeasured=unmeasured)
        self._add_beside(reply, call.model, call.purpose, at)
        if call.estimate and reply.usage.prompt:
            self._calibration = learn(self._calibration, call.model, call.estimate, reply.usage.prompt, call.tools)

    def _add_beside(self, reply: ModelReplied, asked: str, purpose: str, at: int) -> None:
        """Count what a reply was billed for beside its message; each has a price by its own model and size, and none is another call."""
        for each in reply.beside:
            self._add(each.model or reply.model, asked, purpose, each.usage, at=at, calls=0)

    def _count_interrupted(self, interrupted: Interrupted, at: int) -> None:
        """Count the usage of an interrupted call, without using it for the calibration: as reported, or estimated if the call was ours."""
        call, usage = self._close(interrupted.call, interrupted.purpose), interrupted.usage
        if call is not None and call.is_ours:
            factor = self._calibration.factor(call.model)
            written = sum(estimate(text_of(part), factor) for part in interrupted.parts)
            if not usage.prompt:
                usage = replace(usage, input=call.prompt - call.cached, cache_read=call.cached)
            usage = replace(usage, output=max(usage.output, written))
        if usage != Usage():
            asked = "" if call is None else call.model
            # A tier has another price, whether the provider or an estimate has counted what was read.
            unmeasured, estimated = int(call is not None and call.has_tier), int(usage != interrupted.usage)
            self._add(interrupted.model, asked, interrupted.purpose, usage, at=at, unmeasured=unmeasured, estimated=estimated)

    def _count_failed(self, failed: Failed, at: int) -> None:
        """A call that failed has cost nothing; what one has cost whose reply was not observed is unknown."""
        call = self._close(failed.call)
        if call is not None and failed.error == UNOBSERVED:
            self._add("", call.model, call.purpose, Usage(), at=at, unmeasured=1)

    def _close(self, seq: int | None, purpose: str = "") -> OpenCall | None:
        """Remove and return an open call: call `seq`, or the newest of that purpose if `seq` is `None`; `None` if there is none."""
        if seq is not None:
            return self._open.pop(seq, None)
        newest = next((call.seq for call in reversed(self._open.values()) if not purpose or call.purpose == purpose), None)
        return None if newest is None else self._open.pop(newest)

    def _add(
        self, model: str, asked: str, purpose: str, usage: Usage, *, at: int, unmeasured: int = 0, estimated: int = 0, calls: int = 1
    ) -> None:
        # No request is empty: where a program counts its replies alone, what it has read is not known.
        prompt = usage.prompt
        if usage.output and not prompt:
            unmeasured = max(unmeasured, 1)
        step = bisect_left(PRICE_STEPS, prompt)
        key = (model or asked or self._model, purpose, asked, max(0, at) // _DAY_MS, PRICE_STEPS[step - 1] if step else 0)
        sums = self._sums.setdefault(key, [0] * 9)
        sums[:] = map(add, sums, (calls, unmeasured, estimated, *astuple(usage)))


def is_measured(reply: ModelReplied) -> bool:
    """Whether a reply says what all of it used: no request is empty, and a server that reports an empty one has not measured it.

    A message without usage is one only if it is nothing but what was billed beside it, such as a compaction.
    """
    usage, beside = reply.usage, reply.beside
    is_counted = bool(usage.prompt and (usage.output or not reply.parts))
    if not beside:
        return is_counted
    is_beside_alone = not usage.total and not any(isinstance(part, Text | Thinking | ToolCall) for part in reply.parts)
    return (is_counted or is_beside_alone) and all(each.usage.prompt for each in beside)


def is_priced_apart(params: bytes) -> bool:
    """Whether the parameters of a request ask for what has another price than the listed one."""
    if not _PRICED_APART_BYTES.search(params):
        return False
    try:
        given = msgspec.json.decode(params)
    except msgspec.DecodeError:
        return True
    tables = [each for each in (given, given.get("extra") if isinstance(given, dict) else None) if isinstance(each, dict)]
    return any(map(priced_apart, tables))


def priced_apart(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a request, as values or as JSON, that ask for what has another price than the listed one."""
    found = {name: fields[name] for name in _PRICED_APART if name in fields}
    values = {name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value for name, value in found.items()}
    return {name: value for name, value in values.items() if value not in (None, *_LISTED)}


CHILD_NOTICE: Final = "subagent_notification"
"""The source of the statements to the model about how a sub-agent ended; their `value` is the session of the sub-agent."""


def has_end_to_state(child: ChildRecord, path: Path) -> bool:
    """Whether the end of a sub-agent has to be stated on a path: one on which it was started and its end was not stated yet."""
    has_ended = child.ended is not None and child.status != RUNNING
    started_here = child.opened is not None and child.opened in path
    return has_ended and started_here and not any(seq in path for seq in child.noticed)


class ChildrenProjection(StateProjection):
    """Projection of the sub-agents, over all events of the file, because each of them exists and costs money on every branch."""

    name: ClassVar = "children"
    version: ClassVar = 2
    watches: ClassVar = frozenset({ChildOpened, ChildEnded, ContextStated})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = tuple[ChildRecord, ...]

    __slots__ = ("_children",)

    def __init__(self) -> None:
        self._children: dict[str, ChildRecord] = {}

    def take(self, event: Event) -> None:
        """Apply one event; an end of a sub-agent that was never opened, as in some imported sessions, counts too."""
        body = event.body
        match body:
            case ChildOpened(session=session, role=role, nickname=nickname, depth=depth):
                known = self._children.get(session, ChildRecord(session))
                named = {"role": role or known.role, "nickname": nickname or known.nickname, "depth": depth or known.depth}
                self._children[session] = replace(known, **named, status=RUNNING, text="", opened=event.seq, noticed=())
            case ChildEnded(session=session, status=status, text=text):
                known = self._children.get(session, ChildRecord(session))
                names = ("usage", "cost_usd", "children_usd", "children_tokens")
                spent = {name: getattr(body, name) for name in names}
                report = text if known.depth else ""
                self._children[session] = replace(known, status=status, text=report, ended=event.seq, noticed=(), **spent)
            case ContextStated(items=items):
                for statement in items:
                    if statement.source == CHILD_NOTICE and statement.value in self._children:
                        known = self._children[statement.value]
                        self._children[statement.value] = replace(known, text="", noticed=(*known.noticed, event.seq))
            case _:
                return

    def value(self) -> tuple[ChildRecord, ...]:
        """Return the sub-agents, oldest first."""
        return tuple(self._children.values())

    def start_from(self, children: tuple[ChildRecord, ...]) -> None:
        """Replace the sub-agents."""
        self._children = {child.session: child for child in children}


_PREFIX: Final = "job:"
JobStatus: TypeAlias = Literal["", "done", "failed", "skipped", "cancelled"]
"""How the last run of a job ended; empty if it never ran."""


def job_purpose(job: str) -> str:
    """Return the purpose of the model calls of a job, by which the ledger accounts for them."""
    return f"{_PREFIX}{job}"


def is_job_purpose(purpose: str) -> bool:
    """Whether a purpose is that of the calls of a job."""
    return purpose.startswith(_PREFIX)


class JobState(Value, frozen=True):
    """What the log says about one job.

    `cursor` is the last event that it has worked on, -1 before its first run that ended well. `at` is the time of its last recorded run,
    in milliseconds, and `took_ms` its duration. `failures` are in a row. `repeats` counts the runs that ended well since the conversation
    last went on.
    """

    cursor: int = -1
    at: int | None = None
    status: JobStatus = ""
    why: str = ""
    took_ms: int = 0
    failures: int = 0
    repeats: int = 0


NEVER_RAN_JOB: Final = JobState()


class JobStates(Value, frozen=True):
    """The jobs of a session by name. `newest` is the newest event of the conversation: one that no job caused."""

    newest: int = -1
    jobs: Mapping[str, JobState] = EMPTY_MAPPING

    def __post_init__(self) -> None:
        force_setattr(self, "jobs", frozen(self.jobs))

    def of(self, job: str) -> JobState:
        """Return the state of a job, also of one that never ran."""
        return self.jobs.get(job, NEVER_RAN_JOB)

    def lag(self, job: str) -> int:
        """Return how far the cursor of a job is behind the conversation, in events; 0 if there is nothing new for it."""
        return max(0, self.newest - self.of(job).cursor)


class JobCursors(StateProjection):
    """Projection of the states of jobs. It follows the path: after a rewind, jobs go back to the cursors that they had there."""

    name: ClassVar = "jobs"
    version: ClassVar = 1
    watches: ClassVar = None
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = JobStates

    __slots__ = ("_jobs", "_newest", "_value")

    def __init__(self) -> None:
        self.start_from(JobStates())

    def start_from(self, states: JobStates) -> None:
        """Replace the states."""
        self._jobs = dict(states.jobs)
        self._newest = states.newest
        self._value: JobStates | None = states

    def take(self, event: Event) -> None:
        """Apply one event: the end of a run moves the cursor of its job; other events are news for jobs, unless a job caused them."""
        body = event.body
        if isinstance(body, JobRan):
            self._jobs[body.job] = _after(self._jobs.get(body.job, NEVER_RAN_JOB), body, event.at)
        elif _is_by_job(event):
            return
        else:
            self._newest = event.seq
            for name, state in self._jobs.items():
                if state.repeats:
                    self._jobs[name] = replace(state, repeats=0)
        self._value = None

    def value(self) -> JobStates:
        """Return the states after the last event."""
        if self._value is None:
            self._value = JobStates(self._newest, dict(self._jobs))
        return self._value


def _is_by_job(event: Event) -> bool:
    match event.body:
        case CallStarted(purpose=purpose) | ModelReplied(purpose=purpose) | Interrupted(purpose=purpose) | Failed(purpose=purpose):
            return is_job_purpose(purpose)
        case Titled() | Noticed():
            return True
        case _:
            return False


def _after(state: JobState, ran: JobRan, at: int) -> JobState:
    """Return the state after a run. Only a run that ended well moves the cursor, whatever the event says."""
    done = ran.status == "done"
    return JobState(
        cursor=ran.cursor if done else state.cursor,
        at=at,
        status=ran.status,
        why=ran.why,
        took_ms=ran.took_ms,
        failures=state.failures + 1 if ran.status == "failed" else 0 if done else state.failures,
        repeats=state.repeats + 1 if done else state.repeats,
    )
