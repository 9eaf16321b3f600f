"""The costs of the gateway's modes on recorded sessions, against the client alone and the same requests sent directly."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import replace as with_fields
from itertools import accumulate, pairwise
from typing import Final, Literal

from msgspec.structs import replace as gateway_table_replace

from pal.replay.outcome import Figures, figures
from pal.replay.recording import LoadedSession, RecordedSession, RecordingIndex
from pal.replay.replay import Replay, replay, unseen_head
from pal.replay.simulation import CacheSimulator, SimulatedRequest, Simulation, replay_card
from palimpsest.audit.sizes import SIZE_RULES
from palimpsest.core.budget import Budget
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Value
from palimpsest.core.plans import Moment, Plan, Policy, Situation, complete
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Count, Profile
from palimpsest.wire.models import ModelCard, simulated_cost


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A policy of one of the two programs."""

    policy: Policy

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    @property
    def moments(self) -> frozenset[Moment]:
        """Its moments."""
        return self.policy.moments

    @property
    def shrinks(self) -> bool:
        """Whether the policy makes the view smaller."""
        return self.policy.shrinks


@dataclass(frozen=True, slots=True)
class InGateway(_Wrapped):
    """A policy of the gateway: it has the budget of the gateway, because the gateway knows nothing of the client's."""

    budget: Budget

    @property
    def moments(self) -> frozenset[Moment]:
        """Before each call: a gateway sees requests and nothing else."""
        return self.policy.moments & {"before_call"}

    def plan(self, situation: Situation) -> Plan:
        """Return what the policy proposes."""
        return self.policy.plan(replace(situation, budget=self.budget))


@dataclass(frozen=True, slots=True)
class InClient(_Wrapped):
    """A policy of the client: it counts by the rule of the client, where the session counts by that of the gateway."""

    count: Count
    counter: TokenCounter

    def plan(self, situation: Situation) -> Plan:
        """Return what the policy proposes."""
        used = self.count(situation.view, self.counter, situation.tools_tokens) + situation.incoming
        return self.policy.plan(replace(situation, tokens=self.counter.sizes_of(situation.view), used=used))


def behind_gateway(client: Profile, gateway: Profile, card: ModelCard) -> Profile:
    """Return the profile of a client behind a gateway: requests, breakpoints and compactions are the client's.

    It is for one session, because it keeps what was counted by the rule of the client.
    """
    budget, counter = gateway.budget(card), TokenCounter(SIZE_RULES[client.size_rule], drops_cached=card.cache_edits)
    first = [InGateway(policy, budget) for policy in gateway.policies if policy.moments & {"before_call"} and policy.shrinks]
    return replace(
        client,
        name=f"{client.name} behind {gateway.name}",
        policies=(*first, *(InClient(policy, client.count, counter) for policy in client.policies)),
        size_rule=gateway.size_rule,
        jobs=gateway.jobs,
        cache=gateway.cache,
    )


CLIENT: Final = "claude-code-2.1.325"
MODES: Final = {
    "lossless": "lossless",
    "lossless, keep-alive": "lossless@PAL_KEEP_ALIVE=on",
    "palimpsest": "gateway",
    "palimpsest, keep-alive": "gateway@PAL_KEEP_ALIVE=on",
    "thrifty": "gateway-thrifty",
}
"""The modes that change anything, with their profiles."""
# Sessions of fewer tokens never come near a compaction.
LONG_TOKENS: Final = 150_000
_CLAUDE: Final = "claude"


class GatewayRow(Value, frozen=True):
    """One session in one mode, in dollars: the client alone, and behind the gateway.

    `usd` is the whole cost, with summaries and re-reads; `usd_sent` that of the forwarded requests alone, which `usd_direct` compares with.
    `worst` is the highest ratio of these two after any request, had the session ended there; of a sum, that of any session. Of `steps`
    recorded calls, `needy` ones needed a text that was hidden.
    """

    mode: str
    sessions: int = 1
    usd_client: float = 0.0
    usd: float = 0.0
    usd_sent: float = 0.0
    usd_direct: float = 0.0
    worst: float = 0.0
    compactions_client: int = 0
    compactions: int = 0
    rereads_client: int = 0
    rereads: int = 0
    invalid: int = 0
    steps: int = 0
    needy: int = 0


