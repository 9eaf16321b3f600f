"""Runs the tool calls of a reply side by side where tools allow it, and defers tools until `tool_search` loads them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace as dataclass_replace
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from palimpsest.agent.archive import RECALL
from palimpsest.agent.calls import carry_out
from palimpsest.agent.decision import Allow, Approval, AskUser, Decision, Deny
from palimpsest.agent.editing import as_failure
from palimpsest.agent.feed import Feed
from palimpsest.agent.hooks import SessionHooks, with_notes
from palimpsest.agent.session import Session
from palimpsest.agent.tool import CURRENT_CALL, AgentTool, ToolOutput, call_text, define, one_line, own_call
from palimpsest.agent.turn_files import TurnSnapshots
from palimpsest.agent.workspace import Workspace
from palimpsest.audit.shell_lines import executed, program_name
from palimpsest.audit.tool_calls import shell_line
from palimpsest.core.errors import PalimpsestError, raised_text
from palimpsest.core.events import Failed, PermissionAsked, Permitted, ProcessStarted, ToolRefused, ToolReturned, ToolsOffered, ToolStarted
from palimpsest.core.items import Part, Text, ToolCall, ToolResult, pending_calls, text_of
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import PREVIEW_ABOVE
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.profile import UNLIMITED, ResultLimiter
from palimpsest.sources.progress import search_tools
from palimpsest.wire.encode import recorded_tools
from palimpsest.wire.request import Tool

# Seconds. Tools have shorter limits of their own; this one ends a tool that has none.
LONGEST_TOOL: Final = 1_800.0
# Equal calls in a row with equal results from which on the user is asked: a model that repeats itself is rarely getting anywhere.
EQUAL_CALLS: Final = 3
# Tokens. A preview has 2,400, so it would not shorten a smaller result much.
_LEAST_PREVIEWED: Final = 3_000
# Tools that run at the same time; a reply may hold hundreds of calls, and each may need a process or a large file.
MOST_AT_ONCE: Final = 16
# Results of calls whose tool was not started, by the stop reason of the turn; any other reason is a failure of the turn.
_NOT_RUN: Final[Mapping[str, str]] = {
    "interrupted": "Interrupted by the user before this tool was run.",
    "max_seconds": "Not run: the turn reached its time limit before this tool was started.",
    "max_tools": "Not run: the turn reached its limit of tool calls before this one.",
}
UNKNOWN_TOOL: Final = "unknown tool"
"""Who refuses a call of a tool that is not on offer."""
BOUND_TO_FAIL: Final = "check"
"""Who refuses a call that would fail, before the user is asked about it."""
# What code of another author may raise.
_FOREIGN: Final = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
_REFUSED: Final = "This call was not run: "
_UNANSWERED: Final = "the turn ended before there was an answer"
_TURN_FAILED: Final = "Not run: the turn failed before this tool was started."


def allow_all(tool: AgentTool, call: ToolCall) -> Decision:
    """Allow every call, for agents whose tools are harmless or whose caller has decided already."""
    return Allow("caller")


async def no_approver(asked: PermissionAsked) -> Approval:
    """Refuse: there is no user who could be asked."""
    return Approval("no", "unattended", "there is no user to ask here; the call needs a rule that allows it")


class Toolbox(Struct, frozen=True):
    """The tools of an agent and what decides about their calls. `tools` can grow while a turn runs, when deferred ones are loaded.

    `decide` must depend on the call and on settings of the user alone. `approve` asks the user and waits for the answer; `remember`
    keeps the rule of an answer "always". `attach` returns further parts of the result of a tool that read or wrote some paths. `files`
    keeps the state of files before a tool changes them.
    """

    tools: Mapping[str, AgentTool]
    workspace: Workspace
    decide: Callable[[AgentTool, ToolCall], Decision] = allow_all
    approve: Callable[[PermissionAsked], Awaitable[Approval]] = no_approver
    remember: Callable[[str], None] = field(default=lambda _: None)
    attach: Callable[[AgentTool, tuple[str, ...]], tuple[Part, ...]] = field(default=lambda *_: ())
    files: TurnSnapshots = field(default_factory=TurnSnapshots)

    def find(self, name: str) -> AgentTool | None:
        """The tool that is called by a name: that of its declaration, or ours where another name was declared for it."""
        found = self.tools.get(name)
        return found or next((tool.own for tool in self.tools.values() if tool.own is not None and tool.own.name == name), None)


def offer_tools(session: Session, tools: Mapping[str, AgentTool]) -> None:
    """Declare these tools from the next call on, and record it if they differ from those that were offered last."""
    declared = tuple(tool.declaration for tool in tools.values())
    address = session.keep_tools(declared)
    if address != session.offered_tools:
        session.log.append(ToolsOffered(address, tuple(tools)))
    session.tools = declared


class _Admission(NamedTuple):
    """The decision about a call: the output that refuses it, if any, and what hooks add to its result.

    `own` is the call as one of our own tool, which is what hooks know.
    """

    call: ToolCall
    refusal: ToolOutput | None
    notes: tuple[Part, ...] = ()
    own: ToolCall | None = None


async def run_calls(
    session: Session, toolbox: Toolbox, calls: Sequence[ToolCall], feed: Feed, hooks: SessionHooks | None = None, *, most: int | None = None
) -> None:
    """Run the calls, at most so many, and record a result for each, in call order. Hooks run before and after each tool that may run.

    If the task is cancelled, running tools are cancelled too; the turn, which knows the reason, answers every call without a result.
    """
    for batch in _batches(toolbox, calls[:most]):
        check_cancelled()
        await _run_batch(session, toolbox, batch, feed, SessionHooks() if hooks is None else hooks)
    if most is not None and most < len(calls):
        answer_pending(session, "max_tools")


def answer_pending(session: Session, stop: str) -> None:
    """Record a result for every pending call: unknown outcome if its tool had started, else that it was not run, by the stop reason."""
    started = set(session.log.started_calls)
    for item in pending_calls(session.log.view.items):
        call = item.content
        if isinstance(call, ToolCall):
            text = session.profile.interrupted_result or (UNKNOWN_OUTCOME if call.call_id in started else _NOT_RUN.get(stop, _TURN_FAILED))
            session.log.append(ToolReturned(_result_of(call, ToolOutput(text, error=True)), tool=call.tool))


def _batches(toolbox: Toolbox, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
    """Yield runs of consecutive calls whose tools may run side by side; every other call stands alone."""
    batch: list[ToolCall] = []
    for call in calls:
        tool = toolbox.find(call.tool)
        if tool is not None and tool.parallel:
            batch.append(call)
            continue
        if batch:
            yield batch
            batch = []
        yield [call]
    if batch:
        yield batch


async def _run_batch(session: Session, toolbox: Toolbox, calls: list[ToolCall], feed: Feed, hooks: SessionHooks) -> None:
    """Decide about the calls one after the other, run the permitted ones side by side, and record results as soon as their turn comes."""
    admissions = [await _admit(session, toolbox, call, feed, hooks) for call in calls]
    found = [(each.call, toolbox.find(each.call.tool)) for each in admissions if each.refusal is None]
    tools = [(call, tool) for call, tool in found if tool is not None]
    await toolbox.files.before_tools(session, tools)
    for call, _ in tools:
        session.log.append(ToolStarted(call.call_id, call.tool))
    feed.events()
    if any(tool.kind in ("edits", "runs") for _, tool in tools):
        # After a crash the log must say that a tool with effects had started.
        await session.environment.offload(session.log.sync)
    slots = asyncio.Semaphore(MOST_AT_ONCE)
    running = {call.call_id: asyncio.ensure_future(_timed(session, toolbox, tool, call, slots)) for call, tool in tools}
    try:
        for admission in admissions:
            refusal = admission.refusal
            outcome = await running[admission.call.call_id] if refusal is None else (refusal, 0)
            await _record_call(session, toolbox, admission, outcome, hooks)
            feed.events()
    finally:
        for task in running.values():
            task.cancel()
        # Awaited, so that no tool works on after its call was answered; what they raise was raised or is of no use.
        for task in running.values():
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _record_call(
    session: Session, toolbox: Toolbox, admission: _Admission, outcome: tuple[ToolOutput, int], hooks: SessionHooks
) -> None:
    """Record the events of a tool and its result, which the profile limits in size, with what is attached to it and what hooks add."""
    call, notes = admission.call, admission.notes
    (output, took_ms), tool = outcome, toolbox.find(call.tool)
    if tool is not None and output.paths and not output.error:
        # Only now, because what the results before this one have attached is not attached again.
        with _recorded_failure(session, "attaching"):
            attached = await session.environment.offload(lambda: toolbox.attach(tool, output.paths))
            output = dataclass_replace(output, parts=(*output.parts, *attached))
    paths, seen = tuple(map(_encodable, output.paths)), tuple(replace(each, path=_encodable(each.path)) for each in output.seen)
    returned = ToolReturned(_result_of(call, output), call.tool, output.exit, paths, took_ms, seen)
    limited = returned if output.paged else await _limited(session, returned, recalls=RECALL in toolbox.tools)
    try:
        if admission.refusal is None:
            notes += await hooks.after_tool(session, admission.own or call, limited)
    finally:
        # Also if the task is cancelled while a hook runs: the tool has ended, and its outcome is known.
        for body in output.events:
            # A tool does not know the id of its call.
            session.log.append(replace(body, call_id=call.call_id) if isinstance(body, ProcessStarted) else body)
        session.log.append(with_notes(limited, notes))


async def _admit(session: Session, toolbox: Toolbox, call: ToolCall, feed: Feed, hooks: SessionHooks) -> _Admission:
    """Decide about a call: the permissions first, and then the hooks, which can only refuse it."""
    refusal = await _permitted(session, toolbox, call, feed)
    if refusal is not None:
        return _Admission(call, refusal)
    tool = toolbox.find(call.tool)
    own = call if tool is None else own_call(tool, call)[1]
    blocked, notes = await hooks.before_tool(session, own)
    if blocked is None:
        return _Admission(call, None, notes, own)
    session.log.append(ToolRefused(call.call_id, call.tool, blocked.by, blocked.why))
    return _Admission(call, ToolOutput(f"{_REFUSED}the {blocked.by} blocked it: {blocked.why}", error=True), notes)


@contextmanager
def _recorded_failure(session: Session, what: str) -> Iterator[None]:
    """Record what code of another author raises as a failure; a log that cannot be written raises its own error."""
    try:
        yield
    except _FOREIGN as error:
        if _is_cancelled(error):
            raise
        failure = as_failure(error)
        session.log.append(Failed(what, failure.kind, failure.message, by=what))


async def _limited(session: Session, returned: ToolReturned, *, recalls: bool) -> ToolReturned:
    """Return a result in the size that the profile allows; a limiter that fails is replaced by ours.

    One that was shortened says how `recall` gives the whole back, if the agent has that tool and the limiter names no file to read.
    """
    try:
        limiter = _limiter(session)
        limited = await carry_out(limiter(returned), session)
        # A tool may have bounded its text itself, and kept the whole.
        shortened = limited is not returned or bool(returned.result.blob)
        in_file = getattr(limiter, "names_file", False) and bool(session.environment.transcript)
        return _named_whole(limited) if shortened and recalls and not in_file else limited
    except _FOREIGN as error:
        if _is_cancelled(error):
            raise
        failure = as_failure(error)
        session.log.append(Failed("limiting a result", failure.kind, failure.message, by="limiter"))
    limited = await carry_out(PreviewLimiter(above=_LEAST_PREVIEWED)(returned), session)
    return _named_whole(limited) if recalls else limited


def _named_whole(limited: ToolReturned) -> ToolReturned:
    from palimpsest.agent.ways_back import name_whole  # few results are shortened

    return name_whole(limited)


def _limiter(session: Session) -> ResultLimiter:
    """The limiter of the profile; one of ours if it has none, so that no result of a live tool fills the window."""
    limiter = session.profile.limiter
    if limiter is UNLIMITED:
        return PreviewLimiter(above=max(_LEAST_PREVIEWED, min(PREVIEW_ABOVE, session.card.window // 4)))
    return limiter(session.card)


async def _permitted(session: Session, toolbox: Toolbox, call: ToolCall, feed: Feed) -> ToolOutput | None:
    """Return `None` if the call may run, else the output that refuses it."""
    tool = toolbox.find(call.tool)
    if tool is None:
        why = f"There is no tool {call.tool!r}. The tools are: {', '.join(sorted(toolbox.tools)) or 'none'}."
        session.log.append(ToolRefused(call.call_id, call.tool, UNKNOWN_TOOL, why))
        return ToolOutput(why, error=True)
    decision: Decision = Deny("failed", "what decides about calls has failed; it may not run")
    with _recorded_failure(session, "deciding"):
        decision = toolbox.decide(tool, call)
    if not tool.polls:
        decision = _with_repetition(session, tool, call, decision)
    if isinstance(decision, AskUser):
        failure = await _bound_to_fail(toolbox, tool, call)
        if failure is not None:
            session.log.append(ToolRefused(call.call_id, call.tool, BOUND_TO_FAIL, failure.text))
            return failure
        approval = await _approval(session, toolbox, PermissionAsked(call.call_id, call.tool, decision.question, decision.rule), feed)
        if approval.answer == "no":
            decision = Deny(approval.by, approval.why or "the user did not allow it")
        else:
            lasting = approval.answer == "always" and bool(decision.rule)
            if lasting:
                _remember(session, toolbox, decision.rule)
            session.log.append(Permitted(call.call_id, call.tool, approval.by, decision.rule if lasting else "once"))
            return None
    if isinstance(decision, Deny):
        session.log.append(ToolRefused(call.call_id, call.tool, decision.by, decision.why))
        return ToolOutput(f"{_REFUSED}{decision.why}", error=True)
    session.log.append(Permitted(call.call_id, call.tool, decision.by))
    return None


async def _bound_to_fail(toolbox: Toolbox, tool: AgentTool, call: ToolCall) -> ToolOutput | None:
    """Return the error of a call that cannot succeed, so that the user is not asked about it."""
    try:
        return await tool.check(call_text(tool, call), toolbox.workspace)
    except _FOREIGN as error:
        if _is_cancelled(error):
            raise
        # The call itself will show what is wrong.
        return None


async def _approval(session: Session, toolbox: Toolbox, asked: PermissionAsked, feed: Feed) -> Approval:
    """Ask the user and return the answer. If the turn ends before there is one, the call is recorded as refused."""
    question = session.log.append(asked)
    try:
        feed.events()
        # The question must survive a crash that happens while the user thinks.
        await session.environment.offload(session.log.sync)
        return await toolbox.approve(asked)
    except BaseException as error:
        # What asks for a sub-agent has recorded its end already, and knows more about it.
        later = session.log.reader.run(question.seq + 1, session.log.tip)
        if not any(isinstance(event.body, ToolRefused) and event.body.call_id == asked.call_id for event in later):
            by = "interrupted" if isinstance(error, asyncio.CancelledError) else "failed"
            with suppress(PalimpsestError):
                session.log.append(ToolRefused(asked.call_id, asked.tool, by, _UNANSWERED))
        raise


def _with_repetition(session: Session, tool: AgentTool, call: ToolCall, decision: Decision) -> Decision:
    """Ask the user before the third equal call in a row, if it would otherwise run and the results so far were equal, too."""
    if isinstance(decision, Deny) or not _is_repeated(session, call) or sleeps(tool, call):
        return decision
    return AskUser(f"the model makes the same call of {call.tool} for the {EQUAL_CALLS}rd time in a row; let it run?")


def sleeps(tool: AgentTool, call: ToolCall) -> bool:
    """Whether a call runs a command that sleeps, as one does that waits for a build and looks again."""
    if tool.kind != "runs" or "sleep" not in call.args:
        return False
    return any(program_name(command.words[0]) == "sleep" for command, _ in executed(shell_line(call)) if command.words)


def _is_repeated(session: Session, call: ToolCall) -> bool:
    """Whether so many calls up to and including this one are equal, with the same result and without another call between them."""
    results: dict[str, str] = {}
    same: set[str] = set()
    equal = 0
    for item in reversed(session.log.view.items):
        content = item.content
        if isinstance(content, ToolResult):
            results[content.call_id] = text_of(content)
        elif isinstance(content, ToolCall) and (equal or content.call_id == call.call_id):
            equal += 1
            if (content.tool, content.args) != (call.tool, call.args):
                return False
            # A call of the same reply has no result yet, and one that was refused says nothing new.
            if not (result := results.get(content.call_id, _REFUSED)).startswith(_REFUSED):
                same.add(result)
            if len(same) > 1 or equal == EQUAL_CALLS:
                return len(same) <= 1
    return False


def _remember(session: Session, toolbox: Toolbox, rule: str) -> None:
    """Keep a rule; if it cannot be stored, the call runs nevertheless, for the user allowed it."""
    try:
        toolbox.remember(rule)
    except _FOREIGN as error:
        failure = as_failure(error)
        session.log.append(Failed("keeping a rule", failure.kind, failure.message))


async def _timed(session: Session, toolbox: Toolbox, tool: AgentTool, call: ToolCall, slots: asyncio.Semaphore) -> tuple[ToolOutput, int]:
    """Run one tool and return its output and the milliseconds it took; an error of the tool is an output too."""
    longest = tool.seconds or LONGEST_TOOL
    clock, limit = session.environment.clock, asyncio.timeout(longest)
    CURRENT_CALL.set(call.call_id)
    async with slots:
        started = clock.now()
        try:
            async with limit:
                output = await tool.run(call_text(tool, call), toolbox.workspace)
        except PalimpsestError as error:
            output = ToolOutput(error.message, error=True)
        except _FOREIGN as error:
            if _is_cancelled(error):
                raise
            why = "it cancelled itself" if isinstance(error, asyncio.CancelledError) else raised_text(error)
            text = f"did not end within {longest:g} seconds and was stopped." if limit.expired() else f"failed: {why}"
            output = ToolOutput(f"{tool.name} {text}", error=True)
    return output, clock.now() - started


def _is_cancelled(error: BaseException) -> bool:
    """Whether an error is the cancellation of the turn, and none that code of another author raised by itself."""
    return isinstance(error, asyncio.CancelledError) and _must_end()


def _must_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_cancelled() -> None:
    """Raise the cancellation of the turn, which a tool or a provider of another author may have swallowed."""
    if _must_end():
        raise asyncio.CancelledError


def _result_of(call: ToolCall, output: ToolOutput) -> ToolResult:
    parts = tuple(replace(part, text=_encodable(part.text)) if isinstance(part, Text) else part for part in output.contents())
    return ToolResult(call.call_id, parts or (Text(""),), error=output.error, form=call.form, blob=output.blob)


def _encodable(text: str) -> str:
    """A text that can be recorded: names of files need not be UTF-8, and bytes of them that are not are shown as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


