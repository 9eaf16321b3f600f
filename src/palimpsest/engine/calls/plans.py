"""Answers the wants of plans with model calls, the environment, the blob store and the log."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, NoModel, PalimpsestError, ProviderError
from palimpsest.core.events import Event, Failed, ModelReplied
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.policy import Answer, Ask, AskTogether, EventSpan, FoldPlanned, Look, Replies, Save, Want, complete, drive
from palimpsest.core.view import View
from palimpsest.engine.calls.late_tools import declared_tools
from palimpsest.engine.calls.sending import Outgoing, send, with_reply_limit
from palimpsest.engine.environment import inline
from palimpsest.engine.session import Session, tools_bytes
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import NULL, Params, Tool

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
            return await environment.offload(lambda: _events(session, first, last))
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


def _events(session: Session, first: int, last: int) -> tuple[Event, ...]:
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
