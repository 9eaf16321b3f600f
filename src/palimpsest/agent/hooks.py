"""Hooks at moments of a session: their values, the runner with time limits, and the effects of their results."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from msgspec.structs import replace

from palimpsest.agent.calls import compact
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.session import Session, outcome_in_thread
from palimpsest.agent.tool import bounded, one_line
from palimpsest.core.errors import BadInput, PalimpsestError, raised_text
from palimpsest.core.events import ContextStated, HookMoment, HookRan, InputWithdrawn, ModelReplied, Statement, ToolReturned, ViewEdited
from palimpsest.core.items import Fold, Part, Text, ToolCall, Value, text_of
from palimpsest.core.text import attribute, within
from palimpsest.sources.source import recorded, reminder

MARK: Final = "PAL_HOOK_RUN"
"""Variable of every process that a hook starts. Its value is unique to one run, so that processes which left the group are found."""
MOMENTS: Final[tuple[HookMoment, ...]] = get_args(HookMoment)
SECONDS: Final = 60.0
"""Time limit of a hook that names none."""
LONGEST_SECONDS: Final = 3_600.0
CONTEXT_CHARS: Final = 10_000
"""Most characters of the text that one hook adds to the context."""
REASON_CHARS: Final = 2_000
NOTICE_CHARS: Final = 300
_TOOL_MOMENTS: Final = frozenset({"before_tool", "after_tool"})
_NAME_CHARS: Final = 80
_CONTROLS: Final = {code: None for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"}


class HookCall(Value, frozen=True):
    """What a hook gets; fields that do not belong to the moment are at their default.

    cwd: the project folder.
    agent, role: nickname and role of the sub-agent in whose session the hook runs; empty in that of the main agent.
    source: of `session_start`: startup, resume or compact, the last of which means that a fold happened.
    prompt: the text of the user, of `user_prompt`.
    tool, call_id, arguments: the tool call; `arguments` is the JSON text that the model sent, never shortened.
    result, error: the text of the tool result as the model gets it, at most 256 kB, and whether it is an error.
    stop, reply: why the turn or the session ends, and the text of the last reply.
    continued: how often hooks made this turn go on already.
    asked, focus: whether the user or the model asked for the fold, and on what it should concentrate.
    tokens_before, tokens_after: size of the view before and after a fold, as far as it is known.
    """

    session: str
    moment: HookMoment
    cwd: str = ""
    agent: str = ""
    role: str = ""
    source: str = ""
    prompt: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    result: str = ""
    error: bool = False
    stop: str = ""
    reply: str = ""
    continued: int = 0
    asked: bool = False
    focus: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class HookResult(Value, frozen=True):
    """What a hook returns.

    block: the reason for which the action must not happen; empty to let it happen.
    context: text for the model.
    notice: a line for the user.
    state: the business state to which the task moves.
    failure: what went wrong although there is a result, with the kind of failure before the first colon.
    exit: the exit code of a command.
    """

    block: str = ""
    context: str = ""
    notice: str = ""
    state: str = ""
    failure: str = ""
    exit: int | None = None


class HookFailed(PalimpsestError):
    """A hook did not do its work; the session goes on without its result. The kind of failure stands before the first colon."""

    kind = "hook"

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


HookReturn: TypeAlias = HookResult | str | None
"""What the function of a hook returns; a text is context."""
HookFunction: TypeAlias = Callable[[HookCall], HookReturn | Awaitable[HookReturn]]


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that runs at a moment of a session.

    moment: when it runs.
    run: gets the call and returns a `HookResult`, a text that is context, or `None`. A plain function runs in a thread.
    name: its name in the log; default: that of the function.
    tool: pattern for the name of the tool, such as `mcp_*`; only for `before_tool` and `after_tool`.
    seconds: its time limit.

    Raises `BadInput` for an unknown moment, a name that is no short line, a pattern at another moment, or a limit that is not positive.
    """

    moment: HookMoment
    run: HookFunction = field(repr=False)
    name: str = ""
    tool: str = "*"
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        name = self.name or getattr(self.run, "__name__", type(self.run).__name__)
        object.__setattr__(self, "name", name)
        if self.moment not in MOMENTS:
            raise BadInput(f"there is no moment {self.moment!r}; the moments are {', '.join(MOMENTS)}", where=name)
        if not name.isprintable() or not name.strip() or len(name) > _NAME_CHARS:
            raise BadInput(f"the name of a hook is one line of at most {_NAME_CHARS} characters", where=repr(name[:_NAME_CHARS]))
        if self.tool != "*" and self.moment not in _TOOL_MOMENTS:
            raise BadInput(f"a hook of {self.moment} has no tool; leave the pattern {self.tool!r} out", where=name)
        if not 0 < self.seconds <= LONGEST_SECONDS:
            raise BadInput(f"the time limit of a hook is more than 0 and at most {LONGEST_SECONDS:g} seconds", where=name)

    def matches(self, moment: HookMoment, tool: str) -> bool:
        """Whether it runs at a moment, and for a tool if the moment has one."""
        return self.moment == moment and (moment not in _TOOL_MOMENTS or fnmatchcase(tool, self.tool))


