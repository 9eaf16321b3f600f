"""One step of a followed list: records new and changed messages, runs policies, and returns the list, unchanged on failure."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.agent.calls import RECOVERY, withdrawn_why
from palimpsest.agent.editing import PolicyRun, always, run_policies
from palimpsest.agent.session import Session, tools_size
from palimpsest.core.errors import BadInput, PalimpsestError, ThinkingRefused
from palimpsest.core.events import TURN, UNOBSERVED, Body, CallStarted, Failed, ModelReplied, Rewound, Usage, ViewEdited
from palimpsest.core.items import Fold, Insert, Mask, named_ids
from palimpsest.core.log import Log
from palimpsest.core.plans import Answer, Moment, Want
from palimpsest.core.undo import undo
from palimpsest.core.view import View
from palimpsest.follow.mirror import ListComparison, Mirror
from palimpsest.follow.output import OWNER, NewMessage, Splice, record_of, tools_of, with_call
from palimpsest.follow.rewinding import FollowedThinking, RewoundState, SeenReply, go_back, priced
from palimpsest.follow.shapes import BREAKPOINT, MessageShape, copied, detected_wire, digest_of_message, equals, plain_value, shape_of
from palimpsest.wire.encode import ThinkingFit, card_on_wire, is_bound
from palimpsest.wire.json_reading import is_json, text
from palimpsest.wire.models import WireName
from palimpsest.wire.reply import error_object, thinking_refused
from palimpsest.wire.request import is_given
from palimpsest.wire.stream import assembler, decode_object
from palimpsest.wire.wires import WIRES, Assembler


def leading_system_messages(messages: Sequence[object], wire: WireName) -> int:
    """Return how many messages at the beginning of a list are instructions; Anthropic Messages has a field for these."""
    count = 0
    while not WIRES[wire].system_beside_list and count < len(messages) and _role(messages[count]) in ("system", "developer"):
        count += 1
    return count


def _role(message: object) -> object:
    return message.get("role") if is_json(message) else getattr(message, "role", None)


def follow(session: Session, mirror: Mirror, messages: list[object], system: object) -> bool:
    """Append what is new in a list to the log, and return whether there was anything. Raises `BadInput` if a message cannot be read."""
    heads = leading_system_messages(messages, mirror.shape.wire)
    leading, listed = messages[:heads], messages[heads:]
    comparison = mirror.compare(listed)
    head = mirror.head(system, leading)
    if head is None and not comparison.new and not comparison.is_rewritten:
        mirror.adopt(listed, comparison, system, leading)
        return False
    log, rest, call = session.log, comparison.new, session.log.open_call
    bodies = mirror.bodies(rest) if head is None and not comparison.is_rewritten else []
    if not (bodies and isinstance(bodies[0], ModelReplied)):
        end_call(log)
        call = None
    if comparison.is_rewritten:
        comparison, rest = _record_rewrite(session, mirror, comparison, messages)
        # Going back may have changed the head too.
        head = mirror.head(system, leading)
    if head is not None:
        mirror.take(log.append(head))
    if not bodies:
        bodies = mirror.bodies(rest)
    for body in with_call(bodies, call, session.card.name):
        mirror.take(log.append(body))
    mirror.adopt(listed, comparison, system, leading)
    return True


def end_call(log: Log) -> None:
    """Record that the reply to the open call never became known, if a call is open."""
    if log.open_call is not None:
        log.append(Failed("call", UNOBSERVED, "the reply to this request was not observed", call=log.open_call, purpose=TURN))


def _record_rewrite(
    session: Session, mirror: Mirror, comparison: ListComparison, messages: list[object]
) -> tuple[ListComparison, tuple[NewMessage, ...]]:
    """Record a change of the past as the owner's edit; return the comparison with what is known then, and the messages that are new."""
    log = session.log
    rewrite = mirror.rewrite(comparison, log.view)
    left = mirror.nearest_left(log, comparison) if session.cheapest is not None else None
    if rewrite.back_to is not None or left is not None:
        found = _record_return(session, mirror, comparison, (rewrite.back_to, left), messages)
        if found is not None:
            return found
    if _replaces(rewrite.body) and _uncover(log, mirror.folded_over(comparison)):
        rewrite = mirror.rewrite(comparison, log.view)
    body = rewrite.body
    if body is not None:
        mirror.take(log.append(priced(session, body) if isinstance(body, ViewEdited) else body, foreign=True))
    return comparison, rewrite.rest


