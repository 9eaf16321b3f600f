"""A recorded session simulated under a profile, with unsent requests, a simulated cache and imitated summaries."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from hashlib import sha256
from time import perf_counter
from typing import Final, Literal, Protocol, Self, TypeVar

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from pal.replay.outcome import BilledCall, Purpose
from pal.replay.recording import RecordedFiles, RecordedSession, RecordingIndex
from pal.replay.rereads import VisibleKeys, plain_name
from palimpsest.agent.calls import call, compact, end_turn, send, start_turn, turn_request
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.jobs import answers_of, job_situation
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.audit.cache import EMPTY_CACHE, Block, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.audit.prices import KEEP_ALIVE
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError, PromptTooLong, TooFull
from palimpsest.core.events import TURN, ContextStated, JobRan, ModelReplied, SessionOpened, Statement, Usage
from palimpsest.core.items import (
    Content,
    Item,
    Opaque,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Value,
    shared_prefix_length,
    text_of,
)
from palimpsest.core.ledger import job_purpose
from palimpsest.core.plans import Evidence, Look, Moment, drive
from palimpsest.core.ports import Provider, Sendable
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View, shown
from palimpsest.policies.jobs import KeepAlive
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions
from palimpsest.wire.encode import is_bound
from palimpsest.wire.encoding import BlockKind, Fragment, Message, opaque_type
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import CARDS, ModelCard, WireName, card, resized, simulated_cost
from palimpsest.wire.repair import role_of
from palimpsest.wire.request import MAX_BREAKPOINTS, BreakpointRule, Params, Tool


class BlockLayout:
    """The blocks and messages of a request, in the order of the view; updated incrementally when the view grows."""

    def __init__(self, count: Callable[[Item], int]) -> None:
        self._count = count
        self._clear()

    def _clear(self) -> None:
        self._head: tuple[Item, ...] = ()
        self._items: tuple[Item, ...] = ()
        # Number of fragments up to each item; hidden items have none.
        self._ends: list[int] = []
        self.blocks: list[Block] = []
        self.fragments: list[Fragment] = []
        self.messages: list[Message] = []
        self.starts: list[int] = []

    def update(self, head: tuple[Item, ...], items: tuple[Item, ...]) -> None:
        """Update the layout to a view; only items after the first changed one are processed."""
        unchanged = len(self._items)
        if head != self._head:
            self._clear()
            unchanged = 0
            self.blocks = [(_content_key(item), self._count(item)) for item in head]
        elif items[:unchanged] != self._items:
            unchanged = shared_prefix_length(self._items, items)
            self._cut(unchanged)
        self._head, self._items = head, items
        for item in items[unchanged:]:
            self._add(item)

    def _cut(self, items: int) -> None:
        """Remove all but the first `items` items from the layout."""
        count = self._ends[items - 1] if items else 0
        del self._ends[items:]
        del self.fragments[count:]
        place = self.heads + count
        del self.blocks[place:]
        while self.starts and self.starts[-1] >= place:
            self.starts.pop()
            self.messages.pop()
        if self.messages:
            del self.messages[-1][1][place - self.starts[-1] :]

    def _add(self, item: Item) -> None:
        content = item.content if item.mask is None else shown(item)
        if content is not None:
            fragment = Fragment(item, _place_of(item))
            from_assistant = fragment.place > BlockKind.RESULT
            if not self.messages or self.messages[-1][0] is not from_assistant:
                self.messages.append((from_assistant, []))
                self.starts.append(len(self.blocks))
            self.messages[-1][1].append(fragment)
            self.fragments.append(fragment)
            self.blocks.append((_content_key(item), self._count(item)))
        self._ends.append(len(self.fragments))

    @property
    def heads(self) -> int:
        """Number of blocks of the head."""
        return len(self._head)

    def places_of(self, spots: Iterable[BlockPosition]) -> set[int]:
        """Return the indexes of blocks among all blocks of the request."""
        return {block if message == HEAD else self.starts[message] + block for message, block in spots}


class CacheSimulator:
    """Simulated cache of one session with one model; bills one request after the other.

    With `anchored`, a breakpoint that another program leaves free stands at the end of the cached prefix, as the gateway sets it.
    """

    def __init__(self, card: ModelCard, count: Callable[[Item], int], *, anchored: bool = False) -> None:
        self._card = card
        self._anchored = anchored
        self._rules = cache_rules(card)
        self._layout = BlockLayout(count)
        self._count = count
        self._prompt = Prompt()
        self._kept: CacheContents = EMPTY_CACHE

    def size(self, view: View) -> int:
        """Return the tokens of the request for a view."""
        self._layout.update(view.head, view.items)
        self._prompt = Prompt.of(self._layout.blocks, self._prompt)
        return self._prompt.tokens

    def turn(self, view: View, params: Params, now: int) -> Usage:
        """Bill the request of a turn call at time `now`, in milliseconds."""
        self.size(view)
        return self._bill(self._layout.places_of(self._breakpoint_spots(view, params)), self._prompt, params, now)

    def aside(self, view: View, params: Params, now: int) -> Usage:
        """Bill a side request; it reads the longest prefix that the conversation has in the cache, wherever its own breakpoints are.

        Claude Code marks the last assistant message of a summary request. That stands before the only entry which a call after a pause
        wrote, so that by the marks alone the request would write everything again; where no recording tells, programs are billed less.
        """
        layout = BlockLayout(self._count)
        layout.update(view.head, view.items)
        prompt = Prompt.of(layout.blocks)
        spots = breakpoint_positions(self._rule(params), layout.heads, layout.messages)
        places = layout.places_of(spots)
        return self._bill(places | set(self._longest_entry(prompt, now)[: MAX_BREAKPOINTS - len(places)]), prompt, params, now)

    def breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        """Return the item ids, or `head:n`, at the cache breakpoints of the request for a view."""
        self.size(view)
        return tuple(dict.fromkeys(breakpoint_label(spot, self._layout.messages) for spot in self._breakpoint_spots(view, params)))

    def _rule(self, params: Params) -> BreakpointRule:
        return params.breakpoint_rule if self._rules.kind == "breakpoints" else "none"

    def _breakpoint_spots(self, view: View, params: Params) -> Iterable[BlockPosition]:
        layout, rule = self._layout, self._rule(params)
        wanted: tuple[str, ...] = (params.entry,) if self._anchored and params.entry else ()
        if rule == "palimpsest":
            wanted = anchors(view, layout.fragments, params, self._card.wire)
        return breakpoint_positions(rule, layout.heads, layout.messages, wanted)

    def _longest_entry(self, prompt: Prompt, now: int) -> tuple[int, ...]:
        """Return the last block of the longest live cached prefix of a prompt; nothing if there is none."""
        live = [entry for entry in self._kept.entries if now - entry.used < entry.ttl and entry.at_block < len(prompt.links)]
        return tuple(sorted(entry.at_block for entry in live if prompt.links[entry.at_block] == entry.link)[-1:])

    def _bill(self, places: set[int], prompt: Prompt, params: Params, now: int) -> Usage:
        billed = bill(prompt, self._kept, now, self._rules, [Breakpoint(at, params.ttl == "1h") for at in sorted(places)])
        self._kept = billed.contents
        return billed.usage


def _content_key(item: Item) -> str:
    """Return a key that differs whenever the encoded bytes of an item differ."""
    mask = item.mask
    return item.id if mask is None or mask.form == "cached" else f"{item.id}~{mask.text}"


def _place_of(item: Item) -> int:
    match item.content:
        case ToolResult():
            return BlockKind.RESULT
        case ToolCall():
            return BlockKind.CALL
        case Thinking():
            return BlockKind.THINKING
        case _:
            return BlockKind.ASSISTANT if role_of(item) == "assistant" else BlockKind.USER


def filler_text(words: str, size: int) -> str:
    """Return `words` repeated to about `size` unscaled tokens."""
    if size <= 0:
        return ""
    repeated = words * (size // 10 + 1)
    cut = repeated[: len(repeated) * size // palimpsest_size(Text(repeated))]
    # The estimate is not linear in the length, so the cut is corrected once.
    return repeated[: len(cut) * size // max(1, palimpsest_size(Text(cut)))].strip()


_TRIGGER: Final = "compaction_trigger"
_MESSAGES: Final = "Messages of the user"
_OPEN: Final = "Still open"
_NAMES: Final = "Names"
_FILLER: Final = "The work went on as it is said above, one step after the other, and nothing else of it is kept here. "


class SummaryStatistics(Value, frozen=True):
    """Statistics of a program's summaries: tokens written and kept, and the shares of edited, read and other names that survive.

    `messages` is the share of user messages that the summary repeats, 0 where it is unknown.
    """

    written: int
    kept: int
    edited: float
    read: float
    others: float
    messages: float = 0.0


# Measured on recorded sessions; a program without measurements has the values of the most similar one.
SUMMARY_STATISTICS: Final[Mapping[str, SummaryStatistics]] = {
    "claude-code": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "context-editing": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "provider": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "codex": SummaryStatistics(2_000, 2_000, 0.89, 0.18, 0.23),
    "opencode": SummaryStatistics(1_200, 1_000, 0.44, 0.05, 0.13),
    "classroom": SummaryStatistics(1_200, 1_000, 0.44, 0.05, 0.13),
}


BeforeSummary = Callable[[str, SummaryStatistics], None]


def summary_statistics_of(profile: str) -> SummaryStatistics | None:
    """Return the statistics of a profile's summaries; None for a profile that folds without a model."""
    return next((statistics for name, statistics in SUMMARY_STATISTICS.items() if profile == name or profile.startswith(f"{name}-")), None)