class HookContext(Value, frozen=True):
    """A text that a hook adds, with the name of the hook."""

    hook: str
    text: str


class HookVerdict(Value, frozen=True):
    """What the hooks of a moment say together: the first that blocks with its reason, and the texts of all, in declared order."""

    blocked_by: str = ""
    reason: str = ""
    contexts: tuple[HookContext, ...] = ()


def cleaned(text: str, limit: int) -> str:
    """A text that can be recorded and shown: without control characters, of at most `limit` characters and a note on the rest."""
    kept = text[:limit].encode("utf-8", "replace").decode().translate(_CONTROLS).strip()
    return kept if len(text) <= limit else f"{kept}\n[{len(text) - limit:,} characters left out]"


NOTHING: Final = HookVerdict()
# Seconds that a hook gets to end after it was cancelled; a function that ignores it is left to itself.
_GRACE: Final = 5.0
_LARGEST_EXIT: Final = 2**31


class _TimedResult(NamedTuple):
    result: HookResult
    took_ms: int = 0


def _reason_as_context(result: HookResult) -> HookResult:
    text = "\n".join(filter(None, (result.block, result.context)))
    return replace(result, block="", context=text)


def _with_fold_notice(call: HookCall, reason: str, notice: str) -> str:
    """The notice of a hook; a blocked fold has one in any case, because nothing else in the log would say that it was blocked."""
    return notice or (f"blocked the fold: {reason}" if reason and call.moment == "before_fold" else "")


def _timed_result(task: asyncio.Task[_TimedResult]) -> _TimedResult:
    return _TimedResult(HookResult(failure="was interrupted")) if task.cancelled() else task.result()


async def _timed(session: Session, hook: Hook, call: HookCall, longest: float | None) -> _TimedResult:
    """Run one hook within its time limit; whatever goes wrong is part of the outcome."""
    clock = session.environment.clock
    started = clock.now()
    seconds = hook.seconds if longest is None else min(hook.seconds, longest)
    task = asyncio.ensure_future(_guarded(hook, call))
    result = HookResult(failure=f"did not end within {seconds:g} s")
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        # The caller raises it, after the run was recorded.
        result = HookResult(failure="was interrupted")
    if not task.done():
        await _stop(task)
    elif task.cancelled():
        result = HookResult(failure="cancelled itself")
    else:
        error = task.exception()
        result = HookResult(failure=error.message, exit=error.exit_code) if isinstance(error, HookFailed) else task.result()
    return _TimedResult(result, max(0, clock.now() - started))


async def _stop(task: asyncio.Task[HookResult]) -> None:
    task.cancel()
    # Retrieved, because asyncio reports exceptions that were never retrieved.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    await asyncio.wait({task}, timeout=_GRACE)


async def _guarded(hook: Hook, call: HookCall) -> HookResult:
    """Return the result of a hook. Raises `HookFailed` for everything that its code raises, `SystemExit` included."""
    try:
        value = await _called(hook, call)
    except HookFailed:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise HookFailed("cancelled itself") from None
    except (Exception, SystemExit) as error:
        raise HookFailed(_raised(error)) from error
    return _checked(value)


async def _called(hook: Hook, call: HookCall) -> object:
    value: object
    if inspect.iscoroutinefunction(hook.run) or inspect.iscoroutinefunction(type(hook.run).__call__):
        value = hook.run(call)
    else:
        value, failure = await outcome_in_thread(lambda: hook.run(call), "hook")
        if failure is not None:
            raise HookFailed(_raised(failure))
    return await value if inspect.isawaitable(value) else value


def _raised(error: BaseException) -> str:
    return f"raised {one_line(raised_text(error), 200)}"


