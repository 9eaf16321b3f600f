"""A conversation that another program owns: keeps a log beside its message list, returns the list to send, and reports edits."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, Final, Self, TypedDict, Unpack

import msgspec
from msgspec import Raw, Struct

from palimpsest.agent.archive import RECALL, LogArchive, RecallArguments, address_of, events_of, recall_from
from palimpsest.agent.calls import carry_out, carry_out_now
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.named_profiles import profile as named_profile
from palimpsest.agent.session import Environment, Session, in_thread, inline, no_provider
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import EditRefused, Event, EventRef, ForeignNoted, SessionOpened, ViewEdited, numbers_of
from palimpsest.core.items import Loss, ReasoningLost
from palimpsest.core.log import Log
from palimpsest.core.plans import Moment
from palimpsest.core.ports import Provider
from palimpsest.core.undo import plan_undo
from palimpsest.core.view import View
from palimpsest.follow.output import OWNER
from palimpsest.follow.preparing import FollowedList, Prepared, end_call, leading_system_messages
from palimpsest.follow.rewinding import SeenReply
from palimpsest.follow.shapes import digest_of_message, plain_value
from palimpsest.policies.named import DEFAULT
from palimpsest.stores.home import Home, MemoryHome, new_id
from palimpsest.wire.models import ModelCard, WireName, recorded_card
from palimpsest.wire.request import DEFAULTS, Tool
from palimpsest.wire.wires import WIRES, Assembler


class EditRecord(Struct, frozen=True):
    """One edit of the view: `event` is its number, by which it can be undone; `by` is a policy, or `owner` for the caller's own edit.

    Tokens are those of the request before and after it. `price_usd` is what it costs once; `loss` names what it hides, and
    `reasoning_lost` counts the thinking that is no longer sent because of it.
    """

    event: int
    by: str
    why: str
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    loss: Loss | None = None
    undone: bool = False
    reasoning_lost: ReasoningLost | None = None


class Compacted(Struct, frozen=True):
    """The result of `compact`: the list to send, the edits, and the tokens before and after them.

    `reason` says why the list was left as it is; it is empty if there are edits.
    """

    messages: Sequence[Any]
    edits: tuple[EditRecord, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    reason: str = ""


def edit_records(log: Log) -> Iterator[EditRecord]:
    """Yield the edits of the current path, oldest first."""
    undone = log.reader.undone_edits(log.path)
    for event in log.events():
        if isinstance(event.body, ViewEdited):
            yield edit_record(event, event.body, undone=undone.get(event.seq) == frozenset())


def edit_record(event: Event, edited: ViewEdited, *, undone: bool = False) -> EditRecord:
    """Return one edit as a caller gets it."""
    return EditRecord(
        event.seq,
        edited.by,
        edited.why,
        edited.moment,
        edited.tokens_before,
        edited.tokens_after,
        edited.price_usd,
        edited.saved_usd_per_call,
        edited.loss,
        undone,
        edited.reasoning_lost,
    )


_RECALL_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The id that a stub or a summary names."},
        "words": {"type": "string", "description": "Words that all occur in what is looked for."},
        "offset": {"type": "integer", "description": "Byte at which a long item goes on."},
        "lines": {"type": "string", "description": "A part of a long item, such as 200-260."},
    },
}
_RECALL_TOOL: Final = Tool(
    RECALL,
    "Fetch what is no longer shown in this conversation: a result that was cleared, or a message that was summarised. Give the `id` that "
    "the stub or the summary names, or `words` that all occur in it.",
    Raw(msgspec.json.encode(_RECALL_SCHEMA)),
    kind="reports",
)


class Conversation:
    """A message list of another program and its log. `prepare` returns the list to send, `observe` takes the reply.

    No error of ours reaches the caller of these two: the list comes back as it was given, and `reason` says why. Several threads may use
    a conversation; they wait for each other.
    """

    def __init__(
        self,
        session: Session,
        home: Home,
        *,
        shape: WireName | None = None,
        provider: Provider | None = None,
        replies: dict[str, SeenReply] | None = None,
    ) -> None:
        self.session = session
        self.home = home
        self._provider = provider
        self._followed = FollowedList(session, shape, replies)

    @classmethod
    def open(
        cls,
        id: str | None = None,  # noqa: A002 - the name that a caller expects
        *,
        model: str | ModelCard,
        home: Home | str | os.PathLike[str] | None = None,
        profile: str = "palimpsest",
        settings: Mapping[str, str] | None = None,
        shape: WireName | None = None,
        provider: Provider | None = None,
        origin: str = "mirror",
        opener: EventRef | None = None,
        replies: dict[str, SeenReply] | None = None,
    ) -> Self:
        """Open the conversation of an id, or begin one; without a `home` it is kept in memory.

        `settings` are those of the profile, such as `PAL_COMPACT_AT`. The first list tells the `shape` if it is not given. Policies that
        want a model get the `provider`, or none. `origin` and `opener` are recorded of a new one: the program, and whose sub-agent it is.
        Conversations between which a list may change, as with another model, share one dictionary of `replies`.
        Raises `BadInput` for an unknown profile, `Locked` if another process has it open.
        """
        place = Home.in_memory() if home is None else home if isinstance(home, Home | MemoryHome) else Home.at(home)
        cards = place.cards()
        card = model if isinstance(model, ModelCard) else recorded_card(model, cards)
        models = no_provider if provider is None else lambda _card, _purpose: provider
        environment = Environment(place.store, place.blobs, place.clock, cards=cards, provider=models, offload=inline)
        chosen = named_profile(profile, settings)
        if id is not None and id in place.store.sessions():
            session = Session.resume(id, chosen, card, environment, turn_goes_on=True)
        else:
            opened = SessionOpened(id or new_id(place), origin=origin, opener=opener)
            session = Session.create(opened, chosen, card, environment)
        return cls(session, place, shape=shape, provider=provider, replies=replies)

    @property
    def id(self) -> str:
        """The id of the session, by which it is opened again and by which `pal` finds it."""
        return self.session.log.session

    @property
    def reason(self) -> str:
        """Why the last list was left as it was although it should have been changed; empty if all went well."""
        return self._followed.reason

    def prepare(self, messages: Sequence[Any], *, tools: Sequence[Any] = (), system: object = None) -> Sequence[Any]:
        """Return the list to send: the given one if nothing was edited, else one with the same elements where nothing was.

        `tools` and `system` are those of the request, in the shape of the provider; they are counted and never changed.
        """
        return self._prepare(messages, tools, system, asked=False).messages

    async def aprepare(self, messages: Sequence[Any], *, tools: Sequence[Any] = (), system: object = None) -> Sequence[Any]:
        """As `prepare`, without blocking the event loop."""
        if self._provider is None:
            return await in_thread(lambda: self.prepare(messages, tools=tools, system=system))
        return (await self._waiting(messages, tools, system, "before_call")).messages

    def follow(self, messages: Sequence[Any], *, tools: Sequence[Any] = (), system: object = None) -> Sequence[Any]:
        """Return the list with the edits that were made before: the first half of `prepare`, for callers that have a deadline."""
        return self._followed.follow(messages, tools, system).messages

    def plan(self, in_time: Callable[[], bool]) -> Sequence[Any] | None:
        """Return the list that was followed last with new edits too: the second half of `prepare`; `None` if following it failed.

        Once `in_time` returns false nothing more is edited. Policies get no model here.
        """
        prepared = carry_out_now(self._followed.plan(in_time), self.session)
        return None if prepared is None else prepared.messages

    def shown(self, view: View) -> Sequence[Any] | None:
        """Return the list that was followed last as a view shows it, without any change; `None` if that breaks a rule of the provider."""
        return self._followed.shown(view)

    def compact(self, messages: Sequence[Any], *, tools: Sequence[Any] = (), system: object = None) -> Compacted:
        """Fold the list now, whatever its size, and return it with the edits; unchanged with a reason if no fold makes it much smaller."""
        prepared = self._prepare(messages, tools, system, asked=True)
        edits = tuple(edit_record(event, event.body) for event in prepared.ran.events if isinstance(event.body, ViewEdited))
        after = self.session.used
        reason = prepared.reason or ("" if edits else _why_not_folded(prepared.ran, self.session.profile.name))
        return Compacted(prepared.messages, edits, edits[0].tokens_before if edits else after, after, reason)

    def without_thinking(self, sent: Sequence[Any], error: Exception) -> Sequence[Any] | None:
        """Return the list that was prepared last without any thinking, if `error` says that the provider refuses its thinking.

        Send it once. Once its reply is observed, that thinking stays out until `undo`. `None` for other errors, and where there is none.
        """
        return self._followed.without_thinking(sent, error)

    def observe(self, response: object) -> None:
        """Record the reply to the last list, whole, as the SDK or the provider gave it: its messages and its usage.

        Its messages are expected at the end of the next list. Without this, replies are read from the next list, and usage is unknown.
        """
        self._followed.observe(response)

    def assembler(self) -> Assembler:
        """Return an assembler for the events of a streamed reply, as dictionaries; `observe` takes the reply that it returns."""
        return self._followed.assembler()

    async def aobserve(self, response: object) -> None:
        """As `observe`, without blocking the event loop."""
        await in_thread(lambda: self.observe(response))

    def audit(self) -> tuple[EditRecord, ...]:
        """Return the edits of this conversation, oldest first: those of policies, and those that its owner made in the list."""
        return tuple(edit_records(self.session.log))

    def undo(self, edit: int | EditRecord, *, edits: tuple[int, ...] = (), why: str = "undone by the owner of the list") -> None:
        """Undo an edit of a policy and those that rest on it, so that the next list shows the originals; of several, those of `edits`.

        Raises `BadInput` if it cannot be undone. What the owner changed in the list only the owner can take back, in the list.
        """
        log, seq = self.session.log, edit if isinstance(edit, int) else edit.event
        for body in plan_undo(log, seq, edits, why).undone:
            undone = log.event(body.event).body
            if isinstance(undone, ViewEdited) and undone.by == OWNER:
                rests = "" if body.event == seq else f"; edit {seq} is what it rests on"
                raise BadInput(f"edit {body.event} was made in the list by its owner: change the list instead{rests}", where=log.session)
        end_call(log)
        self.session.undo(seq, edits, why)

    def recall(self, what: str = "", *, id: str = "", words: str = "", offset: int = 0, lines: str = "") -> str:  # noqa: A002 - the argument of the tool
        """Return an item in full by its id, or the items in which all words occur; `what` is either. At most 32 kB.

        The arguments of the recall tool can be given as they are: `recall(**block.input)`. Raises `ToolError` if there is no such item.
        """
        wanted = RecallArguments(id=id, words=words, offset=offset, lines=lines)
        if what:
            is_id = numbers_of(what) or address_of(what) or (".." in what and events_of(what))
            wanted = RecallArguments(id=what, offset=offset, lines=lines) if is_id else RecallArguments(words=what)
        archive = LogArchive(self.session.log, self.home.store, self.home.blobs, self.home.clock, self.home.index)
        try:
            return recall_from(archive, wanted).text
        finally:
            archive.close()

    def tool(self) -> dict[str, Any]:
        """Return the declaration of the recall tool in the shape of the list; `recall` answers its calls."""
        fields = WIRES[self._followed.wire].fields(self.session.card, (_RECALL_TOOL,), DEFAULTS)
        declared: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(fields["tools"]))
        return declared[0]

    def record(self, program: str, record: bytes) -> None:
        """Keep a record of another program, in JSON, durably in the log; no model sees it. Raises `StoreError` if it cannot be written."""
        self._followed.record(ForeignNoted(program, foreign=Raw(record)))

    def records(self, program: str) -> Iterator[bytes]:
        """Yield the records of a program, oldest first, also those that were kept before the list went back."""
        log = self.session.log
        for event in log.reader.run(0, log.tip):
            if isinstance(event.body, ForeignNoted) and event.body.format == program:
                yield bytes(event.body.foreign)

    def close(self) -> None:
        """Make the log durable and close it."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _prepare(self, messages: Sequence[Any], tools: Sequence[Any], system: object, *, asked: bool) -> Prepared:
        moment: Moment = "asked" if asked else "before_call"
        if self._provider is None:
            # Without a provider nothing waits, so that no event loop is needed.
            return carry_out_now(self._followed.steps(messages, tools, system, moment), self.session)
        waiting = partial(asyncio.run, self._waiting(messages, tools, system, moment))
        if not _is_in_event_loop():
            return waiting()
        # A thread has one event loop at most, and that of the caller runs.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(waiting).result()

    async def _waiting(self, messages: Sequence[Any], tools: Sequence[Any], system: object, moment: Moment) -> Prepared:
        try:
            while self._followed.is_in_use:
                # A thread waits: another task of this event loop may have the list while a model answers it.
                await in_thread(self._followed.wait)
            return await carry_out(self._followed.steps(messages, tools, system, moment), self.session)
        except Exception as error:  # noqa: BLE001 - what a provider raises must not stop the loop of another program
            return Prepared(messages, reason=self._followed.failed(error))


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _why_not_folded(ran: PolicyRun, profile: str) -> str:
    """Return why policies that were asked for a fold made none: the last refusal of one, the failure of a policy, or too little to gain."""
    refused = [event.body.why for event in ran.events if isinstance(event.body, EditRefused)]
    if refused:
        return refused[-1]
    return ran.failure.message if ran.failure is not None else f"no fold of profile {profile} would make the list much smaller"