class _Return(NamedTuple):
    """How a list can go on that went back: its comparison with what is known then, what is new, and the states with their lists."""

    comparison: ListComparison
    rest: tuple[NewMessage, ...]
    states: Sequence[RewoundState]
    lists: Sequence[Sequence[Any]]


def _record_return(
    session: Session, mirror: Mirror, comparison: ListComparison, places: tuple[int | None, int | None], messages: list[object]
) -> tuple[ListComparison, tuple[NewMessage, ...]] | None:
    """Go back to what the list shares with the one before, or over to one that was left and shares more, whichever is cheaper to send.

    `places` are the events of both. What was sent of a list that was left may still be cached, and its edits are not those of the list
    before. `None` if the list does neither, so that what it has in the place of others is an edit.
    """
    log, (to, left) = session.log, places
    tip = log.tip
    mirror.leave(tip)
    own = None if to is None else _gone_back(session, mirror, comparison, to, messages)
    if session.cheapest is None:
        return None if own is None else (own.comparison, own.rest)
    other = None if left is None else _gone_over(session, mirror, comparison, left, messages)
    nearest = other or own
    known = len(messages) if nearest is None or not nearest.comparison.is_rewritten else len(messages) - len(nearest.comparison.new)
    # Where the list cannot go back it would be changed by an edit below those that it has, which no one has priced.
    ways = [each for each in (own, other) if each is not None]
    way, number = session.cheapest([each.lists for each in ways], known) if ways else (0, 0)
    found = ways[way] if ways else None
    stays, dropped = found is None or found is own, 0 if found is None else len(found.states) - 1 - number
    if dropped or (left is not None and stays):
        why = f"{dropped} edits are not made again, because the list is still cached without them" if dropped else "the list goes on here"
        log.append(Rewound(tip if found is None else found.states[number].event, why=why))
    if left is not None and stays:
        mirror.restart(log.events(), kept=comparison.prefix)
    return None if found is None else (found.comparison, found.rest)


def _gone_back(session: Session, mirror: Mirror, comparison: ListComparison, to: int, messages: list[object]) -> _Return:
    """Go on from an event of the path, without the edits made after it, and with them."""
    log = session.log
    states = go_back(session, to, f"the list goes on after message {comparison.prefix}")
    mirror.restart(log.events(), kept=comparison.prefix)
    shown: list[tuple[RewoundState, Sequence[Any]]] = []
    for state in states if session.cheapest is not None else ():
        sent = _shown(mirror, state.view, comparison, messages)
        shown += [(state, sent)] if sent is not None else []
    shown = shown or [(states[-1], messages)]
    return _Return(comparison, comparison.new, *zip(*shown, strict=True))


def _gone_over(session: Session, mirror: Mirror, comparison: ListComparison, tip: int, messages: list[object]) -> _Return | None:
    """Go over to a list that was left, and back there if that was longer; `None` if this list cannot go on from it."""
    log, listed = session.log, messages[leading_system_messages(messages, mirror.shape.wire) :]
    log.append(Rewound(tip, why="the list goes on from one that was left"))
    mirror.restart(log.events(), kept=comparison.prefix)
    found = mirror.compare(listed)
    reply = mirror.rebound(found, log.view)
    if reply is not None and reply.body is not None:
        mirror.take(log.append(reply.body, foreign=True))
        found = mirror.compare(listed)
    if found.is_rewritten:
        to = mirror.rewrite(found, log.view).back_to
        return None if to is None else _gone_back(session, mirror, found, to, messages)
    sent = _shown(mirror, log.view, found, messages)
    return None if sent is None else _Return(found, found.new, [RewoundState(log.tip, log.view)], [sent])


def _shown(mirror: Mirror, view: View, comparison: ListComparison, messages: list[object]) -> Sequence[Any] | None:
    """A list that went back as a view shows what it shares with the one before; `None` if that breaks a rule of the provider."""
    heads = leading_system_messages(messages, mirror.shape.wire)
    found = mirror.with_prefix(view, messages[heads:], comparison)
    return None if found is None else [*messages[:heads], *found]


def _replaces(body: object) -> bool:
    return isinstance(body, ViewEdited) and (not body.edits or any(isinstance(edit, Fold | Insert) for edit in body.edits))


def _uncover(log: Log, names: frozenset[str]) -> bool:
    """Undo our folds, newest first, that hide or keep one of these items; a fold of messages that are gone says what is no longer true."""
    undone = False
    for event in reversed([*log.events()]):
        body = event.body
        if not isinstance(body, ViewEdited) or body.by == OWNER or not _replaces(body):
            continue
        if names.issubset(log.view.ids) and names.isdisjoint(name for edit in body.edits for name in named_ids(edit)):
            continue
        # An edit that is undone already, by itself or with another one, is no error.
        with suppress(BadInput):
            undo(log, event.seq, why="the list was changed where it was folded")
            undone = True
    return undone


