"""The conversations that one process or thread pool records: their requests as the profile edits them, their replies and two bills."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pal.gateway.routing import ConversationName, GivenRequest, RequestBlocks, RequestReader, fields_of, lifetime_of, with_breakpoint
from pal.gateway.thinking import (
    DROP,
    FittedList,
    ListThinking,
    SeenThinking,
    ThinkingMismatch,
    ThinkingMode,
    asked_behavior,
    dropping_field,
    has_thinking,
    thinking_records,
)
from palimpsest.agent.jobs import job_situation
from palimpsest.audit.cache import HOUR_MS, Breakpoint
from palimpsest.audit.prices import KEEP_ALIVE
from palimpsest.audit.two_bills import (
    UNKNOWN_CALL,
    BilledRequest,
    CallRecord,
    CallRecorder,
    GatewayBill,
    LedgerCall,
    PricedCall,
    TwoBills,
    newest_bill,
    newest_calls,
)
from palimpsest.core.errors import BadEdit, BadInput, Locked, PalimpsestError
from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    EventRef,
    Failed,
    InputTransformation,
    JobRan,
    ModelReplied,
    Titled,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Edit, Fold, Insert, Mask, ReasoningLost, Text, Unmask, seq_of
from palimpsest.core.ledger import is_measured, job_purpose, priced_apart
from palimpsest.core.plans import Edits
from palimpsest.core.text import counted
from palimpsest.exchange.claude.lines import source_of
from palimpsest.follow.conversation import Conversation
from palimpsest.follow.output import OWNER
from palimpsest.follow.preparing import end_call
from palimpsest.policies.jobs import KeepAlive, title_of
from palimpsest.stores.home import Home
from palimpsest.stores.undo_queue import UndoQueue
from palimpsest.wire.anthropic import MessageAssembler
from palimpsest.wire.binding import without_thinking
from palimpsest.wire.encode import card_on_wire, is_bound
from palimpsest.wire.json_reading import Json, is_json, parse, tables_at, text
from palimpsest.wire.models import Tariff, WireName, price_day, recorded_card, total_usd
from palimpsest.wire.request import MAX_BREAKPOINTS, is_given
from palimpsest.wire.responses import ResponseAssembler
from palimpsest.wire.stream import Decoder, assembler, decode_object, decode_response

Mode: TypeAlias = Literal["watch", "lossless", "palimpsest", "thrifty"]
PROFILES: Final[Mapping[Mode, str]] = {"watch": "none", "lossless": "lossless", "palimpsest": "gateway", "thrifty": "gateway-thrifty"}
# The share of what may be lost that edits use. The rest is for what the second bill may be off by.
_USED_LOSS: Final = 0.8
# A client continues the newest reply, or asks again after the one before.
_MOST_HELD: Final = 4
_encode = msgspec.json.encode
_DROPPED: Final = "thinking_dropped"
_PREFIX_REASON: Final = "prefix_binding_mismatch"
# Roles of those who are not the model.
_ASKING: Final = frozenset({"user", "system", "developer", "tool"})


class Exchange(NamedTuple):
    """A request on its way: as it was given, the messages that are sent, its bytes, and how many edits it shows for the first time.

    `lifetime` is that of its cache entries if it is not the client's, `anchor` the number of the message with a breakpoint that is ours.
    `misfits` are the keys of thinking that no longer fits because of us; the messages are without it, unless the provider `is_asked` to
    drop it or it is sent all the same. `paths` are those of the client's thinking by those of the same thinking as it is sent, `None` if
    they are the same. A request `is_recovered` if the provider had refused its thinking.
    """

    given: GivenRequest
    messages: Sequence[Any]
    body: bytes
    edits: int = 0
    lifetime: str = ""
    anchor: int | None = None
    misfits: frozenset[str] = frozenset()
    is_asked: bool = False
    paths: Mapping[str, str] | None = None
    is_recovered: bool = False


class _TriedRequest(NamedTuple):
    """The messages of a request that may be sent, and its blocks with their measured sizes."""

    messages: Sequence[Any]
    blocks: BilledRequest

    def until(self, block: int, other: Self) -> Self:
        """This request up to a block, and another one that has as many blocks in each message from there on."""
        (messages, one), (others, two) = self, other
        place = one.place_of(block)
        end = 0 if place is None else place[0]
        points = [*(point for point in one.breakpoints if point.at < block), *(point for point in two.breakpoints if point.at >= block)]
        blocks = one._replace(blocks=[*one.blocks[:block], *two.blocks[block:]], breakpoints=points)
        return type(self)([*messages[:end], *others[end:]], blocks)


class RecordedConversation:
    """A conversation with its log; one thread at a time uses it."""

    def __init__(
        self,
        conversation: Conversation,
        wire: WireName,
        mode: Mode,
        home: Home,
        *,
        thinking_mode: ThinkingMode = "strip",
        seen: SeenThinking | None = None,
    ) -> None:
        self.conversation = conversation
        self.wire = wire
        self.mode: Mode = mode
        session = conversation.session
        self.bill = newest_bill(session.log) or GatewayBill(mode)
        self._card = card_on_wire(session.card, wire)
        self._home = home
        self._clock = home.clock
        self._undos = UndoQueue(home, conversation.id)
        self._reader = RequestReader()
        self._bills, self._calls = TwoBills(self._card), CallRecorder()
        # Whether what the same requests would have cost directly cannot be known: lists that were never seen may be cached.
        self._is_unknown = self.bill.unknown_without > 0
        # The newest event with messages of which the provider may hold other continuations, which were never seen.
        self._unseen = -1
        for record in newest_calls(session.log):
            self._bills.add(*self._calls.restored(record))
            self._bills.unsure, self._unseen = record.unsure, record.unseen
        self._lifetime = ""
        self._needs_title = not session.log.view.items
        self._thinking_mode = thinking_mode
        self._thinking = ListThinking(thinking_records(session.log), seen) if is_bound(self._card) else None
        self._blocks = (
            RequestBlocks(self._card.name) if self._thinking is None else RequestBlocks(self._card.name, self._thinking.tokens_of)
        )
        self._followed: Exchange | None = None
        self._reading: Exchange | None = None
        self._steady_parts: dict[int, Any] = {}
        # By the ids of the newest replies.
        self._held: dict[str, tuple[GivenRequest, Json]] = {}
        if self._card.prices.input:
            session.two_bills = lambda: (self.bill.usd or 0.0, self.bill.usd_without or 0.0)
            session.affordable = self._affordable
            session.cheapest = self._cheapest

    def follow(self, body: bytes, fields: Mapping[str, Raw], previous: str = "") -> Exchange:
        """Record what is new in a request and return it with the edits made before. Raises `BadInput` if the messages cannot be read.

        With `previous`, the messages are what follows this reply in a list that the provider holds.
        """
        self._undo_queued()
        given = self._reader.read(self.wire, body, fields)
        if previous:
            given = self._continued(given, previous)
        before = self.conversation.session.log.tip
        lifetime = "" if self.mode == "watch" else self._chosen_lifetime(given)
        apart, session = priced_apart(given.fields), self.conversation.session
        session.params = replace(session.params, extra=Raw(msgspec.json.encode(apart)) if apart else NULL)
        self._followed = None
        self._reading = Exchange(given, given.messages, body, 0, lifetime)
        learned = None if self._thinking is None else self._thinking.learn(given)
        messages = self.conversation.follow(given.messages, tools=given.tools, system=self._steady_system(given))
        if self._has_unseen_replies(given):
            # Behind an edit the provider may hold what was sent without us, and here that is not cached.
            self._unseen = session.log.tip
            self._is_unknown = self._is_unknown or messages is not given.messages
        if learned is not None:
            session.log.append(learned.noted())
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
        ignored, steady = self._bills.ignored, self._steady_parts
        return [steady.setdefault(number, part) if number in ignored else part for number, part in enumerate(given.system)]

    @property
    def newest_reply(self) -> str:
        """The id of the newest reply; empty without one."""
        return next(reversed(self._held), "")

    def holds(self, reply: str) -> bool:
        """Whether the list up to a reply is at hand."""
        return reply in self._held

    def _continued(self, given: GivenRequest, previous: str) -> GivenRequest:
        """The request with the list that the provider holds up to a reply; as it is, which is noted, if that is not known."""
        if previous not in self._held:
            message = f"the provider holds the conversation up to {previous[:80]}, which is not known here: only what follows is recorded"
            self.note("request", "thread", message)
            return given
        before, reply = self._held[previous]
        return given._replace(
            messages=[*before.messages, reply, *given.messages],
            raw_messages=[*before.raw_messages, _encode(reply), *given.raw_messages],
            system=given.system if "system" in given.fields else before.system,
            tools=given.tools if "tools" in given.fields else before.tools,
        )

    def plan(self, exchange: Exchange, in_time: Callable[[], bool]) -> Exchange:
        """Return a request that was followed with new edits too; once `in_time` returns false, nothing is edited any more."""
        before = self.conversation.session.log.tip
        messages = self.conversation.plan(in_time)
        followed = self._followed
        if messages is None or followed is None or messages is followed.messages:
            return exchange
        return self._written(followed._replace(messages=messages, edits=followed.edits + self._edits_since(before)))

    def _affordable(self, edits: Edits) -> Edits:
        """The edits, or the newest of them, with which the request may be sent; none if not even the newest may be made.

        It may be sent if that makes it cheaper, or if what it costs more is within what may be lost. The price of an edit is a small
        difference of large sizes, so that they are those which the provider has reported, and what they may be off by is added. Before the
        first report nothing is known of what is cached, unless nothing can be. What lists that were never seen begin with stays as it is:
        whatever the provider holds of them is then found with our edits as without them.
        """
        followed, bills, now = self._followed, self._bills, self._clock.now()
        if followed is None or not (bills.has_reports or self._is_cold()) or self._is_unknown:
            return ()
        if self._unseen >= 0 and not bills.is_steady(self._blocks.of(followed.given, followed.given.messages)):
            return ()
        edits = tuple(edit for edit in edits if _oldest(edit) > self._unseen)
        unedited = self._tried(followed, followed.messages)
        sent_unedited = self._with_anchor(followed, unedited)
        before, limit = bills.cost_sent(sent_unedited, now), self._limit(followed, now)
        whole: _TriedRequest | None = None
        places: Sequence[int] = ()
        for kept in _newest_halves(edits):
            try:
                tried = unedited.until(places[-len(kept)], whole) if whole is not None and places else self._trial(followed, kept)
            except BadEdit:
                # The gate refuses it, with the reason.
                return kept
            if tried is None:
                continue
            if kept is edits:
                whole, places = tried, self._places_of(edits, unedited, tried)
            request = self._with_anchor(followed, tried)
            if bills.cost_sent(request, now) + bills.doubt(sent_unedited, request, now) <= max(before, limit):
                return kept
        return ()

    def _has_unseen_replies(self, given: GivenRequest) -> bool:
        """Whether a list has replies that were given to none of the lists before, so that it was begun or gone on with elsewhere."""
        request, roles = self._blocks.of(given, given.messages), [text(each, "role") if is_json(each) else "" for each in given.messages]
        ends = (*request.starts[1:], len(request.blocks))
        known = [self._bills.has_seen(request.blocks[start:end]) for start, end in zip(request.starts, ends, strict=True)]
        new = [at for at, role in enumerate(roles) if role not in _ASKING and not known[at]]
        return bool(new) and not (any(known[: new[0]]) and _ASKING.isdisjoint(roles[new[0] : new[-1]]))

    def _cheapest(self, ways: Sequence[Sequence[Sequence[Any]]], shared: int) -> tuple[int, int]:
        """The way in which the list goes on after the client went back, and the number of its list that is sent.

        Of a way that is the list with the most edits that costs no more than the cheapest, or what may be lost.
        """
        reading, bills, now = self._reading, self._bills, self._clock.now()
        # To and fro between lists of which some were never seen, neither bill is certain.
        self._is_unknown = self._is_unknown or self._unseen >= 0
        if reading is None or self.mode == "watch" or not bills.has_reports:
            return len(ways) - 1, len(ways[-1]) - 1
        limit = self._limit(reading, now)
        chosen: list[tuple[float, int, int]] = []
        for way, lists in enumerate(ways):
            requests = [self._with_anchor(reading, self._tried(reading, messages)) for messages in lists]
            costs = [bills.cost_sent(request, now) for request in requests]
            least = min(costs)
            cheapest = requests[costs.index(least)]
            fits = (n for n, cost in enumerate(costs) if cost <= least or cost + bills.doubt(cheapest, requests[n], now) <= limit)
            number = max(fits)
            chosen.append((costs[number], way, number))
        return min(chosen)[1:]

    def _limit(self, exchange: Exchange, now: int) -> float:
        """The dollars that a request may cost, by what all of them would have cost as they were given."""
        given = self._bills.sized(self._blocks.of(exchange.given, exchange.given.messages))
        without = (self.bill.usd_without or 0.0) - self._bills.unsure + self._bills.cost_given(given, now)
        return (1 + _USED_LOSS * self.conversation.session.profile.cache.loss) * without - (self.bill.usd or 0.0)

    def _trial(self, followed: Exchange, edits: Edits) -> _TriedRequest | None:
        """The request with edits that are not made yet; `None` if the provider would refuse it. Raises `BadEdit` as the log does."""
        messages = self.conversation.shown(self.conversation.session.log.trial(edits))
        return None if messages is None else self._tried(followed, messages)

    def _tried(self, exchange: Exchange, messages: Sequence[Any]) -> _TriedRequest:
        fitted = self._fitted(exchange.given, messages).messages
        return _TriedRequest(fitted, self._bills.sized(self._blocks.of(exchange.given, fitted, exchange.lifetime)))

    def _fitted(self, given: GivenRequest, messages: Sequence[Any]) -> FittedList:
        """The request as its thinking fits it; a client that asks for it has the provider drop what does not fit, and not us."""
        if self._thinking is None or self.mode == "watch" or asked_behavior(given.fields) == DROP:
            return FittedList(messages)
        fitted = self._thinking.fitted(given, messages, keeps=self._thinking_mode == "keep")
        return FittedList(messages, fitted.misfits) if self._is_asked(given) else fitted

    def _is_asked(self, given: GivenRequest) -> bool:
        """Whether the provider is asked to drop what does not fit. A client that has decided that itself is not overruled."""
        return self._thinking_mode == "ask" and not asked_behavior(given.fields) and dropping_field(given.fields) is not None

    def _places_of(self, edits: Edits, unedited: _TriedRequest, trial: _TriedRequest) -> list[int]:
        """The block that each edit changes, if each changes one in its place and they stand in order; else empty.

        Then the request with the newest edits only is the unedited one up to the first of their blocks, and the trial from there on.
        """
        one, other = unedited.blocks, trial.blocks
        if one.starts != other.starts or len(one.blocks) != len(other.blocks):
            return []
        named = [edit.ids[0] for edit in edits if isinstance(edit, Mask) and len(edit.ids) == 1]
        wanted = frozenset(named)
        ordered = [item.id for item in self.conversation.session.log.view.items if item.id in wanted]
        changed = [at for at, (before, after) in enumerate(zip(one.blocks, other.blocks, strict=True)) if before[0] != after[0]]
        return changed if len(changed) == len(edits) and named == ordered else []

    def _with_anchor(self, followed: Exchange, tried: _TriedRequest) -> BilledRequest:
        """The blocks of a request with the breakpoint that would be set in it."""
        end = self._anchor(followed.given, tried)
        if end is None:
            return tried.blocks
        is_long = (followed.lifetime or self._lifetime) == "1h"
        points = sorted((*tried.blocks.breakpoints, Breakpoint(end, is_long)), key=lambda point: point.at)
        return tried.blocks._replace(breakpoints=points)

    def _is_cold(self) -> bool:
        """Whether the last call of the conversation is so long ago that no provider holds anything of it."""
        called = self.conversation.session.derived.cache.value().called
        return called is not None and self._clock.now() - called > HOUR_MS

    def _written(self, exchange: Exchange) -> Exchange:
        """The exchange with its bytes: without thinking that no longer fits, and with a breakpoint that finds what is cached."""
        given, thinking = exchange.given, self._thinking
        fitted = self._fitted(given, exchange.messages)
        is_asked = bool(fitted.misfits) and self._is_asked(given)
        found = self._anchored(exchange._replace(messages=fitted.messages, misfits=fitted.misfits, is_asked=is_asked))
        paths: dict[str, str] | None = None
        if thinking is not None and found.messages is not given.messages:
            places = {key: path for path, key in thinking.keys_at(given, given.messages).items()}
            sent = thinking.keys_at(given, found.messages)
            paths = {path: places[key] for path, key in sent.items() if key in places}
            paths = None if all(path == place for path, place in paths.items()) and not is_asked else paths
        more = {"thinking": dropping_field(given.fields) or b"null"} if is_asked else {}
        return found._replace(body=given.body_with(found.messages, exchange.lifetime, more), paths=paths)

    def _anchored(self, exchange: Exchange) -> Exchange:
        given, messages, lifetime = exchange.given, exchange.messages, exchange.lifetime
        # What does not fit is left out already.
        tried = _TriedRequest(messages, self._bills.sized(self._blocks.of(given, messages, lifetime)))
        end = self._anchor(given, tried)
        place = None if end is None else tried.blocks.place_of(end)
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

    def _anchor(self, given: GivenRequest, tried: _TriedRequest) -> int | None:
        """The block at which the cached prefix ends, if no breakpoint finds it, one is free, and it can be set there."""
        if self._card.cache != "breakpoints" or not 0 < given.breakpoints < MAX_BREAKPOINTS:
            return None
        messages, request = tried
        end = self._bills.cached_end(request, self._clock.now())
        if end is None or request.finds(end):
            return None
        place = request.place_of(end)
        return end if place is not None and with_breakpoint(messages[place[0]], "", place[1]) is not None else None

    def observe(self, exchange: Exchange, reply: bytes, *, streamed: bool, sent_as_given: bool = False) -> PricedCall:
        """Record the reply to a request, and return its bill, which is unknown if the reply cannot be read or does not say its usage.

        `sent_as_given` says that the request was sent as the client gave it, whatever was prepared.
        """
        try:
            decoded, message = self._decoded(reply, streamed=streamed)
        except PalimpsestError as error:
            self.note("reply", error.kind, error.message)
            end_call(self.conversation.session.log)
            return self._billed(UNKNOWN_CALL)
        self.conversation.observe(decoded if streamed else message)
        self._hold(exchange.given, message)
        content = tables_at(message, "output" if self.wire == "responses" else "content")
        lost = self._record_thinking(exchange, decoded, content, sent_as_given=sent_as_given)
        if exchange.anchor is not None and not sent_as_given:
            why = f"a cache breakpoint after message {exchange.anchor + 1}, where the cached prefix ends"
            self.conversation.session.log.append(ViewEdited((), "cache_breakpoint", why, "before_call"))
        if not decoded.usage.prompt:
            # A reply that is only a compaction has its bill beside it.
            return self._billed(PricedCall().with_more(self._usd_beside(decoded)))
        given = self._blocks.of(exchange.given, exchange.given.messages)
        is_same = sent_as_given or (exchange.messages is exchange.given.messages and not exchange.lifetime)
        sent = given if is_same else self._blocks_of(exchange)
        billed = LedgerCall(given, sent, decoded.usage, self._clock.now())
        call = self._bills.add(*billed).with_more(self._usd_beside(decoded))
        call = replace(call, reasoning_lost=lost, recoveries=int(exchange.is_recovered))
        record = self._calls.record(billed, self._unseen, self._bills.unsure)
        return self._billed(replace(call, usd_without=None) if self._is_unknown and self._bills.differ else call, record)

    def unanswered(self, why: str) -> None:
        """Record that the provider refused the last request, or could not be reached: that costs nothing."""
        log = self.conversation.session.log
        if log.open_call is not None:
            log.append(Failed("call", "provider", why, call=log.open_call))

    def _billed(self, call: PricedCall, record: CallRecord | None = None) -> PricedCall:
        bill = self.bill.plus(call)
        self.bill = replace(bill, usd_without=None) if bill.unknown_without else bill
        self.conversation.session.log.append(self.bill.noted(record))
        return call

    def _usd_beside(self, reply: ModelReplied) -> float | None:
        """The dollars that a reply cost beside its message, and as a fallback more than of the asked model; `None` if they are unknown."""
        if not is_measured(reply) or reply.tier or is_given(self.conversation.session.params.extra):
            return None
        usd = [self._usd(each.usage, each.model) for each in reply.beside]
        if reply.model != self._card.name and reply.usage.prompt:
            own, other = self._usd(reply.usage), self._usd(reply.usage, reply.model)
            usd.append(None if own is None or other is None else other - own)
        return total_usd(usd)

    def _usd(self, usage: Usage, model: str = "") -> float | None:
        """The dollars of a usage at the prices of a model, by default that of the request; `None` if they or the usage are not known."""
        card = recorded_card(model, self._home.cards()) if model else self._card
        tariff = Tariff.of(card, price_day(self._clock.now()))
        return tariff.bill(usage).total if tariff is not None and usage.prompt else None

    def recovered(self, exchange: Exchange, refusal: ThinkingMismatch, *, sent_as_given: bool) -> Exchange | None:
        """Record that the provider refused the thinking of a request, and return the request without any of it.

        `None` if the refusal is not caused by us: nothing was edited, the client has decided itself what happens, or there is no thinking.
        """
        thinking, given = self._thinking, exchange.given
        messages = given.messages if sent_as_given else exchange.messages
        if thinking is None or self.mode == "watch" or asked_behavior(given.fields) or not has_thinking(messages):
            return None
        if thinking.read(given, messages) == thinking.read(given, given.messages) and not thinking.fitted(given, messages).misfits:
            return None
        cause = f" ({refusal.cause})" if refusal.cause else ""
        self.note("thinking", "bound", f"{refusal.path or 'the list'}{cause}: {refusal.message}; it is sent once more without any thinking")
        bare = without_thinking(messages)
        tried = exchange._replace(messages=bare, misfits=frozenset(thinking.keys_at(given, messages).values()), is_recovered=True)
        anchored = self._anchored(tried._replace(is_asked=False))
        return anchored._replace(body=given.body_with(anchored.messages, exchange.lifetime), paths={})

    def counted(self, body: bytes, fields: Mapping[str, Raw]) -> bytes:
        """Return a request that asks for the tokens of the client's list without the thinking that does not fit it because of us."""
        given = RequestReader().read(self.wire, body, fields)
        return given.body_with(self._fitted(given, given.messages).messages)

    def _record_thinking(self, exchange: Exchange, decoded: ModelReplied, content: Sequence[Json], *, sent_as_given: bool) -> ReasoningLost:
        """Record what the thinking of a reply is bound to, and which thinking was left out of its request; return what that has lost."""
        thinking, given = self._thinking, exchange.given
        if thinking is None:
            return ReasoningLost()
        messages = given.messages if sent_as_given else exchange.messages
        keys = thinking.keys_at(given, messages)
        reported = {keys[each.path]: each for each in decoded.transformations if each.type == _DROPPED and each.path in keys}
        if exchange.is_asked or asked_behavior(given.fields) == DROP:
            self._compare_drops(keys, thinking.expected_drops(given, messages), reported)
        caused = exchange.misfits | thinking.fitted(given, messages).misfits
        out = frozenset(reported) | (exchange.misfits - frozenset(keys.values()))
        lost = self._note_left_out(thinking, exchange, out, caused, frozenset(keys.values()))
        bound = thinking.replied(given, messages, frozenset(reported), content, decoded.usage.reasoning)
        for record in (thinking.withdraw(exchange.misfits) if exchange.is_recovered else None, bound):
            if record is not None:
                self.conversation.session.log.append(record.noted())
        return lost

    def _compare_drops(self, keys: Mapping[str, str], expected: frozenset[str], reported: Mapping[str, InputTransformation]) -> None:
        """Record where the provider has dropped other thinking than our rule expects: one of the two is wrong."""
        found = frozenset(key for key, each in reported.items() if each.reason == _PREFIX_REASON)
        if found != expected:
            paths = [", ".join(path for path, key in keys.items() if key in each) or "none" for each in (found, expected)]
            self.note("thinking", "binding", f"the provider dropped other thinking than expected: {paths[0]}; expected: {paths[1]}"[:1_000])

    def _note_left_out(
        self, thinking: ListThinking, exchange: Exchange, out: frozenset[str], caused: frozenset[str], sent: frozenset[str]
    ) -> ReasoningLost:
        """Record which thinking is newly left out, and which is sent again; return the reasoning that edits of ours have lost."""
        log, new, back = self.conversation.session.log, out - thinking.left_out, (thinking.left_out - out) & sent
        if new:
            why = "no longer fit, because something before them was edited"
            if exchange.is_recovered:
                why = "were sent and refused by the provider"
            elif new <= sent:
                why = "were dropped by the provider"
            said = f"{counted(len(new), 'thinking block')} {why}; without them from here on"
            log.append(ViewEdited((), "thinking", said, "before_call", reasoning_lost=thinking.lost(new & caused)))
        if back:
            log.append(ViewEdited((), "thinking", f"{counted(len(back), 'thinking block')} fit again and are sent again", "before_call"))
        if new or back:
            log.append(thinking.leave_out(out).noted())
        return thinking.lost(new & caused)

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

    def add_read(self, reply: ModelReplied) -> float | None:
        """Add a read that kept the cache alive to the bill, and return its dollars."""
        usd = None if reply.tier else self._usd(reply.usage)
        self.bill = self.bill.with_read(usd)
        return usd

    def note(self, what: str, kind: str, message: str) -> None:
        """Record that something failed: the request was sent as it was given, or its reply was not understood."""
        with suppress(PalimpsestError, OSError):
            self.conversation.session.log.append(Failed(f"gateway {what}", kind, message))

    def close(self) -> None:
        """Make the log durable and close it."""
        self.conversation.close()

    def _decoded(self, reply: bytes, *, streamed: bool) -> tuple[ModelReplied, Json]:
        """A reply, and the object that it is, or would be if it were not streamed; empty where no one needs that of a stream."""
        if not streamed:
            message = parse(reply, self._card.provider)
            return decode_object(self.wire, message, self._card), message
        events = assembler(self.wire, self._card)
        stream = Decoder(events, self._card.provider)
        stream.feed(reply)
        return stream.finish(), events.message() if isinstance(events, MessageAssembler | ResponseAssembler) else {}

    def _hold(self, given: GivenRequest, message: Json) -> None:
        """Keep the list and the reply of a thread, which its client may go on from without sending them again."""
        name = text(message, "id")
        if self.wire == "anthropic" and self.mode == "watch" and name:
            self._held[name] = given, {"role": "assistant", "content": message.get("content")}
            while len(self._held) > _MOST_HELD:
                del self._held[next(iter(self._held))]

    def _undo_queued(self) -> None:
        for undo in self._undos.take():
            try:
                self.conversation.undo(undo.event, edits=undo.edits, why=undo.why)
            except PalimpsestError as error:
                self.note("undo", error.kind, error.message)