class DirectBilling(Simulation):
    """A simulation that also bills each request of the conversation as the client gave it: without masks, with its own breakpoints.

    `turns`, `tokens_sent` and `tokens_direct` count those requests and the tokens of their prompts, as they were sent and as given.
    """

    def bill_directly(self, card: ModelCard, ttl: Literal["5m", "1h"], *, ours: bool = True) -> None:
        """Begin with the second bill; our gateway sets a breakpoint of its own, and its policies know both bills."""
        self.simulator = CacheSimulator(card, self.counter.item, anchored=ours)
        self._direct, self._ttl = CacheSimulator(card, self.counter.item), ttl
        self.usd_sent = self.usd_direct = self.worst = 0.0
        self.turns = self.tokens_sent = self.tokens_direct = self.needy = 0
        self.session.two_bills = (lambda: (self.usd_sent, self.usd_direct)) if ours else None

    def _turn(self, request: SimulatedRequest) -> ModelReplied:
        reply = super()._turn(request)
        given = self._direct.turn(_as_given(request.view), gateway_table_replace(request.params, ttl=self._ttl), self.now)
        self.usd_direct += simulated_cost(gateway_table_replace(given, output=reply.usage.output), self.session.card).total
        self.turns += 1
        self.tokens_direct += given.prompt
        self.tokens_sent += reply.usage.prompt
        self._add_sent()
        return reply

    def bill_read(self, request: SimulatedRequest) -> Usage:
        """Bill a request that only keeps the cache alive: it is sent and was never given."""
        usage = super().bill_read(request)
        self._add_sent()
        return usage

    def _add_sent(self) -> None:
        self.usd_sent += self.calls[-1].cost.total
        self.worst = max(self.worst, self.usd_sent / self.usd_direct) if self.usd_direct else self.worst


def _as_given(view: View) -> View:
    """The view as the client gave it, who masks nothing."""
    return gateway_table_replace(
        view, items=tuple(item if item.mask is None else gateway_table_replace(item, mask=None) for item in view.items)
    )


def gateway_rows(
    loaded: LoadedSession,
    *,
    card: str = "claude-sonnet-4-5",
    ttl: Literal["5m", "1h"] = "5m",
    shuffled: int | None = None,
    modes: Collection[str] = MODES,
) -> Iterator[GatewayRow]:
    """Yield a row for each of the modes. With `shuffled`, the pauses between requests are exchanged with each other, by this seed."""
    recording = loaded.recording if shuffled is None else with_shuffled_pauses(loaded.recording, shuffled)
    index, model = RecordingIndex(recording.steps), replay_card(card)
    client = profile(CLIENT)
    alone = figures([replay(recording, client, model, ttl=ttl, index=index)])
    for mode in modes:
        found, bills = replayed_with_bills(recording, index, behind_gateway(client, profile(MODES[mode]), model), model, ttl)
        yield GatewayRow(
            mode,
            1,
            alone.usd,
            found.usd,
            bills.usd_sent,
            bills.usd_direct,
            bills.worst,
            alone.folds,
            found.folds,
            alone.rereads_by.get("text", 0),
            found.rereads_by.get("text", 0),
            found.invalid,
            len(recording.steps),
            bills.needy,
        )


def replayed_with_bills(
    recording: RecordedSession, index: RecordingIndex, used: Profile, card: ModelCard, ttl: Literal["5m", "1h"], *, ours: bool = True
) -> tuple[Figures, DirectBilling]:
    """Replay a recording under a profile, behind our gateway or another one, and return its figures, and the simulation with both bills."""
    simulation = DirectBilling(recording, index, used, card, ttl)
    simulation.bill_directly(card, ttl, ours=ours)
    replaying = Replay(simulation, index, unseen_head(recording))
    complete(replaying.replay_all(recording.steps, lambda *_: None))
    simulation.needy = len(set(replaying.needy_steps["text"]))
    return figures([replaying.outcome(timing=False)]), simulation


def with_shuffled_pauses(recording: RecordedSession, seed: int) -> RecordedSession:
    """Return a recording whose pauses between requests are exchanged with each other."""
    pauses = [max(0, after.at - before.at) for before, after in pairwise(recording.steps)]
    random.Random(seed).shuffle(pauses)  # noqa: S311 - the same pauses in every run
    return with_pauses(recording, pauses)


def with_pauses(recording: RecordedSession, pauses: Sequence[int]) -> RecordedSession:
    """Return a recording with these pauses between its requests, in milliseconds, one fewer than it has requests."""
    times = accumulate(pauses, initial=recording.steps[0].at) if recording.steps else ()
    return with_fields(recording, steps=tuple(gateway_table_replace(step, at=at) for step, at in zip(recording.steps, times, strict=True)))


