"""Runs the hooks of a moment side by side within their time limits, and records each run; a failure is recorded and never raised."""

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from palimpsest.core.errors import BadInput, PalimpsestError, raised_text
from palimpsest.core.events import HookRan
from palimpsest.core.events.tools import HookMoment
from palimpsest.engine.hooks.hook import (
    CONTEXT_CHARS,
    NOTICE_CHARS,
    REASON_CHARS,
    Hook,
    HookCall,
    HookContext,
    HookFailed,
    HookResult,
    HookVerdict,
    cleaned,
)
from palimpsest.engine.session import Session
from palimpsest.tools.tool import one_line

NOTHING: Final = HookVerdict()
# Seconds that a hook gets to end after it was cancelled; a function that ignores it is left to itself.
_GRACE: Final = 5.0
_LARGEST_EXIT: Final = 2**31


class _TimedResult(NamedTuple):
    result: HookResult
    took_ms: int = 0


class Hooks:
    """The hooks of an agent, in declared order. Of each kind of failure of a hook, the user gets one notice.

    `set_state` moves the task to another business state, `None` in a session without one; `has_moved` says whether a hook did so.
    """

    def __init__(self, hooks: Iterable[Hook] = (), set_state: Callable[[str], None] | None = None) -> None:
        self.declared = tuple(hooks)
        self.set_state = set_state
        self.has_moved = False
        self._noticed: set[tuple[str, str]] = set()

    def has(self, *moments: HookMoment) -> bool:
        """Whether there is a hook for one of the moments."""
        return any(hook.moment in moments for hook in self.declared)

    async def run(self, session: Session, call: HookCall, *, no_block: str = "", longest: float | None = None) -> HookVerdict:
        """Run the hooks of a moment, record each run, and return what they say together.

        no_block: why nothing can be blocked now, if so; a hook that blocks nevertheless gets that as its failure.
        longest: a time limit for all, in seconds.

        If the task is cancelled, the hooks are too, and the runs recorded. Raises `PalimpsestError` only if the log cannot be written.
        """
        hooks = [hook for hook in self.declared if hook.matches(call.moment, call.tool)]
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
                self._record(session, call, hooks, [_timed_result(task) for task in running], no_block)
            raise
        return self._record(session, call, hooks, [_timed_result(task) for task in running], no_block)

    def _record(self, session: Session, call: HookCall, hooks: list[Hook], outcomes: list[_TimedResult], no_block: str) -> HookVerdict:
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
        if self.set_state is None:
            return "cannot move the task: this session has no business state"
        try:
            self.set_state(state)
            self.has_moved = True
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
    if inspect.iscoroutinefunction(hook.run) or inspect.iscoroutinefunction(type(hook.run).__call__):
        value: object = hook.run(call)
    else:
        value = await _in_thread(lambda: hook.run(call))
    return await value if inspect.isawaitable(value) else value


async def _in_thread(work: Callable[[], object]) -> object:
    """Return the result of a function that runs in a thread of its own, which does not keep the process alive if it never ends."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[object, str]] = loop.create_future()

    def settle(value: object, failure: str) -> None:
        if not ended.done():
            ended.set_result((value, failure))

    def run() -> None:
        value, failure = None, ""
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - code of others may raise anything, and a thread has no caller that could get it
            failure = _raised(error)
        # The loop may have been closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failure)

    Thread(target=run, daemon=True, name="hook").start()
    value, failure = await ended
    if failure:
        raise HookFailed(failure)
    return value


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
