"""A session in memory whose provider is the strict double, and one turn of it."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
from workplace import answered_by, work

from palimpsest.agent.calls import call
from palimpsest.agent.session import Session
from palimpsest.core.budget import Budget
from palimpsest.core.deltas import Delta
from palimpsest.core.events import ModelReplied, ToolReturned
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.ports import Sendable
from palimpsest.policies.profile import Profile
from palimpsest.providers.http import Redactor, status_error, with_betas
from palimpsest.testing.strict.provider import StrictProvider
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Tool
from palimpsest.wire.stream import decode_response, decoder

_HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}
TOOLS = (Tool("ls", "List."), Tool("cat", "Show."))
QUIET = Profile("test", (), lambda model: Budget(model.window))


class StrictlyAnswered:
    """A provider that asks the strict double in this process, by the card of each request."""

    def __init__(self, double: StrictProvider) -> None:
        self.double = double

    async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
        """Yield the deltas of the answer, then the reply; raise as a provider over HTTP does."""
        body = msgspec.json.decode(request.body, type=dict[str, object])
        model = card(str(body["model"]))
        path = "/v1/responses" if model.wire == "responses" else "/v1/messages"
        answered = self.double.answer(body, path=path, headers=with_betas(_HEADERS, getattr(request, "betas", ())))
        if answered.status != 200:
            raise status_error(answered.status, b"".join(answered.pieces), answered.headers, Redactor(()), model.provider)
        if not body.get("stream"):
            yield decode_response(model.wire, b"".join(answered.pieces), model)
            return
        streamed = decoder(model.wire, model)
        for piece in answered.pieces:
            for delta in streamed.deltas(piece):
                yield delta
        yield streamed.finish()


def strict_session(double: StrictProvider, model: str | ModelCard = "claude-opus-5-5", profile: Profile = QUIET) -> Session:
    """A new session that asks the double."""
    session = answered_by(work(profile, model), StrictlyAnswered(double))
    session.tools = TOOLS
    return session


def turn(session: Session) -> ModelReplied:
    """One request, with an answer to each call of its reply."""
    reply = asyncio.run(call(session))
    for part in reply.parts:
        if isinstance(part, ToolCall):
            session.log.append(ToolReturned(ToolResult(part.call_id, (Text(f"output of {part.call_id}"),)), tool=part.tool))
    return reply