class Summariser:
    """Writes the summaries of one session like an imitated program; each may repeat names and messages of the previous summary.

    `before_summary` gets the marker of each summary and the statistics first.
    """

    def __init__(
        self, statistics: SummaryStatistics, factor: float, session: Session, before_summary: BeforeSummary = lambda *_: None
    ) -> None:
        self._statistics = statistics
        self._token_limit = round(statistics.kept / factor)
        self._session = session
        self._before_summary = before_summary
        self._count = 0
        self._messages: dict[str, None] = {}
        self._names: dict[str, None] = {}

    def reply(self, view: View, params: Params) -> ModelReplied:
        """Return the summary for a request, in the form that it asks for."""
        self._count += 1
        marker = f"summary {self._count} of this session"
        self._before_summary(marker, self._statistics)
        written = min(self._statistics.written, params.max_tokens or self._statistics.written)
        return reply_to(view, params, self._next(marker), self._session.card, Usage(output=written), size=self._token_limit)

    def _next(self, marker: str) -> str:
        """Return the text of the next summary, from the visible items and the previous summary."""
        evidence, items = self._session.derived.evidence.value(), self._session.log.view.items
        user_messages = _merge_newest_last(self._messages, (text_of(item.content) for item in items if item.kind == "user"))
        names = _merge_newest_last(self._names, evidence.names)
        evidence = replace(evidence, names=tuple(names))
        lines, size = select_lines(marker, self._statistics, evidence, reversed(user_messages), self._token_limit)
        self._messages = {text: None for text in user_messages if (_MESSAGES, text) in lines}
        self._names = {text: None for text in names if (_NAMES, text) in lines}
        return compose_summary(marker, lines, self._token_limit - size)