# The settings under which no mode may make the bill of any session higher: a name, the card, the lifetime, and the seed of the pauses.
LAW: Final[tuple[tuple[str, str, Literal["5m", "1h"], int | None], ...]] = (
    ("Sonnet 4.5, five minutes", "claude-sonnet-4-5", "5m", None),
    ("the same, pauses exchanged", "claude-sonnet-4-5", "5m", 1),
    ("Sonnet 4.5, one hour", "claude-sonnet-4-5", "1h", None),
    ("the same, pauses exchanged", "claude-sonnet-4-5", "1h", 1),
    ("GPT-5.5, automatic cache", "gpt-5.5", "5m", None),
    ("the same, pauses exchanged", "gpt-5.5", "5m", 1),
)


class GatewayReport(Value, frozen=True):
    """The modes on long sessions of Claude Code, all of them and each half; and the sums over all sessions for each setting of the law."""

    modes: tuple[GatewayRow, ...]
    even: tuple[GatewayRow, ...] = ()
    odd: tuple[GatewayRow, ...] = ()
    law: tuple[tuple[GatewayRow, ...], ...] = ()


def gateway_report(sessions: Iterable[LoadedSession], *, announce: Callable[[str], None] = lambda _text: None) -> GatewayReport:
    """Return the rows of both tables; the first has the sessions of Claude Code that are long enough to come near a compaction."""
    law: list[tuple[GatewayRow, ...]] = []
    found = tuple(sessions)
    long: list[list[GatewayRow]] = []
    for name, card, ttl, shuffled in LAW:
        announce(f"replaying {len(found)} sessions behind the gateway: {name}")
        rows = [list(gateway_rows(loaded, card=card, ttl=ttl, shuffled=shuffled)) for loaded in found]
        if not law:
            is_long = [loaded.format == _CLAUDE and loaded.recording.tokens >= LONG_TOKENS for loaded in found]
            long = [each for each, wanted in zip(rows, is_long, strict=True) if wanted]
        law.append(_by_mode(rows))
    return GatewayReport(_by_mode(long), _by_mode(long[::2]), _by_mode(long[1::2]), tuple(law))


def _by_mode(rows: Sequence[Sequence[GatewayRow]]) -> tuple[GatewayRow, ...]:
    return tuple(summed(each) for each in zip(*rows, strict=True))


def summed(rows: Sequence[GatewayRow]) -> GatewayRow:
    """Return the sums of rows of one mode; `worst` is the highest."""
    return GatewayRow(
        rows[0].mode,
        len(rows),
        sum(row.usd_client for row in rows),
        sum(row.usd for row in rows),
        sum(row.usd_sent for row in rows),
        sum(row.usd_direct for row in rows),
        max(row.worst for row in rows),
        sum(row.compactions_client for row in rows),
        sum(row.compactions for row in rows),
        sum(row.rereads_client for row in rows),
        sum(row.rereads for row in rows),
        sum(row.invalid for row in rows),
        sum(row.steps for row in rows),
        sum(row.needy for row in rows),
    )


def gateway_markdown(report: GatewayReport) -> str:
    """Return the table of the modes as Markdown."""
    columns = ("mode", "cost against the client alone", "on each half", "against the same requests sent directly", "compactions")
    lines = [f"| {' | '.join((*columns, 're-reads by text', 'steps in need of something hidden'))} |", "|---" * 7 + "|"]
    lines += [
        f"| {row.mode} | {row.usd / row.usd_client:.3f}x | {even.usd / even.usd_client:.3f}x, {odd.usd / odd.usd_client:.3f}x "
        f"| {row.usd_sent / row.usd_direct:.3f}x | {row.compactions} of {row.compactions_client} | {row.rereads} of {row.rereads_client} "
        f"| {row.needy} of {row.steps:,} |"
        for row, even, odd in zip(report.modes, report.even, report.odd, strict=True)
    ]
    return "\n".join(lines)


def law_markdown(report: GatewayReport) -> str:
    """Return the table of the worst sessions as Markdown: the highest ratio to the same requests sent directly, after any request."""
    lines = ["| worst session, wherever it ends | " + " | ".join(MODES) + " |", "|---" * (len(MODES) + 1) + "|"]
    for (name, *_), rows in zip(LAW, report.law, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{row.worst:.3f}" for row in rows) + " |")
    return "\n".join(lines)
