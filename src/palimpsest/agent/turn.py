"""The turn, the only loop of the engine: from queued input to a reply without tool calls, and the ways in which it ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from palimpsest.agent.calls import call, end_turn, start_turn
from palimpsest.agent.context import SourcedContext
from palimpsest.agent.editing import compact_focus
from palimpsest.agent.feed import Feed
from palimpsest.agent.hooks import SessionHooks, state_hook_texts
from palimpsest.agent.limits import NO_LIMITS, Limits, TurnMeter, within_seconds
from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.tool_calls import Toolbox, answer_pending, check_cancelled, run_calls, sleeps
from palimpsest.agent.turn_files import TurnSnapshots
from palimpsest.core.errors import OverBudget, PalimpsestError
from palimpsest.core.events import (
    ContextStated,
    ModelReplied,
    PermissionAsked,
    Permitted,
    Statement,
    ToolReturned,
    TurnEnded,
    UserSaid,
    UserTyped,
    stop_reason,
)
from palimpsest.core.items import Part, Text, Thinking, ToolCall, pending_calls, text_of
from palimpsest.sources.source import reminder

Result = TypeVar("Result")
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
LOOP: Final = "loop"
"""The stop reason of a turn whose model repeats the same calls and gets the same results."""
EMPTY: Final = "empty"
"""The stop reason of a turn whose model says nothing."""
WRITTEN_CALL: Final = "written_call"
"""The stop reason of a turn whose model writes a call as text, which no tool runs."""
TOLD_AT: Final = 4
STOPPED_AT: Final = 6
"""Equal rounds of calls in a row after which the model gets a warning, and after which the turn ends."""
_LONGEST_ROUND: Final = 8
# Of so many calls that sleep one counts as a round.
_COUNTED_SLEEP: Final = 10
_ASK_AGAIN: Final = "Your last reply was empty. Answer the user, or call a tool."
_NOT_A_CALL: Final = (
    "Your last reply has a call of the tool `{}` as text. Nothing was run. Call it as a tool, in the form of this API; "
    "if it is an example in your answer, give the answer again and end it with a sentence."
)
_REPEATED: Final = (
    "Your last calls repeat the same {}, with the same results. Nothing changes by calling again: try something else, or end with what "
    "is known and what is missing. The turn is ended if it goes on."
)
BLOCKED = "blocked"


class Loop(Struct, frozen=True):
    """What a turn needs: session, tools, limits, context, hooks, what recalls notes, and the feed that user interfaces follow.

    Without a `context` the log has all that the model should know. `recall` never fails. `meter` measures the turn; without one, the turn
    makes its own, which knows of no sub-agents.
    """

    session: Session
    toolbox: Toolbox
    feed: Feed
    limits: Limits = NO_LIMITS
    context: SourcedContext | None = None
    hooks: SessionHooks = field(default_factory=SessionHooks)
    meter: TurnMeter | None = None
    recall: Callable[[tuple[Part, ...]], Awaitable[None]] | None = None


async def run_turn(loop: Loop) -> str:
    """Work on the queued input, or go on where an interrupted turn stopped, until a reply asks for no tool. Returns the stop reason.

    The reason is `done`, that of the last reply if it was cut off or refused, the limit that was reached, `blocked` if a hook withdrew
    the input, or why the model got nowhere (`loop`, `empty`, `written_call`), which it was told once before. If the task is cancelled, or
    the turn fails, every call is answered and the end of the turn recorded before the error is raised.
    """
    session, meter = loop.session, loop.meter or TurnMeter(loop.session, loop.limits)
    # That of the turn of the parent, in a sub-agent.
    above = session.spent_out
    session.spent_out = lambda: meter.spent_out() or (None if above is None else above())
    try:
        return await _run_turn(loop, meter)
    finally:
        session.spent_out = above


async def _run_turn(loop: Loop, meter: TurnMeter) -> str:
    session = loop.session
    try:
        stop = await within_seconds(loop.limits.seconds, _within_budget(loop, meter))
        answer_pending(session, stop)
        await loop.toolbox.files.after_turn(session)
    except BaseException as error:
        # What cannot be recorded now, such as on a full disk, is recorded by the recovery when the session is opened again.
        with suppress(PalimpsestError):
            await break_off(session, loop.toolbox.files, INTERRUPTED if isinstance(error, asyncio.CancelledError) else FAILED)
            loop.feed.events()
        raise
    await end_turn(session, stop)
    loop.feed.events()
    return stop


async def _within_budget(loop: Loop, meter: TurnMeter) -> str:
    """Return the stop reason of a turn, or the limit in dollars or tokens for which a call was not made."""
    try:
        return await _work(loop, meter)
    except OverBudget:
        limit = meter.spent_out()
        if limit is None:
            raise
        return limit


async def _work(loop: Loop, meter: TurnMeter) -> str:
    session = loop.session
    if session.log.health.turn is None:
        await start_turn(session, incoming=queued_tokens(session), typed=session.log.inbox)
    pending = [item.content for item in pending_calls(session.log.view.items) if isinstance(item.content, ToolCall)]
    if loop.context is not None:
        await loop.context.prepare(frozenset(call.tool for call in pending))
    await run_calls(session, loop.toolbox, pending, loop.feed, loop.hooks)
    if loop.context is not None:
        await loop.context.observe()
    await loop.hooks.begin(session)
    accepted = await accept_input(loop, steering=False)
    if accepted.withdrawn and not accepted.said:
        return BLOCKED
    await loop.toolbox.files.before_calls(session)
    progress = Progress(session, loop.toolbox.tools)
    while True:
        check_cancelled()
        loop.feed.events()
        reply = await call(session, observe=loop.feed.delta, after_fold=lambda: _restate(loop))
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        most, meter.tools = meter.tools_left, meter.tools + len(calls)
        await run_calls(session, loop.toolbox, calls, loop.feed, loop.hooks, most=most)
        focus = compact_focus(reply) if "compact" in loop.toolbox.tools else None
        if focus is not None:
            await loop.hooks.compact(session, focus)
        await _restate(loop)
        joined = (await accept_input(loop, steering=True)).said
        finished = stop_reason(reply.stop) != "pause" and not calls and not joined
        stop = (_end_of(progress, reply) if finished else progress.repeats()) or meter.reached()
        if stop is not None and not await _goes_on(loop, stop, reply):
            return stop
        if stop is not None and (limit := meter.reached()) is not None:
            # A hook that lets a finished turn go on does not lift its limits.
            return limit


def _end_of(progress: "Progress", reply: ModelReplied) -> str | None:
    """Return why a turn ends with a reply without calls; `None` if the model has to answer once more."""
    stop = stop_of(reply)
    missing = progress.unanswered(reply) if stop == "done" else None
    if missing is None:
        return stop
    return missing if progress.was_told(missing) else None


async def _restate(loop: Loop) -> None:
    if loop.context is not None:
        loop.context.restate()
    await loop.hooks.folded(loop.session)


async def _goes_on(loop: Loop, stop: str, reply: ModelReplied) -> bool:
    """Whether a turn that could end goes on, for a hook or for input that was typed while hooks ran."""
    goes_on = await loop.hooks.turn_end(loop.session, stop, reply)
    return stop == "done" and (goes_on or (await accept_input(loop, steering=True)).said > 0)


class Accepted(NamedTuple):
    """How many queued inputs entered the view, and how many were withdrawn."""

    said: int = 0
    withdrawn: int = 0


async def accept_input(loop: Loop, *, steering: bool) -> Accepted:
    """Let queued input enter the view, oldest first, each followed by what it mentions and what hooks add.

    What is recalled for a prompt stands before it; steering recalls nothing, since a turn is under way.
    """
    session, said, withdrawn = loop.session, 0, 0
    # Input may be typed while a hook runs, so the queue is read again each time.
    while queued := session.log.inbox:
        seq = queued[0]
        parts = typed_parts(session, seq)
        may_enter, texts = await loop.hooks.accepts(session, seq, parts)
        if may_enter:
            if loop.recall is not None and not steering:
                await loop.recall(parts)
            session.log.append(UserSaid(session.profile.framed_input(parts), typed=seq, steering=steering))
            if loop.context is not None:
                loop.context.mention(parts)
            state_hook_texts(session, "user_prompt", texts)
            said += 1
        else:
            withdrawn += 1
    if loop.context is not None and loop.hooks.has_moved():
        # The state that a hook of the prompt wants holds for this request.
        loop.context.restate()
    return Accepted(said, withdrawn)


def typed_parts(session: Session, seq: int) -> tuple[Part, ...]:
    """The parts of queued input."""
    body = session.log.event(seq).body
    return body.parts if isinstance(body, UserTyped) else ()


def queued_tokens(session: Session) -> int:
    """Tokens of all queued input."""
    return sum(session.counter.content(part) for seq in session.log.inbox for part in typed_parts(session, seq))


async def break_off(session: Session, files: TurnSnapshots, stop: str) -> None:
    """Answer pending calls and record the end of a turn without running policies, and make it durable."""
    answer_pending(session, stop)
    if stop == INTERRUPTED and session.profile.interrupted_notice:
        session.log.append(ContextStated((Statement("interrupted", session.profile.interrupted_notice),)))
    with suppress(asyncio.CancelledError):
        await files.after_turn(session)
    if session.log.health.turn is not None:
        session.log.append(TurnEnded(stop))
    session.log.sync()


async def uncancelled(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of work that must be finished; a cancellation meanwhile is raised after it."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        # Retrieved, because asyncio reports exceptions that were never retrieved.
        task.cancelled() or task.exception()
        raise asyncio.CancelledError
    return task.result()


def stop_of(reply: ModelReplied) -> str:
    """Return why a turn ends after a reply without calls: `done`, or the reason for which the reply itself was cut off or refused."""
    return reason if (reason := stop_reason(reply.stop)) in ("refusal", "max_tokens", "context_window", "error") else "done"


def is_empty(reply: ModelReplied) -> bool:
    """Whether a reply says nothing and calls nothing; thinking alone is no answer."""
    return all(isinstance(part, Thinking) or (isinstance(part, Text) and not part.text.strip()) for part in reply.parts)


class _Round(NamedTuple):
    """One call with its result, as far as rounds are compared."""

    tool: str
    arguments: str
    result: str


class Progress:
    """Watches whether a turn gets anywhere: by equal rounds of calls, empty replies, and calls that are written as text.

    The model gets one warning about each before the turn ends for it. Calls that the user was asked about and allowed are no repetition.
    """

    def __init__(self, session: Session, tools: Mapping[str, AgentTool]) -> None:
        self._session = session
        self._tools = tools
        self._read_to = session.log.tip if session.log.health.turn is None else session.log.health.turn
        self._calls: dict[str, ToolCall] = {}
        self._asked: set[str] = set()
        self._rounds: deque[_Round] = deque(maxlen=_LONGEST_ROUND * STOPPED_AT)
        self._told: set[str] = set()
        self._slept = 0

    def repeats(self) -> str | None:
        """Return the stop reason if the calls of the turn repeat themselves, and tell the model before it comes to that."""
        self._read_new_events()
        times, length = max(((self._repetitions(length), -length) for length in range(1, _LONGEST_ROUND + 1)), default=(0, 0))
        if times < TOLD_AT:
            self._told.discard(LOOP)
        elif times >= STOPPED_AT and LOOP in self._told:
            return LOOP
        else:
            names = dict.fromkeys(each.tool for each in list(self._rounds)[length:])
            self._tell(LOOP, _REPEATED.format(f"call of `{next(iter(names))}`" if len(names) == 1 else "calls"))
        return None

    def unanswered(self, reply: ModelReplied) -> str | None:
        """Return why a reply without calls is no answer, and tell the model if that is new; `None` if it is one."""
        if is_empty(reply):
            # A reply without any part leaves the request as it was, which is sent once more.
            self._tell(EMPTY, _ASK_AGAIN if reply.parts else "")
            return EMPTY
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        if _may_hold_call(text) and (name := self._written(text)):
            self._tell(WRITTEN_CALL, _NOT_A_CALL.format(name))
            return WRITTEN_CALL
        return None

    def _written(self, text: str) -> str:
        """Return the tool that a text calls; empty if none. A model that calls tools as one should may end its answer with an example."""
        from palimpsest.agent.written_calls import written_call  # few models need it

        found = written_call(text, {name: bytes(tool.declaration.schema) for name, tool in self._tools.items()})
        if found is None or not (found.plainly or all(not isinstance(item.content, ToolCall) for item in self._session.log.view.items)):
            return ""
        return found.tool

    def was_told(self, stop: str) -> bool:
        """Whether the model was warned of this before its last reply; from then on it counts as warned."""
        told = stop in self._told
        self._told.add(stop)
        return told

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told and text:
            self._session.log.append(ContextStated((Statement(what, reminder(text)),)))
        if what == LOOP:
            self._told.add(what)

    def _read_new_events(self) -> None:
        log = self._session.log
        first, self._read_to = self._read_to + 1, log.tip
        for event in log.reader.run(first, self._read_to) if first <= self._read_to else ():
            match event.body:
                case ModelReplied(purpose="turn", parts=parts):
                    self._calls |= {part.call_id: part for part in parts if isinstance(part, ToolCall)}
                case UserSaid():
                    self._rounds.clear()
                case PermissionAsked(call_id=call_id):
                    self._asked.add(call_id)
                case Permitted(call_id=call_id) if call_id in self._asked:
                    self._rounds.clear()
                    self._calls.pop(call_id, None)
                case ToolReturned() as returned:
                    self._add(returned)
                case _:
                    pass

    def _add(self, returned: ToolReturned) -> None:
        call = self._calls.pop(returned.result.call_id, None)
        tool = None if call is None else self._tools.get(call.tool)
        if call is not None and not self._waits(tool, call, returned):
            self._rounds.append(_Round(call.tool, _canonical(call.args), text_of(returned.result)))

    def _waits(self, tool: AgentTool | None, call: ToolCall, returned: ToolReturned) -> bool:
        """Whether a call waits for what goes on, and is no repetition. Of commands that sleep, some count: they may sleep for nothing."""
        if tool is None:
            return False
        if tool.polls:
            # What has ended or cannot be polled is one.
            return returned.exit is None and not returned.result.error
        if not sleeps(tool, call):
            return False
        self._slept += 1
        return self._slept % _COUNTED_SLEEP != 0

    def _repetitions(self, length: int) -> int:
        """How often the last calls, so many, stand at the end in a row."""
        rounds = list(self._rounds)
        last = rounds[-length:]
        times = 0
        while len(last) == length and rounds[len(rounds) - length :] == last:
            del rounds[len(rounds) - length :]
            times += 1
        return times


def _canonical(arguments: str) -> str:
    """The arguments of a call, however they are spelled."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments or "{}"), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def _may_hold_call(text: str) -> bool:
    """Whether a text ends as a written call does, which few replies do."""
    return text.rstrip("` \t\r\n")[-1:] in ("}", ">", ")", "]")