def _merge_newest_last(before: Iterable[str], now: Iterable[str]) -> dict[str, None]:
    """Return all texts once, each at its newest position."""
    again = dict.fromkeys(now)
    return {**{text: None for text in before if text not in again}, **again}


def is_sampled(name: str, share: float) -> bool:
    """Whether a name is sampled at this rate; deterministic by hash, so a name that survived once survives again."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8]) < share * 2**64


def sampled_names(names: Iterable[str], statistics: SummaryStatistics, evidence: Evidence) -> frozenset[str]:
    """Return the names that survive a summary."""
    shares = {plain_name(path): statistics.read for path in evidence.read}
    shares |= {plain_name(path): statistics.edited for path in evidence.edited}
    return frozenset(name for name in names if is_sampled(name, shares.get(name, statistics.others)))


def reply_to(view: View, params: Params, text: str, card: ModelCard, usage: Usage, *, size: int) -> ModelReplied:
    """Return a summary as text, or as an opaque compaction item of `size` unscaled tokens if the request asks for one."""
    part: Content = Text(text, "assistant")
    last = view.items[-1].content if view.items else None
    if params.endpoint and card.wire == "anthropic":
        block = encode({"type": "compaction", "content": text, "signature": "imitated"}).decode()
        part = Opaque(card.provider, card.name, block, text)
    elif params.endpoint or (isinstance(last, Opaque) and opaque_type(last) == _TRIGGER):
        data = '{"type":"compaction","encrypted_content":"' + "A" * ((size * 4 + 650) * 4 // 3) + '"}'
        part = Opaque(card.provider, card.name, data, text)
    return ModelReplied((part,), usage=usage, stop="end_turn", model=card.name)


def select_lines(
    marker: str, statistics: SummaryStatistics, evidence: Evidence, user_messages: Iterable[str], token_limit: int
) -> tuple[dict[tuple[str, str], None], int]:
    """Return the selected lines as (title, text) in order, and their unscaled tokens."""
    lines: dict[tuple[str, str], None] = {}
    size = palimpsest_size(Text(_opening(marker)))
    for title, share, texts in (
        ("Files changed", statistics.edited, reversed(evidence.edited)),
        (_MESSAGES, statistics.messages, user_messages),
        (_OPEN, statistics.others, evidence.tasks),
        ("Files read", statistics.read, reversed(evidence.read)),
        (_NAMES, statistics.others, reversed(evidence.names)),
    ):
        for text in texts if share else ():
            # Paths are sampled by the name under which re-reads look for them.
            if not is_sampled(text if title in (_MESSAGES, _OPEN) else plain_name(text), share):
                continue
            line_tokens = palimpsest_size(Text(_line(title, text))) - 3
            if size + line_tokens <= token_limit:
                lines[title, text] = None
                size += line_tokens
    return lines, size


def compose_summary(marker: str, lines: Iterable[tuple[str, str]], tokens_left: int) -> str:
    """Return the text of a summary, padded by `tokens_left` unscaled tokens."""
    return "\n".join([_opening(marker), *(_line(title, text) for title, text in lines), filler_text(_FILLER, tokens_left)]).strip()


def _opening(marker: str) -> str:
    return f"What was done so far ({marker})."


def _line(title: str, text: str) -> str:
    return f"- {title}: {text}"


class RealSummaries(Protocol):
    """Asks a real model for a summary of a replay."""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """Return the reply to the request for a view. Raises `ProviderError` if the model fails."""
        ...


class CountedSummaries:
    """Asks a real model for summaries, and counts requests and failures, which policies themselves do not report."""

    def __init__(self, real: RealSummaries) -> None:
        self._real = real
        self.requests = 0
        self.failed = 0
        self.failure = ""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """Return the reply of the model."""
        self.requests += 1
        try:
            return await self._real(view, tools, params, fetch)
        except PalimpsestError as error:
            self.failed += 1
            self.failure = self.failure or error.message
            raise


class SimulatedRequest(Value, frozen=True):
    """A request that is never sent: it holds its view instead of bytes.

    `digest` is a placeholder that marks `breakpoints` as complete. `aside` is true for a side request, which shows another view than
    the conversation.
    """

    wire: WireName
    view: View
    params: Params
    tools: tuple[Tool, ...] = ()
    breakpoints: tuple[str, ...] = ()
    body: bytes = b""
    digest: str = "replayed"
    aside: bool = False


Breakpoints = Callable[[View, Params], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SimulatedEncoder:
    """Creates simulated requests of a session; `breakpoints` returns the cache breakpoints of a turn call."""

    session: Session
    card: ModelCard
    tools: tuple[Tool, ...]
    params: Params
    breakpoints: Breakpoints

    def encode(self, view: View) -> SimulatedRequest:
        """Return the request for a view."""
        aside = view is not self.session.log.view
        breakpoints = () if aside else self.breakpoints(view, self.params)
        return SimulatedRequest(self.card.wire, view, self.params, self.tools, breakpoints, aside=aside)

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """Return an encoder with other parameters or tools."""
        return with_fields(self, params=params, tools=self.tools if tools is None else tools)


def simulated_encoder(
    session: Session, breakpoints: Breakpoints = lambda *_: ()
) -> Callable[[ModelCard, tuple[Tool, ...], Params, Fetch], SimulatedEncoder]:
    """Return the `encoder` of an environment in which no request of the session is sent."""
    return lambda card, tools, params, _: SimulatedEncoder(session, card, tools, params, breakpoints)


class SummaryProvider:
    """Answers side requests of a session with a real model, else with the imitated summaries of its profile, if there are any.

    `factor` converts unscaled sizes to tokens.
    """

    def __init__(
        self, session: Session, factor: float, real: RealSummaries | None = None, before_summary: BeforeSummary = lambda *_: None
    ) -> None:
        statistics = summary_statistics_of(session.profile.program)
        self._session = session
        self._factor = factor
        self._real = real
        self._summariser = None if statistics is None else Summariser(statistics, factor, session, before_summary)

    def provider(self, card: ModelCard, purpose: str) -> "SummaryProvider":
        """Return itself for the model of the replay. Raises `NoModel` for a turn, for another model, and without summaries."""
        if purpose == TURN or card.name != self._session.card.name or (self._summariser is None and self._real is None):
            raise NoModel(f"the replay has no {card.name} for {purpose} and continues without it")
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the summary."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay answers only its own simulated requests")
        yield await self.reply(request)

    async def reply(self, request: SimulatedRequest) -> ModelReplied:
        """Return the summary for a request, with its output tokens."""
        view, params = request.view, request.params
        if self._real is not None:
            reply = await self._real(view, request.tools, params, self._session.environment.blobs.get)
            written = reply.usage.output or round(sum(map(palimpsest_size, reply.parts)) * self._factor)
            return replace(reply, usage=replace(reply.usage, output=written))
        if self._summariser is None:
            raise NoModel("the replay has no model")
        return self._summariser.reply(view, params)


KEEP_ALIVE_PURPOSE: Final = job_purpose(KEEP_ALIVE)
# Tokens of a reply that says nothing.
SHORT_REPLY: Final = 16


async def pause_until(session: Session, at: int | None, clock: FixedClock) -> None:
    """Let the job of a session that keeps its cache alive run until a time in milliseconds; until it rests if there is none.

    The latter is the end of a recording: the replay assumes that the session was left open, which is the dearer case.
    """
    job = next((job for job in session.profile.jobs if isinstance(job, KeepAlive)), None)
    now = session.derived.cache.value().called
    while job is not None and now is not None:
        now += job.interval_ms
        if (at is not None and now >= at) or not session.derived.cache.value().longest(now):
            return
        clock.time = now
        plan = job.plan(job_situation(session, job, "idle"))
        if isinstance(plan, Generator):
            try:
                await drive(plan, answers_of(session, job))
            except OverBudget:
                return
            session.log.append(JobRan(job.name, session.log.tip, "done"))


class KeepAliveProvider:
    """Answers the requests that only keep the cache of a model alive with one word; `bill` returns their usage."""

    def __init__(self, model: str, bill: Callable[[SimulatedRequest], Usage]) -> None:
        self._model = model
        self._bill = bill

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the reply."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay bills only its own simulated requests")
        yield ModelReplied((Text("ok", "assistant"),), usage=self._bill(request), model=self._model)


Result = TypeVar("Result")
WINDOW: Final = 200_000
# Replies are recorded, so the reply limit of a card matters only to the trigger formulas of imitated programs.
_REPLY_LIMIT: Final = 32_000
# Sources of context that reports what happened at the prompt, such as commands of the program itself; it is stated once.
_EVENT_SOURCES: Final = frozenset(
    {"", "command", "command-caveat", "command-output", "developer", "ide", "interrupted", "local_command", "meta"}
)


def replay_card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int = WINDOW) -> ModelCard:
    """Return a card with a common window and reply limit, so that every profile triggers at the same size for every model.

    Only a model whose calls cost more from a smaller size on is used up to that size.
    """
    return for_replay(card(name, cards), window)


def for_replay(model: ModelCard, window: int) -> ModelCard:
    """Return a card with a window and without a separate prompt limit, so that a formula triggers at the same size for every model."""
    found = resized(model, window)
    return replace(found, reply=max(found.reply, min(_REPLY_LIMIT, window // 2)), input_limit=None)


def lasting_context(recording: RecordedSession) -> tuple[Statement, ...]:
    """Return what the program stated before its first call and states again after a fold: instructions, skills, agents, environment."""
    inputs = recording.steps[0].inputs if recording.steps else ()
    stated = [statement for each in inputs if isinstance(each.body, ContextStated) for statement in each.body.items]
    return tuple(statement for statement in stated if statement.source not in _EVENT_SOURCES)


def as_thought_by(part: Content, card: ModelCard) -> Content:
    """Return thinking with a signature of a model, and any other content as it is."""
    if not isinstance(part, Thinking):
        return part
    data = "" if part.signature is None else part.signature.data
    return replace(part, signature=Signature(card.provider, card.name, data))


class ReplayEnvironment:
    """Recorded time, blobs and files of a replay."""

    def __init__(self, recording: RecordedSession) -> None:
        self.clock = FixedClock(recording.steps[0].at if recording.steps else 0)
        self.blobs = MemoryBlobs(recording.blobs)
        self.files = RecordedFiles(recording.cwd)
        self._saved_names: set[str] = set()
        self._transcript = recording.transcript

    def for_session(self) -> Environment:
        """Return the environment for a session; it has no models."""
        store, transcript = MemorySessions(), self._transcript
        return Environment(
            store, self.blobs, self.clock, self._save_file, self._read_file, offload=inline, retries=NO_RETRIES, transcript=transcript
        )

    def _save_file(self, name: str, data: bytes) -> str:
        self._saved_names.add(name)
        return f"kept/{name}"

    def _read_file(self, want: Look) -> str | None:
        if want.what != "file":
            return None
        return "" if want.name in self._saved_names else self.files.text(want.name)


class Simulation:
    """One recording under one profile: its session, its environment, and all billed calls; it is the provider of the session.

    `answer` returns the reply to a turn call, its output tokens and its purpose; `on_policy_run` gets the policy run of each moment.
    `overflows` counts requests that exceeded the window.
    """

    def __init__(
        self,
        recording: RecordedSession,
        index: RecordingIndex,
        profile: Profile,
        card: ModelCard,
        ttl: Literal["5m", "1h"],
        *,
        real: RealSummaries | None = None,
    ) -> None:
        # Without a separate prompt limit, the same formula triggers at the same size for all cards.
        card = replace(card, input_limit=None)
        self.calibration = recording.calibration
        self.environment = ReplayEnvironment(recording)
        self.visible_keys = {name: VisibleKeys(keys) for name, keys in index.keys.items()}
        self.counter = TokenCounter(palimpsest_size, self.calibration.factor, drops_cached=card.cache_edits)
        self.simulator = CacheSimulator(card, self.counter.item)
        self.session = Session.create(SessionOpened(recording.session, cwd=recording.cwd), profile, card, self.environment.for_session())
        self.session.params = replace(self.session.params, ttl=ttl)
        self.session.derived.remember_names(index.shown, index.used_in)
        self._summaries = SummaryProvider(self.session, self.calibration.factor, real, self._sample_names)
        encoder = simulated_encoder(self.session, self._breakpoints)
        self.session.environment = with_fields(self.session.environment, provider=self._provider, encoder=encoder, offload=self._timed)
        self.answer: Callable[[View], tuple[ModelReplied, int, Purpose]]
        self.on_policy_run: Callable[[Moment, PolicyRun], None] = lambda *_: None
        self.calls: list[BilledCall] = []
        self._lasting_context = lasting_context(recording)
        self.step = 0
        self.stopped = ""
        self.overflows = 0
        self.thinking_blocks = 0
        self._accepts_all = False
        self._offloaded_seconds = 0.0
        self._layout_seconds = 0.0

    def _sample_names(self, marker: str, statistics: SummaryStatistics) -> None:
        """Let a summary keep as many names as those of the imitated program."""
        evidence = self.session.derived.evidence.value()
        for visible_keys in self.visible_keys.values():
            visible_keys.update(self.session.log.view)
            visible_keys.add_sampled(marker, sampled_names(visible_keys.visible(), statistics, evidence))

    @property
    def now(self) -> int:
        """Current time of the recording, in milliseconds."""
        return self.environment.clock.now()

    @property
    def plan_seconds(self) -> float:
        """Seconds spent on planning and checking edits."""
        return self._offloaded_seconds - self._layout_seconds

    async def start_turn(self, incoming: int) -> None:
        """Start a turn with `incoming` tokens of input."""
        await self._record_moment("turn_starts", start_turn(self.session, incoming=incoming))

    async def fold(self) -> None:
        """Fold now, as if the user had asked for it."""
        await self._record_moment("asked", compact(self.session))

    async def end_turn(self) -> None:
        """End the turn."""
        await self._record_moment("turn_ends", end_turn(self.session))

    async def restate_context(self) -> None:
        """State the lasting context of the session again that a fold removed, as every program does."""
        log = self.session.log
        visible = {text_of(content) for item in log.view.items if item.kind == "context" and (content := shown(item)) is not None}
        removed = tuple(statement for statement in self._lasting_context if statement.text not in visible)
        if removed:
            log.append(ContextStated(removed))

    async def call(self) -> ModelReplied:
        """Make one call through the engine. A request that stays too long is sent unchanged, because the recorded work went on."""
        overflows_before = self.overflows
        try:
            reply = await call(self.session, after_policies=self.on_policy_run, after_fold=self.restate_context)
        except (TooFull, PromptTooLong) as error:
            if isinstance(error, TooFull):
                self.stopped = self.stopped or error.message
            # A request that the engine refused never reached the provider, so it is counted here.
            if overflows_before == self.overflows and self.simulator.size(self.session.log.view) > self.session.card.window:
                self.overflows += 1
            reply = await self._send_unchanged()
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self.environment.files.record_call(part)
        return reply

    async def _send_unchanged(self) -> ModelReplied:
        self._accepts_all = True
        try:
            return await send(self.session, turn_request(self.session))
        finally:
            self._accepts_all = False

    async def _record_moment(self, moment: Moment, policy_run: Awaitable[PolicyRun]) -> None:
        try:
            run = await policy_run
            self.on_policy_run(moment, run)
            if run.folded:
                await self.restate_context()
        except TooFull as error:
            self.stopped = self.stopped or error.message

    def _provider(self, card: ModelCard, purpose: str) -> Provider:
        """Return itself for turns and for purposes that have summaries. Raises `NoModel` for others."""
        if purpose == KEEP_ALIVE_PURPOSE:
            return KeepAliveProvider(card.name, self.bill_read)
        if purpose != TURN:
            self._summaries.provider(card, purpose)
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the reply, with the usage that the cache simulator computes. Raises `PromptTooLong` if the window is exceeded."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay bills only its own simulated requests")
        yield await self._summary(request) if request.aside else self._turn(request)

    def _turn(self, request: SimulatedRequest) -> ModelReplied:
        view, card = self._as_sent(request.view), self.session.card
        if not self._accepts_all and self.simulator.size(view) > card.window:
            self.overflows += 1
            raise PromptTooLong("the request is longer than the window")
        reply, output, purpose = self.answer(request.view)
        usage = replace(self.simulator.turn(view, request.params, self.now), output=output)
        self._bill(usage, purpose)
        reply = replace(reply, usage=usage, model=card.name, foreign=Raw(b"null"))
        return self._with_bound_thinking(reply) if is_bound(card) else reply

    def _as_sent(self, view: View) -> View:
        """Return a view without the thinking that no longer fits what stands before it."""
        withheld = frozenset(self.session.withheld)
        return replace(view, items=tuple(item for item in view.items if item.id not in withheld)) if withheld else view

    def _with_bound_thinking(self, reply: ModelReplied) -> ModelReplied:
        """Return a recorded reply with its thinking as if the model of the replay had thought it, so that edits cost what they would."""
        parts = tuple(as_thought_by(part, self.session.card) for part in reply.parts)
        self.thinking_blocks += sum(isinstance(part, Thinking) for part in parts)
        return replace(reply, parts=parts)

    async def _summary(self, request: SimulatedRequest) -> ModelReplied:
        """Return a summary, billed as if it shared the cache of the conversation."""
        view = request.view
        if sum(map(self.counter.item, (*view.head, *view.items))) > self.session.card.window:
            raise PromptTooLong("the request for the summary is too long")
        usage = self.simulator.aside(view, request.params, self.now)
        reply = await self._summaries.reply(request)
        usage = replace(usage, output=reply.usage.output)
        self._bill(usage, "summary")
        return replace(reply, usage=usage)

    def bill_read(self, request: SimulatedRequest) -> Usage:
        """Bill a request that only keeps the cache alive, which shares the cache of the conversation."""
        usage = replace(self.simulator.aside(request.view, request.params, self.now), output=SHORT_REPLY)
        self._bill(usage, "keep_alive")
        return usage

    def _bill(self, usage: Usage, purpose: Purpose) -> None:
        self.calls.append(BilledCall(self.step, self.now, purpose, usage, simulated_cost(usage, self.session.card)))

    def _breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        began = perf_counter()
        found = self.simulator.breakpoints(self._as_sent(view), params)
        self._layout_seconds += perf_counter() - began
        return found

    async def _timed(self, work: Callable[[], Result], /) -> Result:
        began = perf_counter()
        try:
            return work()
        finally:
            self._offloaded_seconds += perf_counter() - began