# The id of an observed reply for which the provider gave none; replies that were read from a list have no id.
_OBSERVED: Final = "observed"
_LONGEST_REASON: Final = 500


class Prepared(NamedTuple):
    """A list to send, and the policies that ran; `reason` says why it is the given one although it should not be."""

    messages: Sequence[Any]
    ran: PolicyRun = PolicyRun()
    reason: str = ""


class _Given(NamedTuple):
    """A list as it was given: itself, its copy, the system prompt, and whether it has anything new; with its edits so far if asked for."""

    messages: Sequence[Any]
    listed: list[Any]
    system: object
    is_new: bool
    rendered: Prepared | None = None


class FollowedList:
    """A session and the mirror of the list that another program owns; one thread at a time uses it."""

    def __init__(self, session: Session, wire: WireName | None = None, replies: dict[str, SeenReply] | None = None) -> None:
        self.session = session
        self.reason = ""
        self._wire = wire
        self._tools_seen: object = None
        self._given: _Given | None = None
        self._planned: _Given | None = None
        # The next process must make the same edits. They are written before the list is sent; a crash of the machine may lose those of one
        # request, which is why nothing waits for the disk until its reply is here.
        self._syncs = False
        self._lock = Lock()
        self._mirror = Mirror(self._shape(wire or session.card.wire), session.log.events())
        self._thinking = FollowedThinking(session, replies)
        # What was sent last, and what the provider refused of it and has not answered without yet.
        self._sent: tuple[_Given | None, ThinkingFit] = (None, ThinkingFit())
        self._refused: tuple[ThinkingRefused, tuple[str, ...]] | None = None

    @property
    def wire(self) -> WireName:
        """The wire of the list, as far as it is known."""
        return self._mirror.shape.wire

    @property
    def is_in_use(self) -> bool:
        """Whether a step of the list has not ended."""
        return self._lock.locked()

    def wait(self) -> None:
        """Wait until no step of the list is left open."""
        with self._lock:
            return

    def steps(self, messages: Sequence[Any], tools: Sequence[Any], system: object, moment: Moment) -> Generator[Want, Answer, Prepared]:
        """Follow the list, run the policies if anything is new, and return what to send. A list that is given again changes nothing."""
        prepared = Prepared(messages)
        with self.failing_open():
            prepared = yield from self._plan(self._follow(messages, tools, system), moment, fits_thinking=True)
        return prepared._replace(reason=self.reason)

    def follow(self, messages: Sequence[Any], tools: Sequence[Any], system: object) -> Prepared:
        """Record what is new in a list, and return it with the edits that were made before; `plan` comes next."""
        prepared, self._given = Prepared(messages), None
        with self.failing_open():
            given = self._follow(messages, tools, system)
            prepared = self._rendered(messages, given.listed, PolicyRun())
            self._given = given._replace(rendered=prepared)
        return prepared._replace(reason=self.reason)

    def plan(self, in_time: Callable[[], bool]) -> Generator[Want, Answer, Prepared | None]:
        """Run the policies for the list that was followed last, and return what to send; `None` if following it failed.

        Once `in_time` returns false nothing is edited any more.
        """
        given, self._given = self._given, None
        prepared = None if given is None else given.rendered
        with self.failing_open():
            if given is not None:
                prepared = yield from self._plan(given, "before_call", in_time)
        return prepared

    def shown(self, view: View) -> Sequence[Any] | None:
        """Return the list that is being planned as a view shows it; `None` if that breaks a rule of the provider."""
        sent, broken = self._mirror.rendered(view, is_trial=True)
        planned = self._planned
        if broken or planned is None:
            return None
        return planned.messages if sent is None else [*planned.listed[: leading_system_messages(planned.listed, self.wire)], *sent]

    def _follow(self, messages: Sequence[Any], tools: Sequence[Any], system: object) -> _Given:
        listed = list(messages)
        self._choose_shape(listed)
        self._offer(tools)
        return _Given(messages, listed, system, follow(self.session, self._mirror, listed, system))

    def _plan(
        self, given: _Given, moment: Moment, in_time: Callable[[], bool] = always, *, fits_thinking: bool = False
    ) -> Generator[Want, Answer, Prepared]:
        session, ran, self._planned = self.session, PolicyRun(), given
        if given.is_new or moment == "asked":
            end_call(session.log)
            ran = yield from self._run_policies(moment, in_time)
        prepared = given.rendered
        if prepared is None or ran.edited:
            prepared = self._rendered(given.messages, given.listed, ran)
        fit = ThinkingFit()
        if fits_thinking and is_bound(card_on_wire(session.card, self.wire)):
            heads = leading_system_messages(given.listed, self.wire)
            sent, fit = self._thinking.fitted(self._mirror, heads, given.system, self._tools_given(), prepared.messages)
            prepared = prepared._replace(messages=sent)
        self._sent, self._refused = (given, fit), None
        if given.is_new and moment != "asked":
            self._start_call(given.system, given.listed, fit)
        self._syncs |= bool(ran.edited)
        self._planned = None
        return prepared

    def observe(self, response: object) -> None:
        """Record a reply with its usage: a response, or a reply that was assembled from a stream."""
        with self.failing_open():
            if self._syncs:
                self._syncs = False
                self.session.log.sync()
            if isinstance(response, ModelReplied):
                # Its messages are not known as its owner will write them; the next list shows them.
                digest = f"stream {response.message}"
                record = record_of(Splice(((digest, len(response.parts)),)))
                self._record_reply([replace(response, foreign=record)], response)
                self._withdraw()
                return
            plain = plain_value(response)
            if not is_json(plain):
                raise BadInput(f"a reply is {type(response).__name__} and not an object", where="observe")
            shape = self._mirror.shape
            decoded = decode_object(shape.wire, plain, card_on_wire(self.session.card, shape.wire))
            said = [NewMessage(message, digest_of_message(message)) for message in shape.replies(plain)]
            self._record_reply(self._mirror.bodies(said), decoded)
            self._withdraw()

    def without_thinking(self, sent: Sequence[Any], error: Exception) -> Sequence[Any] | None:
        """Return the list that was sent last without any thinking, if that is what the provider refused, and record both."""
        body, status = getattr(error, "body", None), getattr(error, "status_code", None)
        message = text(error_object(body), "message") if is_json(body) else str(error)
        refused = thinking_refused(message, self.session.card.provider, status=status if isinstance(status, int) else None)
        given, fit = self._sent
        if refused is None or given is None or not fit.thinking:
            return None
        bare: Sequence[Any] | None = None
        with self.failing_open():
            log = self.session.log
            if log.open_call is not None:
                failed = Failed("call", refused.kind, refused.message, call=log.open_call, purpose=TURN, path=refused.path)
                log.append(failed)
            self._start_call(given.system, given.listed, ThinkingFit(fit.prefix, "", (*fit.withheld, *fit.thinking)))
            bare = self._thinking.without(sent, [plain_value(message) for message in sent], frozenset())
            self._sent, self._refused = (None, ThinkingFit()), (refused, fit.thinking)
        return bare

    def _withdraw(self) -> None:
        """Leave out from now on what the provider refused, because it answered without it."""
        refused, self._refused = self._refused, None
        if refused is not None:
            error, ids = refused
            shown = frozenset(self.session.log.view.ids)
            masked = tuple(name for name in ids if name in shown)
            if masked:
                self.session.log.append(ViewEdited((Mask(masked),), RECOVERY, withdrawn_why(error), "after_call"))

    def assembler(self) -> Assembler:
        """Return an assembler for the events of a streamed reply, whose reply can be observed."""
        return assembler(self.wire, card_on_wire(self.session.card, self.wire))

    def _record_reply(self, bodies: Sequence[Body], decoded: ModelReplied) -> None:
        """Append the events of a reply; the first of them is the outcome of the open call and has the usage."""
        log, mirror = self.session.log, self._mirror
        self._thinking.note_reply(decoded)
        # The model is the asked one, unless a fallback gave the reply.
        model = decoded.model or self.session.card.name
        facts = replace(decoded, parts=(), call=log.open_call, model=model, message=decoded.message or _OBSERVED)
        if not any(isinstance(body, ModelReplied) for body in bodies):
            mirror.take(log.append(facts))
        for body in bodies:
            if not isinstance(body, ModelReplied):
                mirror.take(log.append(body))
                continue
            mirror.take(log.append(replace(facts, parts=body.parts, foreign=body.foreign)))
            # The events after the first one tell no more than their parts.
            facts = replace(facts, call=None, usage=Usage(), beside=(), transformations=(), applied_edits=())

    def record(self, body: Body) -> None:
        """Append an event that is not about the list, and make it durable."""
        with self._lock:
            self.session.log.append(body)
            self.session.log.sync()

    @contextmanager
    def failing_open(self) -> Iterator[None]:
        """Turn an error into `reason`, and let the mirror begin again from the log: the loop of another program must go on."""
        with self._lock:
            self.reason = ""
            try:
                yield
            except Exception as error:  # noqa: BLE001 - an error of ours must not stop the loop of another program
                self.failed(error)

    def failed(self, error: Exception) -> str:
        """Record an error, let the mirror begin again from the log, and return the reason."""
        kind, message = (error.kind, error.message) if isinstance(error, PalimpsestError) else ("internal", repr(error))
        self._note(kind, message)
        with suppress(PalimpsestError):
            self._mirror.restart(self.session.log.events())
        return self.reason

    def _note(self, kind: str, message: str) -> None:
        self.reason = message[:_LONGEST_REASON]
        # A log that cannot be written is a reason too, and it is known by `reason` already.
        with suppress(PalimpsestError, OSError):
            self.session.log.append(Failed("mirror", kind, self.reason))

    def _shape(self, wire: WireName) -> MessageShape:
        return shape_of(wire, card_on_wire(self.session.card, wire), self.session.environment.blobs)

    def _choose_shape(self, messages: Sequence[object]) -> None:
        """Tell the shape by the structure of the messages, until one of them is of one shape only."""
        if self._wire is not None:
            return
        self._wire = detected_wire(messages[len(self._mirror.elements.known) :] or messages)
        # Of the others, both have system messages in the list.
        default: WireName = "chat" if WIRES[self.wire].system_beside_list and leading_system_messages(messages, "chat") else self.wire
        if (self._wire or default) != self.wire:
            self._mirror.shape = self._shape(self._wire or default)

    def _offer(self, tools: Sequence[Any]) -> None:
        given = list(tools or ())
        if self._tools_seen is None or not equals(given, self._tools_seen):
            self._tools_seen = copied(given)
            self.session.tools = tools_of([plain for tool in given if is_json(plain := plain_value(tool))])

    def _run_policies(self, moment: Moment, in_time: Callable[[], bool]) -> Generator[Want, Answer, PolicyRun]:
        try:
            return (yield from run_policies(self.session, moment, in_time=in_time))
        except PalimpsestError as error:
            # Such as a list that does not fit whatever is left out: it is sent, and the provider says so.
            self._note(error.kind, error.message)
            return PolicyRun()

    def _rendered(self, messages: Sequence[Any], listed: list[Any], ran: PolicyRun) -> Prepared:
        """Return the view as a list of the owner's shape, unless the provider would refuse it and not the given one."""
        mirror, log = self._mirror, self.session.log
        sent, broken = mirror.rendered(log.view)
        kept = list(ran.edited)
        while broken:
            self._note("rules", f"the list with its edits breaks a rule of the provider: {broken[0]}")
            if not kept:
                return Prepared(messages)
            undone = kept.pop()
            ran = ran._replace(events=tuple(event for event in ran.events if event is not undone))
            with suppress(PalimpsestError):
                undo(log, undone.seq, why=f"the provider would refuse the list: {broken[0]}")
            sent, broken = mirror.rendered(log.view)
        heads = listed[: leading_system_messages(listed, self.wire)]
        return Prepared(messages if sent is None else [*heads, *sent], ran)

    def _tools_given(self) -> list[Any]:
        """The tools of the request, as they were copied."""
        return self._tools_seen if isinstance(self._tools_seen, list) else []

    def _start_call(self, system: object, listed: Sequence[object], fit: ThinkingFit) -> None:
        """Record that a request with the current view is sent."""
        session, view = self.session, self.session.log.view
        breakpoints = (*_head_breakpoints(system, view), *self._mirror.breakpoints(view))
        tools, estimate = session.keep_tools(session.tools), session.counter.raw(view)
        size = tools_size(session.tools)
        # What the request of another program asks for beside its list matters where it changes the price.
        extra = session.params.extra
        started = CallStarted(
            session.card.name,
            self.wire,
            Raw(b'{"extra":%s}' % bytes(extra)) if is_given(extra) else Raw(b"{}"),
            tools=tools,
            estimate=estimate,
            breakpoints=breakpoints,
            tools_estimate=size,
            prefix=fit.prefix,
            after=fit.after,
            withheld=fit.withheld,
        )
        session.log.append(started)


def _head_breakpoints(system: object, view: View) -> tuple[str, ...]:
    """The labels of the blocks of the system prompt that have a cache breakpoint."""
    if not isinstance(system, list):
        return ()
    marked = [number for number, block in enumerate(system) if is_json(block) and BREAKPOINT in block]
    return tuple(f"head:{number}" for number in marked if number < len(view.head))
