"""Model calls: the only call path with exactly one outcome, answers to the wants of plans, and moments outside calls."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from palimpsest.agent.editing import PolicyRun, run_policies
from palimpsest.agent.session import Encoded, Session, inline, tools_bytes, tools_size
from palimpsest.core.deltas import Delta, PartialReply
from palimpsest.core.errors import BadInput, NoModel, OverBudget, PalimpsestError, PromptTooLong, ProviderError, ThinkingRefused
from palimpsest.core.events import (
    TURN,
    CallStarted,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    Usage,
    ViewEdited,
)
from palimpsest.core.items import Content, Item, Mask, Text, ToolCall, ToolResult, kind_of, placed_changes, stated_effort
from palimpsest.core.ledger import is_job_purpose
from palimpsest.core.lines import encode_side_request
from palimpsest.core.plans import Answer, Ask, AskTogether, EventSpan, FoldPlanned, Look, Moment, Replies, Save, Want, complete, drive
from palimpsest.core.ports import Provider, Sendable, closing
from palimpsest.core.view import View
from palimpsest.providers.retrying import retry_delay
from palimpsest.wire.binding import ANY_PREFIX
from palimpsest.wire.breakpoints import with_anchors
from palimpsest.wire.encode import Encoder, ThinkingFit
from palimpsest.wire.json_reading import table_at, text
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import NULL, Params, Tool, accepted_effort, is_deferred, is_given, resolved_params, with_client_metadata


def declared_tools(session: Session) -> tuple[Tool, ...]:
    """The tools that the next request declares: those on offer, or, where the model takes changes, all that were declared before.

    Tools that joined behind the first request to such a model are deferred, in this request and in all later ones. If the declaration of
    a tool is another one than before, the tools on offer are declared as in a first request.
    """
    offered, call = session.tools, session.log.view.call
    if call is None or not call.tools:
        return offered
    try:
        before = session.recorded_tools(call.tools)
    except PalimpsestError:
        # Without the record nothing that was sent can be kept.
        return offered
    own = {tool.name: tool for tool in offered}
    late = {tool.name for tool in before if tool.deferred}
    declared = tuple(replace(tool, deferred=True) if tool.name in late else tool for tool in offered) if late else offered
    if session.card.takes_tool_changes and call.prefix not in ("", ANY_PREFIX):
        if any(replace(tool, deferred=False) != own.get(tool.name, replace(tool, deferred=False)) for tool in before):
            return offered
        known = {tool.name for tool in before}
        declared = (*before, *(replace(tool, deferred=True) for tool in offered if tool.name not in known))
    return offered if all(tool.deferred for tool in declared) else declared


def announce_changes(session: Session) -> None:
    """Record, right before a request, which tools the model can call from here on and which not any more, and another effort."""
    log, card = session.log, session.card
    if not card.takes_tool_changes:
        return
    declared = declared_tools(session)
    deferred = [tool.name for tool in declared if is_deferred(tool, card.wire)]
    names = [tool.name for tool in declared]
    available = frozenset(names).difference(deferred)
    for placed in placed_changes(log.view.items, names, deferred):
        available = placed.available
    offered = {tool.name for tool in session.tools}
    added = tuple(name for name in names if name in offered and name not in available)
    removed = tuple(name for name in names if name in available and name not in offered)
    effort = _effort_to_state(session)
    if added or removed or effort:
        log.append(ToolsChanged(added, removed, effort))


def _effort_to_state(session: Session) -> str:
    """The effort that the list must state, because the field of the request stays what earlier reasoning is bound to; empty if none."""
    card = session.card
    if card.wire != "responses":
        return ""
    wanted = accepted_effort(session.params.effort, card) or card.default_effort
    holds = stated_effort(session.log.view.items) or accepted_effort(session.request_params.effort, card) or card.default_effort
    if holds and not wanted:
        session.tell("effort", (f"{card.name} stays at effort {holds}: the one that it has unasked is not known; set another effort",))
    return wanted if holds != wanted else ""


_encode = msgspec.json.Encoder().encode
# The lowest reply limit of a request, in tokens, even if less fits the window.
SHORTEST_REPLY = 1_024
# The same of a side call to a model that thinks without being asked: its thinking counts.
_SHORTEST_THINKING = 4_096
RECOVERY: Final = "recovery"
"""Who marks thinking that the provider refused as withdrawn."""


def ignore(_: object) -> None:
    """Do nothing: the default observer of deltas."""


class Outgoing(Struct, frozen=True):
    """A request before encoding: its view, model, tools, parameters and purpose. Earlier thinking is sent if it fits, or never."""

    view: View
    card: ModelCard
    tools: tuple[Tool, ...]
    params: Params
    purpose: str = TURN
    sends_thinking: bool = True


class PreparedCall(Struct, frozen=True):
    """An encoded request and who gets it, its start for the log, and the ids of the thinking items that it shows.

    `is_compared` says that the provider is asked to compare it with an earlier one.
    """

    provider: Provider
    request: Encoded
    started: CallStarted
    thinking: tuple[str, ...] = ()
    is_compared: bool = False


def with_reply_limit(params: Params, card: ModelCard, used: int, wanted: int = 0) -> Params:
    """Return the parameters with a reply limit that fits the window beside `used` tokens; `wanted` is the preferred limit.

    Where no limit is stated, the provider would take its own, which may be far above or below what the card and the budget assume.
    """
    wanted = max(wanted, _SHORTEST_THINKING) if wanted and card.thinks_unasked else wanted
    limit = min(wanted or params.max_tokens or card.reply, card.reply)
    room = card.window - used
    if room >= limit and not wanted and params.max_tokens is None and not params.states_limit:
        return params
    return replace(params, max_tokens=limit if room >= limit else max(SHORTEST_REPLY, min(room, limit)))


async def send(session: Session, outgoing: Outgoing, observe: Callable[[Delta], None] = ignore) -> ModelReplied:
    """Record the start of a call, make it durable, send the request and record the outcome. Returns the reply as recorded.

    Before an error is raised, its outcome is recorded: `Failed` if nothing had arrived, else `Interrupted` with the parts and the usage
    that had arrived; also if the task is cancelled. Transient errors are retried after the delay of the retry policy, as long as no part
    has arrived; each attempt is a separate call in the log. If the provider refuses the thinking in the request, the request is sent once
    more without any. Raises `OverBudget` before an attempt for which the turn has no budget left.
    """
    environment = session.environment
    attempt, waited = 1, 0.0
    _check_budget(session, outgoing)
    while True:
        arrived, prepared = PartialReply(), None
        try:
            prepared = await _prepare(session, outgoing)
            return await _attempt(session, outgoing, prepared, arrived, observe)
        except ThinkingRefused as error:
            if prepared is None or not prepared.thinking or not arrived.is_empty or _wants_errors(outgoing.params):
                raise
            return await _without_thinking(session, outgoing, prepared.thinking, error, observe)
        except PalimpsestError as error:
            wait = (
                retry_delay(error, attempt, environment.retries, waited=waited, chance=environment.chance()) if arrived.is_empty else None
            )
            if wait is None:
                raise
        _check_budget(session, outgoing)
        await environment.sleep(wait)
        attempt, waited = attempt + 1, waited + wait


async def _without_thinking(
    session: Session, outgoing: Outgoing, refused: tuple[str, ...], error: ThinkingRefused, observe: Callable[[Delta], None]
) -> ModelReplied:
    """Send a request once more without any thinking. If it succeeds, that thinking is withdrawn from the view by an edit, for good."""
    _check_budget(session, outgoing)
    bare = replace(outgoing, sends_thinking=False)
    reply = await _attempt(session, bare, await _prepare(session, bare), PartialReply(), observe)
    if outgoing.purpose == TURN:
        after = reply.usage.total
        items = [item for item in outgoing.view.items if item.id in refused]
        before = after + session.counter.scaled(sum(session.counter.unscaled_sizes(items))) if after else 0
        why, lost = withdrawn_why(error), session.reasoning_in(items)
        session.log.append(ViewEdited((Mask(refused),), RECOVERY, why, "after_call", before, after, reasoning_lost=lost))
        session.tell(RECOVERY, (why,), again=True)
    return reply


def withdrawn_why(error: ThinkingRefused) -> str:
    """The reason of the edit that withdraws refused thinking."""
    differs = f" ({error.cause} differs)" if error.cause else ""
    return f"the provider refused thinking at {error.path or 'an unknown place'}{differs}, and answered without it"


def _wants_errors(params: Params) -> bool:
    """Whether the request itself asks for an error where its thinking does not fit."""
    if not is_given(params.extra):
        return False
    thinking = table_at(msgspec.json.decode(params.extra, type=dict[str, object]), "thinking")
    return text(table_at(thinking, "block_binding"), "prefix_mismatch_behavior") == "error"


def _check_budget(session: Session, outgoing: Outgoing) -> None:
    """Raise `OverBudget` if the turn has reached a limit in dollars or tokens; jobs beside it have budgets of their own."""
    limit = None if session.spent_out is None or is_job_purpose(outgoing.purpose) else session.spent_out()
    if limit is not None:
        raise OverBudget(f"the turn has reached its limit ({limit}), so that no model is called for {outgoing.purpose}")


async def _prepare(session: Session, outgoing: Outgoing) -> PreparedCall:
    """Encode a request in a thread, and record which blobs could not be read."""
    provider = session.environment.provider(outgoing.card, outgoing.purpose)
    prepared = await session.environment.offload(lambda: _prepared(session, outgoing, provider))
    for reason in session.fetch.unreported():
        session.log.append(Failed("read", "blob", reason))
    return prepared


async def _attempt(
    session: Session, outgoing: Outgoing, prepared: PreparedCall, arrived: PartialReply, observe: Callable[[Delta], None]
) -> ModelReplied:
    """Send one request and record its outcome."""
    call = session.log.append(prepared.started).seq
    try:
        await session.environment.offload(session.log.sync)
        reply = await _streamed(prepared.provider, prepared.request, arrived, observe)
        if not prepared.is_compared:
            reply = replace(reply, diagnosis=None)
        event = session.log.append(replace(reply, call=call, purpose=outgoing.purpose))
    except BaseException as error:
        try:
            _record_failure(session, error, arrived, call, outgoing)
        except PalimpsestError as unrecorded:
            error.add_note(f"and it could not be recorded: {unrecorded}")
        raise
    session.past_thinking.note_reply(prepared.started, event)
    return event.body if isinstance(event.body, ModelReplied) else reply


def _prepared(session: Session, outgoing: Outgoing, provider: Provider) -> PreparedCall:
    """Return the encoded request and its `CallStarted`, after storing the blobs to which that refers."""
    blobs, card = session.environment.blobs, outgoing.card
    params = _with_ids(session, outgoing, resolved_params(as_spoken_by(provider, outgoing.params), card))
    # Other servers of the same wire may refuse a field that they do not know.
    if outgoing.purpose == TURN and card.diagnoses_cache and getattr(provider, "is_direct", False):
        params = replace(params, compared_reply=session.derived.cache.comparable_reply(card.name))
    is_side_call, tools = outgoing.purpose != TURN, session.keep_tools(outgoing.tools)
    encoder = session.encoder(card, outgoing.tools, params, beside=is_job_purpose(outgoing.purpose))
    request, fit = (
        session.past_thinking.encode(encoder, outgoing.view, card, sends_thinking=outgoing.sends_thinking)
        if isinstance(encoder, Encoder)
        # That of a replay, whose requests have no bytes.
        else (encoder.encode(outgoing.view), ThinkingFit(withheld=session.withheld))
    )
    started = CallStarted(
        model=card.name,
        wire=request.wire,
        params=Raw(_encode(params)),
        tools=tools,
        digest=request.digest,
        size=len(request.body),
        estimate=0 if is_side_call else _estimate(session, outgoing.view, fit.withheld),
        tools_estimate=0 if is_side_call else tools_size(outgoing.tools),
        cached=0 if is_side_call else session.cached_tokens(tools),
        breakpoints=request.breakpoints,
        purpose=outgoing.purpose,
        request=blobs.put(encode_side_request(outgoing.view, session.log.view)) if is_side_call else "",
        prefix=fit.prefix,
        after=fit.after,
        withheld=fit.withheld,
    )
    return PreparedCall(provider, request, started, fit.thinking, bool(params.compared_reply))


def as_spoken_by(provider: Provider, params: Params) -> Params:
    """The parameters of a request for the version of the API that a provider asks for."""
    return replace(params, api_version=str(getattr(provider, "api_version", "")))


def _estimate(session: Session, view: View, withheld: tuple[str, ...]) -> int:
    """The tokens of a view before calibration, without the thinking that is not sent."""
    whole = session.counter.raw(view)
    if not withheld:
        return whole
    left_out = frozenset(withheld)
    return whole - sum(session.counter.unscaled_sizes([item for item in view.items if item.id in left_out]))


def _with_ids(session: Session, outgoing: Outgoing, params: Params) -> Params:
    """Return the parameters with the ids of this request, for the dialect that names them."""
    if params.dialect != "codex-0.166" or outgoing.card.wire != "responses":
        return params
    log = session.log
    root = log.session if log.opened.opener is None else log.opened.opener.session
    kind = "turn" if outgoing.purpose == TURN else "compaction"
    return with_client_metadata(params, log.session, root=root, turn=log.health.turn, epoch=max(0, log.view.epoch - 1), kind=kind)


async def whole_reply(provider: Provider, request: Sendable) -> ModelReplied:
    """Return the reply to a request outside of any session. Raises `ProviderError`."""
    return await _streamed(provider, request, PartialReply(), ignore)


async def _streamed(provider: Provider, request: Sendable, arrived: PartialReply, observe: Callable[[Delta], None]) -> ModelReplied:
    reply: ModelReplied | None = None
    async with closing(provider.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ModelReplied):
                beside = tuple(replace(each, usage=_measured(each.usage)) for each in piece.beside)
                reply = replace(piece, usage=_measured(piece.usage), beside=beside)
            else:
                arrived.add(piece)
                observe(piece)
    if reply is None:
        raise ProviderError("the provider ended without a reply")
    return reply


def _measured(usage: Usage) -> Usage:
    """The usage that a provider reports; one with a number below zero is not a measurement, and would give money back."""
    return usage if min(astuple(usage)) >= 0 else Usage()


def _record_failure(session: Session, error: BaseException, arrived: PartialReply, call: int, outgoing: Outgoing) -> None:
    """Record the outcome of a call that ended with an error."""
    parts, usage, model, purpose = arrived.parts(), _measured(arrived.usage), outgoing.card.name, outgoing.purpose
    message = error.message if isinstance(error, PalimpsestError) else type(error).__name__
    kind = error.kind if isinstance(error, PalimpsestError) else "internal"
    path, cause = (error.path, error.cause) if isinstance(error, ThinkingRefused) else ("", "")
    failed = Failed("call", kind, message, call=call, purpose=purpose, path=path, cause=cause)
    if not parts and not usage.total and isinstance(error, Exception):
        session.log.append(failed)
        return
    try:
        session.log.append(Interrupted(call, parts, message, usage, model, purpose))
    except BadInput:
        # The parts cannot be encoded, for example because of half a surrogate pair; the call needs an outcome nevertheless.
        session.log.append(failed)


Result = TypeVar("Result")
_NOT_GRANTED = "This tool is not granted here."


async def carry_out(steps: Generator[Want, Answer, Result], session: Session) -> Result:
    """Run the steps of a plan to their end and return the result; errors of wants are thrown into the steps.

    The code between wants runs outside the event loop.
    """

    async def answer(want: Want) -> Answer:
        return await answer_want(want, session)

    offload = session.environment.offload
    return await drive(steps, answer, None if offload is inline else offload)


def carry_out_now(steps: Generator[Want, Answer, Result], session: Session) -> Result:
    """As `carry_out`, but without an event loop, for environments in which nothing waits. Raises `RuntimeError` if something does."""
    return complete(carry_out(steps, session))


async def answer_want(want: Want, session: Session) -> Answer:
    """Return the answer to one want. Raises `PalimpsestError` if there is none."""
    environment = session.environment
    match want:
        case Ask():
            return await _ask(want, session)
        case AskTogether():
            return await answered_together(want, lambda each: answer_want(each, session))
        case Look():
            return await environment.offload(lambda: environment.look(want))
        case Save(data=data, name=name, in_project=in_project):
            keep = environment.create if in_project and environment.create is not None else environment.keep
            return await environment.offload(lambda: keep(name, data) if name and keep is not None else environment.blobs.put(data))
        case EventSpan(first=first, last=last):
            return await environment.offload(lambda: _events_between(session, first, last))
        case FoldPlanned(tokens=tokens):
            await environment.before_fold(tokens)
            return None


async def answered_together(want: AskTogether, answer: Callable[[Want], Awaitable[Answer]]) -> Replies:
    """Answer questions at once. The error of one leaves the others alone, and a cancellation ends all of them."""

    async def one(each: Ask) -> ModelReplied | PalimpsestError:
        try:
            found = await answer(each)
        except PalimpsestError as error:
            return error
        return found if isinstance(found, ModelReplied) else BadInput(f"a question was answered with {type(found).__name__}")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in want.asks]
    return Replies(tuple(task.result() for task in tasks))


def _events_between(session: Session, first: int, last: int) -> tuple[Event, ...]:
    return tuple(session.log.reader.run(max(0, first), min(last, session.log.tip)))


async def _ask(want: Ask, session: Session) -> ModelReplied:
    """Return the reply of a model; granted tools are run in between, in at most `want.turns` requests."""
    model = session.named_card(want.model) if want.model else session.card
    shown_view = side_request_view(session.log.view, want, model)
    tools = _tools_of(want, session)
    for turn in range(1, max(1, want.turns) + 1):
        params = _params_of(want, session, shown_view, tools, model)
        outgoing = Outgoing(shown_view, model, tools, params, want.purpose)
        try:
            reply = await send(session, outgoing)
        except ProviderError as error:
            if not want.schema or not error.refuses_form:
                raise
            session.log.append(Failed("schema", error.kind, schema_refused(model.name), by=want.purpose))
            reply = await send(session, replace(outgoing, params=replace(params, schema=NULL)))
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        is_last = turn >= want.turns
        if not want.grants or not calls or (is_last and not want.runs_last):
            return reply
        results = [await _run_granted(call, want, session) for call in calls]
        if is_last:
            return reply
        shown_view = _with_contents(shown_view, turn, (*reply.parts, *results))
    raise NoModel(f"no request was made for {want.purpose}", where=session.log.session)


def schema_refused(model: str) -> str:
    """Return the line for the user after a provider has refused the schema of a reply."""
    return f"{model} refused a request with a schema for its reply; the same is asked without one"


async def _run_granted(call: ToolCall, want: Ask, session: Session) -> ToolResult:
    """Run a granted tool and return its result or error; other tools are not run and return an error."""
    granted = session.environment.tools.get(call.tool) if call.tool in want.grants else None
    if granted is None:
        return ToolResult(call.call_id, (Text(_NOT_GRANTED),), error=True, form=call.form)
    try:
        output = await granted.run(call.args)
    except PalimpsestError as error:
        return ToolResult(call.call_id, (Text(error.message),), error=True, form=call.form)
    return ToolResult(call.call_id, (Text(output),), form=call.form)


def _with_contents(shown_view: View, turn: int, contents: tuple[Content, ...]) -> View:
    """Return the view of the next request of a side call: with the reply and its tool results at the end."""
    items = tuple(Item(f"{shown_view.seq + 1}.{turn}.{number}", kind_of(content), content) for number, content in enumerate(contents))
    return replace(shown_view, items=(*shown_view.items, *items))


def side_request_view(view: View, want: Ask, model: ModelCard) -> View:
    """Return the view of a side request: the head of the session or another one, the items of the want, and its prompt."""
    head = view.head if want.head else ()
    if want.system:
        head = (Item(f"{view.seq + 1}.0", "context", Text(want.system, "system"), "summariser"),)
    last = (Item(f"{view.seq + 1}.1", "user", Text(want.prompt)),) if want.prompt else ()
    return View(head=head, items=(*want.items, *last), call=view.call, model=model.name, seq=view.seq)


def _tools_of(want: Ask, session: Session) -> tuple[Tool, ...]:
    granted = tuple(tool.tool for name in want.grants if (tool := session.environment.tools.get(name)) is not None)
    shared = declared_tools(session) if want.tools else ()
    own = {tool.name for tool in shared}
    return (*shared, *(tool for tool in granted if tool.name not in own), *offered_tools(want))


def offered_tools(want: Ask) -> tuple[Tool, ...]:
    """Return the tools of the plan that a want offers."""
    return tuple(Tool(each.name, each.description, msgspec.Raw(each.schema.encode()), kind="reports") for each in want.offers)


def _params_of(want: Ask, session: Session, shown_view: View, tools: tuple[Tool, ...], model: ModelCard) -> Params:
    """Return the parameters of a side request; its reply is limited to what fits beside the prompt and the tools."""
    offers = want.tools or bool(want.grants) or bool(want.offers)
    # Without tools there are no parallel calls, and some servers expect the request to say so.
    params = session.request_params
    params = replace(params, endpoint=want.endpoint, instructions=want.instructions, compact_at=None, parallel=params.parallel and offers)
    if want.breakpoint_rule:
        params = replace(params, breakpoint_rule=want.breakpoint_rule)
    if want.effort:
        params = replace(params, effort=want.effort)
    if want.schema:
        params = replace(params, schema=msgspec.Raw(want.schema.encode()))
    used = session.counter.total(shown_view) + session.derived.tokens_of(tools_bytes(tools))
    return with_reply_limit(params, model, used, want.reply)


async def do_nothing() -> None:
    """Do nothing: the default after a fold."""


async def call(
    session: Session,
    *,
    observe: Callable[[Delta], None] = ignore,
    after_policies: Callable[[Moment, PolicyRun], None] = lambda *_: None,
    after_fold: Callable[[], Awaitable[None]] = do_nothing,
) -> ModelReplied:
    """Run the policies, send the view and return the reply. `observe` gets the deltas, `after_policies` the policy run of each moment.

    `after_fold` is awaited before the request is sent if a policy folded, so that context which the fold removed can be stated again.

    If the request is too long, the profile decides between folding and `PromptTooLong`. Raises `PalimpsestError` if the call fails, or
    if a policy fails and the profile insists on it.
    """
    before = await at_moment(session, "before_call")
    after_policies("before_call", before)
    if before.folded:
        await after_fold()
    if before.failure is not None and session.profile.stops_when_fold_fails:
        raise before.failure
    try:
        reply = await _send_turn(session, observe)
    except PromptTooLong:
        if session.profile.overflow == "stop":
            raise
        overflow = await at_moment(session, "overflow")
        after_policies("overflow", overflow)
        if not overflow.edited:
            raise
        if overflow.folded:
            await after_fold()
        reply = await _send_turn(session, observe)
    after_policies("after_call", await at_moment(session, "after_call"))
    return reply


async def _send_turn(session: Session, observe: Callable[[Delta], None]) -> ModelReplied:
    def checked() -> Outgoing:
        check_room(session)
        return turn_request(session)

    announce_changes(session)
    # Counting the tokens of a large view after an edit takes long, so it runs in a thread too.
    return await send(session, await session.environment.offload(checked), observe)


def turn_request(session: Session) -> Outgoing:
    """Return the request for the current view, with cache breakpoints and a reply limit that fits the window."""
    session.log.catch_up()
    params = with_anchors(session.request_params, session.derived.cache.value(), session.environment.clock.now())
    return Outgoing(session.log.view, session.card, declared_tools(session), with_reply_limit(params, session.card, session.used))


def check_room(session: Session) -> None:
    """Raise `PromptTooLong` if the next request exceeds the limit of the budget."""
    level = session.budget.block_at
    if level is not None and session.used >= level:
        message = f"prompt is too long: {session.used:,} tokens, and nothing is sent from {level:,} on; compact the session"
        raise PromptTooLong(message, where=session.log.session, gap=session.used - level)


async def at_moment(
    session: Session, moment: Moment, *, asked: str = "", incoming: int = 0, previous: ModelCard | None = None, used: int | None = None
) -> PolicyRun:
    """Run the policies of a moment; the other parameters are those of `run_policies`."""
    return await carry_out(run_policies(session, moment, asked=asked, incoming=incoming, previous=previous, used=used), session)


async def start_turn(session: Session, *, incoming: int = 0, typed: tuple[int, ...] = ()) -> PolicyRun:
    """Start a turn, and let policies make room for `incoming` tokens of queued input before it enters the view."""
    session.log.append(TurnStarted(typed))
    return await at_moment(session, "turn_starts", incoming=incoming)


async def end_turn(session: Session, stop: str = "done") -> PolicyRun:
    """End the turn, make it durable, and run the policies for that."""
    session.log.append(TurnEnded(stop))
    await session.environment.offload(session.log.sync)
    return await at_moment(session, "turn_ends")


async def compact(session: Session, focus: str = "") -> PolicyRun:
    """Fold at the request of the user or the model; `focus` is what the summary should concentrate on."""
    return await at_moment(session, "asked", asked=focus)


async def resumed(session: Session) -> PolicyRun:
    """Run the policies for a session that was just resumed; if that was with another model, first those for a switch."""
    ran = PolicyRun()
    if session.left_model is not None:
        (previous, used), session.left_model = session.left_model, None
        ran = await at_moment(session, "switched", previous=previous, used=used)
    return ran.then(await at_moment(session, "resumed"))


async def switch(session: Session, model: ModelCard) -> PolicyRun:
    """Switch to another model and run the policies for that.

    Policies get the size that the previous model reported, and may ask the previous model once more.
    """
    previous, used = session.card, session.used
    session.switch(model)
    return await at_moment(session, "switched", previous=previous, used=used)
