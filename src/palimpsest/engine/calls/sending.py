"""The only call path: records the start of a call, streams the reply, and records exactly one outcome."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from palimpsest.core.edits import Mask
from palimpsest.core.errors import BadInput, OverBudget, PalimpsestError, ProviderError, ThinkingRefused
from palimpsest.core.events import TURN, CallStarted, Failed, Interrupted, ModelReplied, Usage, ViewEdited
from palimpsest.core.events.deltas import Delta, PartialReply
from palimpsest.core.format.side_requests import encode_side_request
from palimpsest.core.ports import Provider, Sendable, closing
from palimpsest.core.projections.jobs import is_job_purpose
from palimpsest.core.view import View
from palimpsest.engine.environment import Encoded
from palimpsest.engine.session import Session, tools_size
from palimpsest.providers.retrying import retry_delay
from palimpsest.wire.encode import Encoder
from palimpsest.wire.json_reading import table_at, text
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.past_requests import ThinkingFit
from palimpsest.wire.request import Params, Tool, is_given, resolved_params, with_client_metadata

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
    params = _with_ids(session, outgoing, resolved_params(outgoing.params, card))
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
