"""Answers the wants of a plan: a model, the world outside, the blobs, the log."""

from collections.abc import Generator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, PalimpsestError, ProviderError
from palimpsest.core.events import ModelReplied, SideCalled
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.policy import Answer, Ask, Look, Save, Span, Want
from palimpsest.core.ports import Provider, Sendable
from palimpsest.core.view import View
from palimpsest.engine.session import Session
from palimpsest.wire.cards import ModelCard
from palimpsest.wire.encode import encode
from palimpsest.wire.request import Request

Result = TypeVar("Result")


async def carry_out(steps: Generator[Want, Answer, Result], session: Session, provider: Provider | None) -> Result:
    """Drive steps to what they return; a failure is thrown to where they wait."""
    try:
        want = next(steps)
        while True:
            try:
                given = await _answer(want, session, provider)
            except PalimpsestError as error:
                want = steps.throw(error)
            else:
                want = steps.send(given)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        steps.close()


def answer_without_model(session: Session, want: Want) -> Answer:
    """What can be answered with no model at hand; asking one is a `NoModel`."""
    match want:
        case Ask():
            raise NoModel(f"no model is at hand for {want.purpose}; set a key or name a model, or go on without", where=session.log.session)
        case Look():
            return session.environment.look(want)
        case Save(data=data, name=name):
            keep = session.environment.keep
            return keep(name, data) if name and keep is not None else session.environment.blobs.put(data)
        case Span(first=first, last=last):
            return tuple(session.log.reader.run(max(0, first), min(last, session.log.tip)))


async def _answer(want: Want, session: Session, provider: Provider | None) -> Answer:
    if not isinstance(want, Ask) or provider is None:
        return answer_without_model(session, want)
    model = session.named_card(want.model) if want.model else session.card
    reply = await whole_reply(provider, request_of(session, want, model))
    text = "\n".join(text_of(part) for part in reply.parts)
    session.record(SideCalled(want.purpose, model.name, reply.usage, text, want.prompt))
    return reply


def request_of(session: Session, want: Ask, model: ModelCard) -> Request:
    """The request that asks a model what a plan wants to know: the live one and one block more, unless the plan says otherwise."""
    view = session.log.view
    head = view.head if want.head else ()
    if want.system:
        head = (Item(f"{view.seq + 1}.0", "context", Text(want.system, "system"), "summariser"),)
    last = (Item(f"{view.seq + 1}.1", "user", Text(want.prompt)),) if want.prompt else ()
    asked = View(head=head, items=(*want.items, *last), call=view.call, model=model.name)
    # Where no tool is offered there is nothing to do side by side, and some servers want to be told so.
    params = replace(session.params, endpoint=want.endpoint, parallel=session.params.parallel and want.tools)
    if want.reply or params.max_tokens:
        params = replace(params, max_tokens=min(want.reply or params.max_tokens or model.reply, model.reply))
    if want.marks:
        params = replace(params, mark_rule=want.marks)
    if want.schema:
        params = replace(params, schema=msgspec.Raw(want.schema.encode()))
    return encode(asked, model, session.tools if want.tools else (), params, session.environment.blobs.get)


async def whole_reply(provider: Provider, request: Sendable) -> ModelReplied:
    """The last thing that a provider says."""
    reply: ModelReplied | None = None
    async for piece in provider.stream(request):
        if isinstance(piece, ModelReplied):
            reply = piece
    if reply is None:
        raise ProviderError("the provider ended without a reply")
    return reply
