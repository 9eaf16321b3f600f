"""One conversation behind the gateway: its requests as its profile edits them, its replies, and its two bills, all in its log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.apps.gateway.given import GivenRequest, RequestBlocks, RequestReader, lifetime_of, with_breakpoint
from palimpsest.audit.pricing.bill import HOUR_MS, LOOK_BACK_BLOCKS
from palimpsest.audit.pricing.two_bills import BilledRequest, GatewayBill, PricedCall, TwoBills, newest_bill
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Body, Failed, ModelReplied, Titled, UserSaid, ViewEdited
from palimpsest.core.items import Text
from palimpsest.core.view import View
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.conversation.following import end_call
from palimpsest.foreign.claude.speakers import source_of
from palimpsest.mirror.elements import OWNER
from palimpsest.policies.jobs.titles import title_of
from palimpsest.stores.home import AnyHome
from palimpsest.stores.logs.undo_queue import UndoQueue
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.models.prices import simulated_cost
from palimpsest.wire.past_requests import card_on_wire
from palimpsest.wire.request import MAX_BREAKPOINTS
from palimpsest.wire.stream import decode_response, decoder

Mode: TypeAlias = Literal["watch", "lossless", "palimpsest", "thrifty"]
PROFILES: Final[Mapping[Mode, str]] = {"watch": "none", "lossless": "lossless", "palimpsest": "gateway", "thrifty": "gateway-thrifty"}


class Exchange(NamedTuple):
    """A request on its way: as it was given, the messages that are sent, its bytes, and how many edits it shows for the first time.

    `lifetime` is that of its cache entries if it is not the client's, `anchor` the number of the message with a breakpoint that is ours.
    """

    given: GivenRequest
    messages: Sequence[Any]
    body: bytes
    edits: int = 0
    lifetime: str = ""
    anchor: int | None = None


class RecordedConversation:
    """A conversation with its log; one thread at a time uses it."""

    def __init__(self, conversation: Conversation, wire: WireName, mode: Mode, home: AnyHome) -> None:
        self.conversation = conversation
        self.wire = wire
        self.mode: Mode = mode
        session = conversation.session
        self.bill = newest_bill(session.log) or GatewayBill(mode)
        self._card = card_on_wire(session.card, wire)
        self._clock = home.clock
        self._undos = UndoQueue(home.folder, conversation.id)
        self._reader = RequestReader()
        self._blocks = RequestBlocks(self._card.name)
        self._bills = TwoBills(self._card)
        self._lifetime = ""
        self._needs_title = not session.log.view.items
        self._followed: Exchange | None = None
        self._steady_parts: dict[int, Any] = {}
        if self._card.prices.input:
            session.two_bills = lambda: (self.bill.usd or 0.0, self.bill.usd_without or 0.0)
            session.may_edit = self._may_edit

    def follow(self, body: bytes, fields: Mapping[str, Raw]) -> Exchange:
        """Record what is new in a request and return it with the edits made before. Raises `BadInput` if the messages cannot be read."""
        self._undo_queued()
        given = self._reader.read(self.wire, body, fields)
        before = self.conversation.session.log.tip
        lifetime = "" if self.mode == "watch" else self._chosen_lifetime(given)
        self._followed = None
        messages = self.conversation.follow(given.messages, tools=given.tools, system=self._steady_system(given))
        if self._needs_title:
            self._add_title(before)
        if self.mode == "watch":
            return Exchange(given, given.messages, body)
        self._followed = Exchange(given, messages, body, self._edits_since(before), lifetime)
        return self._written(self._followed)

    def _steady_system(self, given: GivenRequest) -> Any:
        """The system prompt with one text for each part that changes with every request and that the provider does not look at.

        Else each request would be taken for one whose cache is lost, and its prompt recorded again.
        """
        if not isinstance(given.system, list) or not self._bills.ignored:
            return given.system
        first = 1 if given.tools else 0
        return [
            self._steady_parts.setdefault(place, part) if place in self._bills.ignored else part
            for place, part in enumerate(given.system, first)
        ]

    def plan(self, exchange: Exchange, in_time: Callable[[], bool]) -> Exchange:
        """Return a request that was followed with new edits too; once `in_time` returns false, nothing is edited any more."""
        before = self.conversation.session.log.tip
        messages = self.conversation.plan(in_time)
        followed = self._followed
        if messages is None or followed is None or messages is followed.messages:
            return exchange
        return self._written(followed._replace(messages=messages, edits=followed.edits + self._edits_since(before)))

    def _may_edit(self, view: View) -> bool:
        """Whether the request may be sent as a view shows it: that makes it cheaper, or what it costs more is within what may be lost.

        The price of an edit is a small difference of large sizes, so that they are those which the provider has reported, and what they may
        be off by is added. Before the first report nothing is known of what is cached, unless nothing can be.
        """
        followed = self._followed
        messages = None if followed is None else self.conversation.shown(view)
        if followed is None or messages is None or not (self._bills.has_reports or self._is_cold()):
            return False
        now, bills = self._clock.now(), self._bills
        unedited, edited = (self._blocks_of(self._anchored(each)) for each in (followed, followed._replace(messages=messages)))
        given = self._blocks.of(followed.given, followed.given.messages)
        (dollars, direct), (before, _) = bills.costs(given, edited, now), bills.costs(given, unedited, now)
        dollars += bills.doubt(unedited, edited)
        paid, without = self.bill.usd or 0.0, self.bill.usd_without or 0.0
        loss = self.conversation.session.profile.cache.loss
        return dollars <= before or paid + dollars <= (1 + loss) * (without + direct)

    def _is_cold(self) -> bool:
        """Whether the last call of the conversation is so long ago that no provider holds anything of it."""
        called = self.conversation.session.derived.cache.value().called
        return called is not None and self._clock.now() - called > HOUR_MS

    def _written(self, exchange: Exchange) -> Exchange:
        """The exchange with its bytes, and with a breakpoint at the end of the cached prefix if those of the client do not find it."""
        anchored = self._anchored(exchange)
        return anchored._replace(body=exchange.given.body_with(anchored.messages, exchange.lifetime))

    def _anchored(self, exchange: Exchange) -> Exchange:
        given, messages, lifetime = exchange.given, exchange.messages, exchange.lifetime
        place = self._anchor(given, messages, lifetime)
        if place is None:
            return exchange._replace(anchor=None)
        message, block = place
        marked = with_breakpoint(messages[message], lifetime or self._lifetime, block)
        return exchange._replace(messages=[*messages[:message], marked, *messages[message + 1 :]], anchor=message)

    def _blocks_of(self, exchange: Exchange) -> BilledRequest:
        return self._blocks.of(exchange.given, exchange.messages, exchange.lifetime)

    def _add_title(self, event: int) -> None:
        """Title the session by the first text of its user since an event; Claude Code writes reminders in front of that."""
        said = [part for body in self._bodies_since(event) if isinstance(body, UserSaid) for part in body.parts if isinstance(part, Text)]
        title = next((title_of(part.text) for part in said if not source_of(part)), "")
        if title:
            self._needs_title = False
            self.conversation.session.log.append(Titled(title, by="gateway"))

    def _edits_since(self, event: int) -> int:
        return sum(isinstance(body, ViewEdited) and body.by != OWNER for body in self._bodies_since(event))

    def _bodies_since(self, event: int) -> Iterator[Body]:
        log = self.conversation.session.log
        return (log.event(seq).body for seq in range(event + 1, log.tip + 1))

    def _anchor(self, given: GivenRequest, messages: Sequence[Any], lifetime: str) -> tuple[int, int] | None:
        """The message and block at which the cached prefix ends, if no breakpoint finds it, one is free, and it can be set there."""
        if self._card.cache != "breakpoints" or not 0 < given.breakpoints < MAX_BREAKPOINTS:
            return None
        request = self._blocks.of(given, messages, lifetime)
        end = self._bills.cached_end(request, self._clock.now())
        if end is None or any(0 <= point.at - end < LOOK_BACK_BLOCKS for point in request.breakpoints):
            return None
        place = request.place_of(end)
        return place if place is not None and with_breakpoint(messages[place[0]], "", place[1]) is not None else None

    def observe(self, exchange: Exchange, reply: bytes, *, streamed: bool, sent_as_given: bool = False) -> PricedCall | None:
        """Record the reply to a request, and return its bill; `None` if the reply cannot be read or says nothing of its usage.

        `sent_as_given` says that the request was sent as the client gave it, whatever was prepared.
        """
        try:
            decoded = self._decoded(reply, streamed=streamed)
        except PalimpsestError as error:
            self.note("reply", error.kind, error.message)
            return None
        self.conversation.observe(decoded if streamed else msgspec.json.decode(reply))
        if exchange.anchor is not None and not sent_as_given:
            why = f"a cache breakpoint after message {exchange.anchor + 1}, where the cached prefix ends"
            self.conversation.session.log.append(ViewEdited((), "cache_breakpoint", why, "before_call"))
        if not decoded.usage.prompt:
            return None
        given = self._blocks.of(exchange.given, exchange.given.messages)
        is_same = sent_as_given or (exchange.messages is exchange.given.messages and not exchange.lifetime)
        sent = given if is_same else self._blocks_of(exchange)
        call = self._bills.add(given, sent, decoded.usage, self._clock.now())
        self.bill = self.bill.plus(call)
        self.conversation.session.log.append(self.bill.noted())
        return call

    def _chosen_lifetime(self, given: GivenRequest) -> str:
        """Choose the lifetime of the cache entries by the pauses so far; empty if it is the one that the client has chosen."""
        session = self.conversation.session
        own = next((found for part in _marked_parts(given) if (found := lifetime_of(part))), "")
        if not own or self._card.cache != "breakpoints":
            return ""
        session.params = replace(session.params, ttl="1h" if own == "1h" else "5m")
        chosen = session.request_params.ttl
        if chosen != self._lifetime and (chosen != own or self._lifetime):
            why = f"cache entries live for {'an hour' if chosen == '1h' else 'five minutes'} from here on, by the pauses so far"
            end_call(session.log)
            session.log.append(ViewEdited((), "cache_lifetime", why, "before_call"))
        self._lifetime = chosen
        return "" if chosen == own else chosen

    def add_read(self, reply: ModelReplied) -> None:
        """Add a read that kept the cache alive to the bill; without the gateway it would not have been paid."""
        self.bill = replace(self.bill, usd=(self.bill.usd or 0.0) + simulated_cost(reply.usage, self._card).total)

    def note(self, what: str, kind: str, message: str) -> None:
        """Record that something failed: the request was sent as it was given, or its reply was not understood."""
        with suppress(PalimpsestError, OSError):
            self.conversation.session.log.append(Failed(f"gateway {what}", kind, message))

    def close(self) -> None:
        """Make the log durable and close it."""
        self.conversation.close()

    def _decoded(self, reply: bytes, *, streamed: bool) -> ModelReplied:
        if not streamed:
            return decode_response(self.wire, reply, self._card)
        stream = decoder(self.wire, self._card)
        stream.feed(reply)
        return stream.finish()

    def _undo_queued(self) -> None:
        for undo in self._undos.take():
            try:
                self.conversation.undo(undo.event, edits=undo.edits, why=undo.why)
            except PalimpsestError as error:
                self.note("undo", error.kind, error.message)


def _marked_parts(given: GivenRequest) -> Iterator[Any]:
    """The parts of a request that may have breakpoints, the newest message first."""
    yield from reversed(given.messages)
    yield from given.system if isinstance(given.system, list) else ()
    yield {"tools": given.tools}