def _oldest(edit: Edit) -> float:
    """The event of the oldest item that an edit changes; nothing comes after an insert at the end."""
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            return min(map(seq_of, ids), default=inf)
        case Fold(first=first):
            return seq_of(first)
        case Insert(before=before):
            return seq_of(before) if before else inf


def _newest_halves(edits: Edits) -> Iterator[Edits]:
    """All edits, then half of them, and so on: the newest stand near the end, where a change breaks the least of what is cached."""
    while edits:
        yield edits
        edits = edits[(len(edits) + 1) // 2 :]


def _marked_parts(given: GivenRequest) -> Iterator[Any]:
    """The parts of a request that may have breakpoints, the newest message first."""
    yield from reversed(given.messages)
    yield from given.system if isinstance(given.system, list) else ()
    yield {"tools": given.tools}


PURPOSE: Final = job_purpose(KEEP_ALIVE)
# Sessions that are tried for one conversation while other gateways have it.
_OTHERS: Final = 4
# Which of its forms a request was sent in: as its client gave it, with the edits made before it, with new ones too, or without thinking
# because the provider had refused that.
SentForm: TypeAlias = Literal["given", "followed", "planned", "recovered"]


class PreparedBody(NamedTuple):
    """A request to send: its bytes, `None` if they are those that were given; its new edits; and whether it shows edits, old or new.

    `is_asked` and `paths` are as in `Exchange`.
    """

    body: bytes | None
    edits: int
    is_edited: bool
    is_asked: bool = False
    paths: Mapping[str, str] | None = None


class Observed(NamedTuple):
    """A reply that was recorded: the session, the bill of the call, and that of all.

    `reply` is the id of the reply, empty if it has none.
    """

    session: str
    call: PricedCall
    bill: GatewayBill
    reply: str = ""


class _Open:
    """An open conversation and its request that is on its way, in the forms in which it may have been sent."""

    def __init__(self, recorded: RecordedConversation) -> None:
        self.recorded = recorded
        self.forms: dict[SentForm, Exchange] = {}


class ConversationHost:
    """Records conversations. Each is used by one thread at a time; different ones may be used at once."""

    def __init__(self, home: Home, mode: Mode, *, fold: bool = False, keeps_alive: bool = False, thinking: ThinkingMode = "strip") -> None:
        self._home = home
        self._mode: Mode = mode
        self._fold = fold
        self._keeps_alive = keeps_alive
        self._thinking: ThinkingMode = thinking
        self._open: dict[str, _Open] = {}
        self._seen = SeenThinking()
        self._job = KeepAlive()

    def follow(self, name: ConversationName, parent: str, wire: WireName, model: str, body: bytes) -> PreparedBody:
        """Record what is new in a request, and return it with the edits that were made before. Raises what opening and reading raise."""
        found = self._take(name, parent, wire, model, self._mode)
        found.forms = {"followed": found.recorded.follow(body, _fields_of(body, name))}
        return _prepared(found.forms["followed"])

    def plan(self, session: str, until: float, seconds: float = float("inf")) -> PreparedBody:
        """Return the request that was followed last with new edits too.

        After `until`, by the monotonic clock, or so many seconds of processor time there are no more of them.
        """
        found = self._open[session]
        deadline = _Deadline(until, seconds)
        found.forms["planned"] = found.recorded.plan(found.forms["followed"], deadline)
        if deadline.has_passed:
            found.recorded.note("request", "deadline", "new edits were given up, because planning them took too long")
        return _prepared(found.forms["planned"])

    def record(self, name: ConversationName, parent: str, wire: WireName, model: str, body: bytes, *, previous: str = "") -> None:
        """Record a request that is sent as it was given; with `previous`, what it adds after that reply. Raises as `follow` does."""
        found = self._take(name, parent, wire, model, "watch")
        found.forms = {"followed": found.recorded.follow(body, _fields_of(body, name), previous)}
        self.plan(name.session, float("inf"))

    def holds(self, session: str, reply: str) -> bool:
        """Return whether the list of a conversation up to a reply is at hand."""
        found = self._open.get(session)
        return found is not None and found.recorded.holds(reply)

    def recovered(self, session: str, form: SentForm, refusal: ThinkingMismatch) -> PreparedBody | None:
        """Record that the provider refused the thinking of the last request, which was sent in this form.

        Return the request without any thinking, to be sent instead; `None` if the refusal is the client's.
        """
        found = self._open.get(session)
        exchange = None if found is None else found.forms.get("followed" if form == "given" else form)
        if found is None or exchange is None or form == "recovered":
            return None
        bare = found.recorded.recovered(exchange, refusal, sent_as_given=form == "given")
        if bare is None:
            return None
        found.forms["recovered"] = bare
        return _prepared(bare)

    def counted(self, session: str, body: bytes) -> bytes | None:
        """Return a request that asks for the tokens of a list of this conversation, as it can be sent; `None` if nothing is known of it."""
        found, fields = self._open.get(session), fields_of(body)
        return None if found is None or fields is None else found.recorded.counted(body, fields)

    def observe(self, session: str, reply: bytes, content_type: str, form: SentForm) -> Observed:
        """Record the reply to the last request, which was sent in this form."""
        found = self._open[session]
        exchange = found.forms["followed" if form == "given" else form]
        found.forms = {}
        streamed = content_type.startswith("text/event-stream")
        call = found.recorded.observe(exchange, reply, streamed=streamed, sent_as_given=form == "given")
        return Observed(found.recorded.conversation.id, call, found.recorded.bill, found.recorded.newest_reply)

    def unanswered(self, session: str, why: str) -> None:
        """Record that the provider did not answer the last request."""
        found = self._open[session]
        found.forms = {}
        found.recorded.unanswered(why)

    def note(self, session: str, what: str, kind: str, message: str) -> bool:
        """Record that something failed, and return whether the conversation is open, so that it could be recorded."""
        found = self._open.get(session)
        if found is not None:
            found.recorded.note(what, kind, message)
        return found is not None

    def close(self, session: str) -> None:
        """Make the log of a conversation durable and close it."""
        found = self._open.pop(session, None)
        if found is not None:
            with suppress(PalimpsestError):
                found.recorded.close()

    def since_call(self, session: str) -> int:
        """Return the milliseconds since the newest call began, from which on the cache lives; a reply may have taken long."""
        found = self._open.get(session)
        if found is None:
            return 0
        live = found.recorded.conversation.session
        called = live.derived.cache.value().called
        return 0 if called is None else live.environment.clock.now() - called

    def should_read(self, session: str) -> tuple[bool, bool]:
        """Return whether anything of a conversation is still cached, and whether a read that keeps it alive pays now."""
        found = self._open.get(session)
        if found is None:
            return False, False
        live = found.recorded.conversation.session
        cached = live.derived.cache.value().longest(live.environment.clock.now())
        return bool(cached), self._job.plan(job_situation(live, self._job, "idle")) is not None

    def begin_read(self, session: str) -> int:
        """Record that such a read is sent, and return the number of its event."""
        recorded = self._open[session].recorded
        log, card = recorded.conversation.session.log, recorded.conversation.session.card
        return log.append(CallStarted(card.name, recorded.wire, purpose=PURPOSE)).seq

    def end_read(self, session: str, started: int, reply: bytes, failure: str) -> tuple[bool, float | None]:
        """Record the reply to such a read, or the failure if that is not empty. Return whether it succeeded, and its dollars."""
        recorded = self._open[session].recorded
        live = recorded.conversation.session
        outcome: ModelReplied | Failed = Failed("call", "keep_alive", failure, call=started, purpose=PURPOSE)
        if not failure:
            try:
                decoded = decode_response(recorded.wire, reply, live.card)
                outcome = replace(decoded, parts=(), call=started, purpose=PURPOSE)
            except PalimpsestError as error:
                outcome = replace(outcome, message=type(error).__name__)
        live.log.append(outcome)
        live.log.append(JobRan(self._job.name, live.log.tip, "done"))
        return (True, recorded.add_read(outcome)) if isinstance(outcome, ModelReplied) else (False, 0.0)

    def _take(self, name: ConversationName, parent: str, wire: WireName, model: str, mode: Mode) -> _Open:
        """The open conversation of a name, in a mode or, without prices, in mode `watch`."""
        # Without prices it cannot be told what an edit costs, so that nothing is changed.
        mode = mode if recorded_card(model, self._home.cards()).prices.input else "watch"
        found = self._open.get(name.session)
        if found is not None and found.recorded.mode != mode:
            # A client has begun to keep its list with the provider, or to send it again.
            self.close(name.session)
            found = None
        if found is None:
            found = self._open[name.session] = _Open(self._opened(name, parent, wire, model, mode))
        return found

    def _opened(self, name: ConversationName, parent: str, wire: WireName, model: str, mode: Mode) -> RecordedConversation:
        profile, settings = PROFILES[mode], {"PAL_AUTO_COMPACT": "on"} if self._fold else {}
        if self._keeps_alive:
            # Edits and reads share one limit of what may be lost.
            settings = settings | {"PAL_KEEP_ALIVE": "on"}
        opener = EventRef(parent, 0) if parent else None
        for session in (name.session, *(f"{name.session}.{number}" for number in range(2, 2 + _OTHERS))):
            # Another gateway with the same home may have the conversation of the same client.
            with suppress(Locked):
                conversation = Conversation.open(
                    session, model=model, home=self._home, profile=profile, settings=settings, shape=wire, origin="gateway", opener=opener
                )
                return RecordedConversation(conversation, wire, mode, self._home, thinking_mode=self._thinking, seen=self._seen)
        raise Locked("other gateways have this conversation", where=name.session)


def _fields_of(body: bytes, name: ConversationName) -> Mapping[str, Raw]:
    fields = fields_of(body)
    if fields is None:
        raise BadInput("a request is no object", where=name.session)
    return fields


class _Deadline:
    """Whether it is still time; `has_passed` once it was asked and was not."""

    def __init__(self, until: float, seconds: float) -> None:
        self._until = until
        # A thread of its own plans each request, and time in which others had the processor is none that planning takes.
        self._until_worked = time.thread_time() + seconds
        self.has_passed = False

    def __call__(self) -> bool:
        self.has_passed = self.has_passed or time.monotonic() > self._until or time.thread_time() > self._until_worked
        return not self.has_passed


def _prepared(exchange: Exchange) -> PreparedBody:
    body = None if exchange.body is exchange.given.body else exchange.body
    is_edited = exchange.messages is not exchange.given.messages
    return PreparedBody(body, exchange.edits, is_edited, exchange.is_asked, exchange.paths)