def _checked(value: Any) -> HookResult:
    """A returned value as a result. Raises `HookFailed` for any other type; types are not checked when a struct is made."""
    if value is None:
        return HookResult()
    if isinstance(value, str):
        return HookResult(context=value)
    if not isinstance(value, HookResult):
        raise HookFailed(f"returned a wrong value: {type(value).__name__} is neither HookResult nor str nor None")
    for name in ("block", "context", "notice", "state", "failure"):
        if not isinstance(getattr(value, name), str):
            raise HookFailed(f"returned a wrong value: {name} must be a text and is {type(getattr(value, name)).__name__}")
    code: Any = value.exit
    if code is not None and not (isinstance(code, int) and abs(code) < _LARGEST_EXIT):
        raise HookFailed("returned a wrong value: exit must be an exit code")
    return value


MOST_CONTINUATIONS: Final = 5
"""How often hooks can make one turn go on, even if tools run in between."""
_RESULT_BYTES: Final = 256 * 1024
_NEEDED: Final = "a fold that is needed cannot be blocked"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hook blocked an action."""

    by: str
    why: str


class SessionHooks:
    """The hooks of a session at work, in declared order. Of each kind of failure of a hook, the user gets one notice.

    `cwd` is the project folder, `since` the newest event before the hooks were there. `set_state` moves the task to another business state;
    it is `None` in a session without one.
    """

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        cwd: str = "",
        *,
        source: str = "startup",
        since: int = 0,
        set_state: Callable[[str], None] | None = None,
    ) -> None:
        self._declared = tuple(hooks)
        self._cwd = cwd
        self._source = source
        self._cursor = since
        self._set_state = set_state
        self._has_moved = False
        self._noticed: set[tuple[str, str]] = set()
        self._for_fold: tuple[HookContext, ...] = ()

    def extended(self, hooks: Iterable[Hook], set_state: Callable[[str], None] | None = None) -> "SessionHooks":
        """Return these hooks with further ones behind them, for a session that has not begun its first turn."""
        return SessionHooks((*self._declared, *hooks), self._cwd, source=self._source, since=self._cursor, set_state=set_state)

    def has_moved(self) -> bool:
        """Whether a hook has moved the task since this was asked last."""
        moved, self._has_moved = self._has_moved, False
        return moved

    def _has(self, *moments: HookMoment) -> bool:
        return any(hook.moment in moments for hook in self._declared)

    async def begin(self, session: Session) -> None:
        """Run the hooks of the session start at the first turn, and those of folds that happened between turns."""
        source, self._source = self._source, ""
        await self.folded(session, starts=not source)
        if source:
            await self._start(session, source)

    async def accepts(self, session: Session, typed: int, parts: tuple[Part, ...]) -> tuple[bool, tuple[HookContext, ...]]:
        """Run the hooks of a prompt. Returns whether it may enter the view, and the texts that belong behind it; else it is withdrawn."""
        verdict = await self._run(session, "user_prompt", prompt="\n".join(part.text for part in parts if isinstance(part, Text)))
        if verdict.blocked_by:
            session.log.append(InputWithdrawn(typed, f"hook {verdict.blocked_by}", verdict.reason))
        return not verdict.blocked_by, verdict.contexts

    async def before_tool(self, session: Session, call: ToolCall) -> tuple[Refusal | None, tuple[Part, ...]]:
        """Run the hooks before a permitted call. Returns the refusal if one blocks it, and the parts to add to its result."""
        verdict = await self._run(session, "before_tool", tool=call.tool, call_id=call.call_id, arguments=call.args)
        refusal = Refusal(f"hook {verdict.blocked_by}", verdict.reason) if verdict.blocked_by else None
        return refusal, tuple(_notes(verdict))

    async def after_tool(self, session: Session, call: ToolCall, returned: ToolReturned) -> tuple[Part, ...]:
        """Run the hooks after a tool, and return the parts to add to its result."""
        if not self._has("after_tool"):
            return ()
        result = bounded(text_of(returned.result), _RESULT_BYTES)
        named: dict[str, Any] = {"tool": call.tool, "call_id": call.call_id, "arguments": call.args}
        verdict = await self._run(session, "after_tool", **named, result=result, error=returned.result.error)
        return tuple(_notes(verdict))

    async def before_fold(self, session: Session, tokens: int) -> None:
        """Run the hooks before a fold that a policy planned. They cannot block it; their texts are stated after it."""
        verdict = await self._run(session, "before_fold", no_block=_NEEDED, tokens_before=tokens)
        self._for_fold += verdict.contexts

    async def compact(self, session: Session, focus: str) -> PolicyRun:
        """Fold at the request of the user or the model, unless a hook blocks it; texts of hooks are added to the focus."""
        verdict = await self._run(session, "before_fold", asked=True, focus=focus, tokens_before=session.used)
        if verdict.blocked_by:
            reason = f"The hook {verdict.blocked_by} blocked the fold: {verdict.reason}"
            session.log.append(ContextStated((Statement(f"hook:{verdict.blocked_by}", reminder(reason)),)))
            return PolicyRun(notices=(reason,))
        return await compact(session, "\n".join(filter(None, (focus, *(context.text for context in verdict.contexts)))))

    async def folded(self, session: Session, *, starts: bool = True) -> None:
        """Run the hooks for a fold since the last time, if there was one, and again those of the session start if it `starts` again."""
        if not self._for_fold and not self._has("after_fold", "session_start"):
            return
        first, self._cursor = self._cursor + 1, session.log.tip
        edits = [event.body for event in session.log.reader.run(first, self._cursor) if isinstance(event.body, ViewEdited)]
        folds = [edit for edit in edits if any(isinstance(each, Fold) for each in edit.edits)]
        kept, self._for_fold = self._for_fold, ()
        if not folds:
            return
        sizes = {"tokens_before": folds[0].tokens_before, "tokens_after": folds[-1].tokens_after}
        verdict = await self._run(session, "after_fold", no_block="the fold has happened", asked=folds[-1].moment == "asked", **sizes)
        _state(session, "before_fold", kept)
        _state(session, "after_fold", verdict.contexts)
        if starts:
            await self._start(session, "compact")

    async def turn_end(self, session: Session, stop: str, reply: ModelReplied) -> bool:
        """Run the hooks of the end of a turn. Returns whether the turn goes on, because one gave the model a reason to.

        That is possible once, and again only after a tool has run, at most five times in a turn; not if the turn ends for another reason
        than that it is done.
        """
        if not self._has("turn_end"):
            return False
        continued, progressed = _continuations(session)
        no_block = "" if stop == "done" else f"the turn ends with {stop}"
        if not no_block and (continued >= MOST_CONTINUATIONS or (continued and not progressed)):
            no_block = f"the turn went on {continued} times for hooks already" if progressed else "no tool has run since the last time"
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        verdict = await self._run(session, "turn_end", no_block=no_block, stop=stop, reply=text, continued=continued)
        _state(session, "turn_end", verdict.contexts)
        if verdict.blocked_by:
            reason = f"The hook {verdict.blocked_by} asks you to go on before the turn ends:\n{verdict.reason}"
            session.log.append(ContextStated((Statement(f"hook:{verdict.blocked_by}", reminder(reason)),)))
        return bool(verdict.blocked_by)

    async def end(self, session: Session, stop: str, longest: float | None = None) -> None:
        """Run the hooks of the session end if a turn had begun; `longest` is a limit in seconds for a program that has to end soon."""
        if self._source:
            return
        await self._run(session, "session_end", no_block="the session ends", longest=longest, stop=stop)

    async def _start(self, session: Session, source: str) -> None:
        verdict = await self._run(session, "session_start", no_block="the session has started", source=source)
        _state(session, "session_start", verdict.contexts)

    async def _run(
        self, session: Session, moment: HookMoment, *, no_block: str = "", longest: float | None = None, **fields: Any
    ) -> HookVerdict:
        """Run the hooks of a moment, record each run, and return what they say together.

        no_block: why nothing can be blocked now, if so; a hook that blocks nevertheless gets that as its failure.
        longest: a time limit for all, in seconds.

        If the task is cancelled, the hooks are too, and the runs recorded. Raises `PalimpsestError` only if the log cannot be written.
        """
        opened = session.log.opened
        # A fork of a sub-agent's session that the user made is one of the main agent.
        child = opened.meta if opened.opener is not None else {}
        call = HookCall(session.log.session, moment, self._cwd, child.get("nickname", ""), child.get("role", ""), **fields)
        hooks = [hook for hook in self._declared if hook.matches(moment, call.tool)]
        if not hooks:
            return NOTHING
        running = [asyncio.ensure_future(_timed(session, hook, call, longest)) for hook in hooks]
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            with suppress(PalimpsestError):
                self._record_runs(session, call, hooks, [_timed_result(task) for task in running], no_block)
            raise
        return self._record_runs(session, call, hooks, [_timed_result(task) for task in running], no_block)

    def _record_runs(self, session: Session, call: HookCall, hooks: list[Hook], outcomes: list[_TimedResult], no_block: str) -> HookVerdict:
        blocked_by = reason = ""
        contexts: list[HookContext] = []
        for hook, (given, took_ms) in zip(hooks, outcomes, strict=True):
            # A tool that has run cannot be blocked any more: the reason is for the model.
            result = _reason_as_context(given) if call.moment == "after_tool" and given.block else given
            wants_block = cleaned(result.block, REASON_CHARS)
            blocks = bool(wants_block) and not no_block
            unmoved = self._moved(result.state)
            failure = result.failure or (f"cannot block here: {no_block}" if wants_block and no_block else unmoved)
            if blocks and not blocked_by:
                blocked_by, reason = hook.name, wants_block
            context = cleaned(result.context, CONTEXT_CHARS)
            if context:
                contexts.append(HookContext(hook.name, context))
            session.log.append(
                HookRan(
                    hook.name,
                    call.moment,
                    exit=result.exit,
                    took_ms=took_ms,
                    blocked=blocks,
                    text=wants_block or context,
                    call_id=call.call_id,
                    failure=cleaned(failure, REASON_CHARS),
                    notice=self._notice(hook, _with_fold_notice(call, wants_block if blocks else "", result.notice), failure),
                )
            )
        return HookVerdict(blocked_by, reason, tuple(contexts))

    def _moved(self, state: str) -> str:
        """Move the task to the state that a hook wants, if it wants one. Returns why that cannot be."""
        if not state:
            return ""
        if self._set_state is None:
            return "cannot move the task: this session has no business state"
        try:
            self._set_state(state)
            self._has_moved = True
        except BadInput as error:
            return f"cannot move the task: {error.message}"
        return ""

    def _notice(self, hook: Hook, notice: str, failure: str) -> str:
        """The line for the user: what the hook says, else what went wrong, if the user has not read of such a failure yet."""
        kind = (hook.name, failure.partition(":")[0])
        lines = [one_line(cleaned(notice, 4 * NOTICE_CHARS), NOTICE_CHARS)] if notice else []
        if failure and kind not in self._noticed:
            self._noticed.add(kind)
            lines.append(one_line(cleaned(f"the hook {hook.name} ({hook.moment}) {failure}", 4 * NOTICE_CHARS), NOTICE_CHARS))
        return "; ".join(lines)


def state_hook_texts(session: Session, moment: HookMoment, contexts: tuple[HookContext, ...]) -> None:
    """State the texts of hooks as context, whether or not the view shows an equal one."""
    if contexts:
        session.log.append(ContextStated(tuple(_statement(moment, context) for context in contexts)))


def _state(session: Session, moment: HookMoment, contexts: tuple[HookContext, ...]) -> None:
    """State the texts of hooks that the view does not show yet."""
    facts = session.log.view.facts
    statements = [_statement(moment, context) for context in contexts]
    new = tuple(each for each in statements if each.source not in facts or facts[each.source].value != each.value)
    if new:
        session.log.append(ContextStated(new))


def _statement(moment: HookMoment, context: HookContext) -> Statement:
    text = reminder(f"The hook {context.hook} ({moment}) says:\n{context.text}")
    return Statement(f"hook:{context.hook}", text, value=recorded({"moment": moment, "text": context.text}))


def _notes(verdict: HookVerdict) -> Iterator[Text]:
    for context in verdict.contexts:
        yield Text(within("hook", context.text, attribute("name", context.hook)))


def with_notes(returned: ToolReturned, notes: tuple[Part, ...]) -> ToolReturned:
    """The result of a tool with further parts at its end."""
    return replace(returned, result=replace(returned.result, parts=(*returned.result.parts, *notes))) if notes else returned


def _continuations(session: Session) -> tuple[int, bool]:
    """How often hooks made the open turn go on, and whether a tool has returned since the last time."""
    log, continued, progressed, is_asked = session.log, 0, False, False
    start = log.health.turn
    for event in log.reader.run(log.tip if start is None else start, log.tip):
        match event.body:
            case HookRan(moment="turn_end", blocked=True):
                is_asked = True
            case ModelReplied(purpose="turn") if is_asked:
                continued, progressed, is_asked = continued + 1, False, False
            case ToolReturned():
                progressed = True
            case _:
                pass
    return continued, progressed