def compact(
    messages: Sequence[Any],
    *,
    model: str | ModelCard,
    tools: Sequence[Any] = (),
    system: object = None,
    profile: str = "palimpsest",
    settings: Mapping[str, str] | None = None,
    shape: WireName | None = None,
) -> Compacted:
    """Compact a message list once, without a model and without state. An odd list comes back as it is, with a reason.

    Raises `BadInput` for an unknown profile.
    """
    with Conversation.open(model=model, profile=profile, settings=settings, shape=shape) as conversation:
        return conversation.compact(messages, tools=tools, system=system)


MOST_OPEN: Final = 64
"""The conversations of a client that are open at once; the one that was used longest ago is closed for another."""
_ODD: Final = "odd"


class ConversationOptions(TypedDict, total=False):
    """How conversations are opened: as in `Conversation.open`."""

    home: Home | str | os.PathLike[str] | None
    profile: str
    settings: Mapping[str, str] | None


class Conversations:
    """Finds the conversation of a request: told apart by model, system prompt and first message, which a list keeps while it grows.

    `name` is the beginning of the ids of their sessions, so that another process with the same name and home goes on with them. `reason`
    says why the last one that was opened is kept in memory although there is a home. Raises `BadInput` for an unknown profile.
    """

    def __init__(self, name: str = "", **options: Unpack[ConversationOptions]) -> None:
        named_profile(options.get("profile", DEFAULT), options.get("settings"))
        self.reason = ""
        self._name = name
        self._options = options
        self._replies: dict[str, SeenReply] = {}
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = Lock()

    def of(self, messages: Sequence[Any], *, model: str, system: object, shape: WireName) -> Conversation:
        """Return the conversation of a list, which is opened with its first request."""
        key = _opening_key(messages, model, system)
        with self._lock:
            found = self._open.pop(key, None)
            if found is None:
                found = self._open_conversation(f"{self._name}-{key}" if self._name else None, model, shape)
                if len(self._open) >= MOST_OPEN:
                    self._open.popitem(last=False)[1].close()
            self._open[key] = found
            return found

    def _open_conversation(self, name: str | None, model: str, shape: WireName) -> Conversation:
        try:
            return Conversation.open(name, model=model, shape=shape, replies=self._replies, **self._options)
        except (PalimpsestError, OSError) as error:
            # Such as a session that another process has open, or a full disk: neither may stop the loop of another program.
            self.reason = str(error)
            return Conversation.open(model=model, shape=shape, replies=self._replies, **self._options | {"home": None})

    def all(self) -> tuple[Conversation, ...]:
        """Return the open conversations; the one that was used last is the last."""
        with self._lock:
            return tuple(self._open.values())

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


def _opening_key(messages: Sequence[Any], model: str, system: object) -> str:
    """A digest of what a list begins with; a list that cannot be read shares one conversation with all such lists."""
    first = leading_system_messages(messages, "chat")
    try:
        return digest_of_message({"model": model, "content": plain_value(system), "first": plain_value(list(messages[: first + 1]))})[:16]
    except BadInput:
        return _ODD
