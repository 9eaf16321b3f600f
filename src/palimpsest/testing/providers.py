"""The contract of providers: what a stream consists of, and that it can be abandoned."""

import asyncio

from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.events.deltas import Delta, PartialReply, TextDelta
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.ports import Provider, Sendable, closing
from palimpsest.stores.home import Home
from palimpsest.testing.laws import ContractBroken, require, require_equal
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import ModelCard, card


class ProviderContract:
    """The laws of a provider: define `make`, which returns one that answers `hello` with some text; `model` is the card to encode for.

    A provider of a remote model is best pointed at a recorded or loopback server: the laws make a few requests each.
    """

    model: ModelCard | str = "claude-sonnet-4-5"

    def make(self) -> Provider:
        """Return a provider that is ready for a few requests."""
        raise NotImplementedError

    def test_a_stream_ends_with_one_whole_reply(self) -> None:
        """Deltas come first; the last piece, and no other, is the reply."""
        pieces = asyncio.run(_pieces(self.make(), self._request()))
        require(bool(pieces) and isinstance(pieces[-1], ModelReplied), "the last piece is no ModelReplied")
        require_equal(sum(isinstance(piece, ModelReplied) for piece in pieces), 1, "the number of replies")

    def test_the_deltas_are_the_reply_in_pieces(self) -> None:
        """The texts of the deltas, if there are any, join to the text of the reply; no text comes in the deltas alone."""
        *deltas, reply = asyncio.run(_pieces(self.make(), self._request()))
        require(isinstance(reply, ModelReplied), "the last piece is no ModelReplied")
        streamed = "".join(piece.text for piece in deltas if isinstance(piece, TextDelta))
        whole = "".join(text_of(part) for part in getattr(reply, "parts", ()) if isinstance(part, Text))
        require(streamed in ("", whole), f"the deltas give {streamed!r}, the reply {whole!r}")

    def test_a_reply_can_be_recorded(self) -> None:
        """Its texts are of the assistant, its calls have names and arguments, and a log takes it."""
        reply = asyncio.run(_pieces(self.make(), self._request()))[-1]
        if not isinstance(reply, ModelReplied):
            raise ContractBroken("the last piece is no ModelReplied")
        require(all(part.role == "assistant" for part in reply.parts if isinstance(part, Text)), "a text is not of the assistant")
        require(all(part.tool for part in reply.parts if isinstance(part, ToolCall)), "a call has no tool")
        log = Home.in_memory().new()
        log.append(reply)
        require_equal(len(log.view.items), len(reply.parts), "the items of the recorded reply")

    def test_a_stream_can_be_abandoned_and_the_provider_used_again(self) -> None:
        """After its first piece a stream is closed, as an interrupt does; the next request is answered."""
        provider, request = self.make(), self._request()

        async def abandoned() -> list[Delta | ModelReplied]:
            arrived = PartialReply()
            async with closing(provider.stream(request)) as pieces:
                async for piece in pieces:
                    if not isinstance(piece, ModelReplied):
                        arrived.add(piece)
                    break
            return await _pieces(provider, request)

        require(isinstance(asyncio.run(abandoned())[-1], ModelReplied), "the second request has no reply")

    def _request(self) -> Sendable:
        log = Home.in_memory().new()
        log.append(UserSaid((Text("hello"),)))
        return encode(log.view, card(self.model) if isinstance(self.model, str) else self.model)


async def _pieces(provider: Provider, request: Sendable) -> list[Delta | ModelReplied]:
    async with closing(provider.stream(request)) as pieces:
        return [piece async for piece in pieces]