SEARCH: Final = "tool_search"
LONGEST_DESCRIPTION: Final = 500
"""Characters of a description in a result; the whole description is part of the declaration."""


class ToolQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Words about what is needed, or `select:NAME,NAME` for tools whose names are known."""

    query: Annotated[str, Meta(min_length=1, max_length=500)]


def tool_search_tool(load: Callable[[str], tuple[Tool, ...]]) -> AgentTool:
    """The tool. `load` returns the tools that fit a query, best first, and has them declared from the next call on."""

    async def search(arguments: ToolQuery, _: Workspace) -> ToolOutput:
        found = load(arguments.query)
        if not found:
            return ToolOutput("No tool fits. Use other words, or `select:NAME` with a name from the list of tools that are not loaded.")
        lines = [f"{tool.name}: {one_line(tool.description, LONGEST_DESCRIPTION)}" for tool in found]
        return ToolOutput("\n".join(("These tools are loaded and can be called from now on:", *lines)))

    return define(
        ToolQuery,
        search,
        name=SEARCH,
        description=(
            "Find and load tools that exist but are not loaded; the context lists their names. Describe what you need in a few words, or "
            "give the names as `select:NAME,NAME`. The tools that fit best can be called after this."
        ),
        kind="reports",
    )


KEY: Final = "deferred_tools"
"""The key of the source that lists them."""
WINDOW_SHARE: Final = 10
"""Tool declarations may take one part in so many of the window before the rest is deferred."""


def tool_budget(session: Session) -> int | None:
    """Tokens of all declarations above which tools are deferred; `None` if the profile has no source that would list them."""
    listed = any(source.key == KEY for source in session.profile.sources.sources)
    return session.card.window // WINDOW_SHARE if listed else None


def declared_tokens(tool: Tool) -> int:
    """Estimated tokens of a declaration."""
    return estimate(tool.name + tool.description + bytes(tool.schema).decode("utf-8", "replace"))


def within_budget(own: Sequence[AgentTool], others: Iterable[AgentTool], budget: int | None) -> tuple[list[AgentTool], list[AgentTool]]:
    """Return the tools to declare and those to defer. Our own are always declared; the others in order, as long as they fit."""
    loaded = list(own)
    if budget is None:
        return [*loaded, *others], []
    room = budget - sum(declared_tokens(tool.declaration) for tool in own)
    deferred: list[AgentTool] = []
    for tool in others:
        room -= declared_tokens(tool.declaration)
        # Once one is deferred all later ones are, so that what is loaded does not depend on the sizes of single tools.
        (loaded if room >= 0 and not deferred else deferred).append(tool)
    return loaded, deferred


class DeferredTools:
    """The deferred tools of a session. Loading one adds it to `tools`, which the loop looks up calls in, and offers it.

    On creation, those that a resumed session was offered last, or had in its last call, are loaded again.
    """

    def __init__(self, session: Session, tools: dict[str, AgentTool], deferred: Iterable[AgentTool]) -> None:
        self._session = session
        self.tools = tools
        # The tools that were offered before this process: those that join late are loaded again.
        self._offered_before = session.offered_tools
        self._deferred = {tool.name: tool for tool in deferred}
        if self._deferred:
            tools[SEARCH] = tool_search_tool(self.load)
        self._load_again()

    @property
    def declarations(self) -> tuple[Tool, ...]:
        """All of them, loaded or not; the source tells them apart by the tools that are offered."""
        return tuple(tool.declaration for tool in self._deferred.values())

    def join(self, tools: Iterable[AgentTool]) -> None:
        """Add tools that came during a session, and offer them: declared as long as the budget has room, else deferred."""
        loaded, rest = within_budget(list(self.tools.values()), tools, tool_budget(self._session))
        self.tools.update((tool.name, tool) for tool in loaded)
        self._deferred.update((tool.name, tool) for tool in rest)
        if self._deferred and SEARCH not in self.tools:
            self.tools[SEARCH] = tool_search_tool(self.load)
        self._load_again()
        offer_tools(self._session, self.tools)

    def load(self, query: str) -> tuple[Tool, ...]:
        """Load the tools that fit a query, best first, and return their declarations; empty if none fits."""
        found = search_tools(query, self.declarations)
        if self._add(tool.name for tool in found):
            offer_tools(self._session, self.tools)
        return found

    def _load_again(self) -> None:
        call = self._session.log.view.call
        for blob in dict.fromkeys(("" if call is None else call.tools, self._offered_before)):
            if blob and self._deferred:
                # Without the record the model finds them again.
                with suppress(PalimpsestError):
                    self._add(tool.name for tool in recorded_tools(blob, self._session.environment.blobs.get))

    def _add(self, names: Iterable[str]) -> bool:
        new = [name for name in names if name in self._deferred and name not in self.tools]
        self.tools.update((name, self._deferred[name]) for name in new)
        return bool(new)
