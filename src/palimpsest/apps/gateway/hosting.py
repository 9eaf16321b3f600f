"""The conversations that one process or thread pool records: opened by name, followed, planned, observed and closed by their session."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.apps.gateway.given import fields_of
from palimpsest.apps.gateway.recorded import PROFILES, Exchange, Mode, RecordedConversation
from palimpsest.apps.gateway.routing import ConversationName
from palimpsest.apps.gateway.thinking import ThinkingMismatch, ThinkingMode
from palimpsest.audit.pricing.pauses import KEEP_ALIVE
from palimpsest.audit.pricing.two_bills import GatewayBill, PricedCall
from palimpsest.core.errors import BadInput, Locked, PalimpsestError
from palimpsest.core.events import CallStarted, EventRef, Failed, JobRan, ModelReplied
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.jobs.running import job_situation
from palimpsest.policies.jobs.keep_alive import KeepAlive
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import WireName, recorded_card
from palimpsest.wire.stream import decode_response

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

    def __init__(
        self, home: AnyHome, mode: Mode, *, fold: bool = False, keeps_alive: bool = False, thinking: ThinkingMode = "strip"
    ) -> None:
        self._home = home
        self._mode: Mode = mode
        self._fold = fold
        self._keeps_alive = keeps_alive
        self._thinking: ThinkingMode = thinking
        self._open: dict[str, _Open] = {}
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
                return RecordedConversation(conversation, wire, mode, self._home, self._thinking)
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
