"""The moments of a session at which hooks run, and what comes of what they say: refusals, context, focus and further calls."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from palimpsest.core.edits import Fold
from palimpsest.core.events import ContextStated, HookRan, InputWithdrawn, ModelReplied, Statement, ToolReturned, ViewEdited
from palimpsest.core.events.tools import HookMoment
from palimpsest.core.format.tags import attribute, within
from palimpsest.core.items import Part, Text, ToolCall, text_of
from palimpsest.engine.calls.moments import compact
from palimpsest.engine.hooks.hook import Hook, HookCall, HookContext, HookVerdict
from palimpsest.engine.hooks.running import Hooks
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.session import Session
from palimpsest.sources.source import recorded, reminder
from palimpsest.tools.tool import bounded

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
    """The hooks of a session at work. `cwd` is the project folder, `since` the newest event before the hooks were there."""

    def __init__(self, hooks: Iterable[Hook] = (), cwd: str = "", *, source: str = "startup", since: int = 0) -> None:
        self._hooks = Hooks(hooks)
        self._cwd = cwd
        self._source = source
        self._cursor = since
        self._for_fold: tuple[HookContext, ...] = ()

    @property
    def declared(self) -> tuple[Hook, ...]:
        """The hooks, in the order in which their results are joined."""
        return self._hooks.declared

    @property
    def set_state(self) -> Callable[[str], None] | None:
        """What moves the task to another business state; `None` in a session without one."""
        return self._hooks.set_state

    @set_state.setter
    def set_state(self, set_state: Callable[[str], None]) -> None:
        self._hooks.set_state = set_state

    def has_moved(self) -> bool:
        """Whether a hook has moved the task since this was asked last."""
        moved, self._hooks.has_moved = self._hooks.has_moved, False
        return moved

    def add(self, hooks: Iterable[Hook]) -> None:
        """Add hooks behind those that exist."""
        self._hooks = Hooks((*self._hooks.declared, *hooks), self._hooks.set_state)

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
        if not self._hooks.has("after_tool"):
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
        if not self._for_fold and not self._hooks.has("after_fold", "session_start"):
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
        if not self._hooks.has("turn_end"):
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
        opened = session.log.opened
        # A fork of a sub-agent's session that the user made is one of the main agent.
        child = opened.meta if opened.opener is not None else {}
        call = HookCall(session.log.session, moment, self._cwd, child.get("nickname", ""), child.get("role", ""), **fields)
        return await self._hooks.run(session, call, no_block=no_block, longest=longest)


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
