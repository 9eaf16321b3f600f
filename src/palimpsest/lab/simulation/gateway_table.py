"""What the modes of the gateway cost on recorded sessions: against the client alone, and against the same requests sent directly."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as with_fields
from itertools import pairwise
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Value
from palimpsest.core.policy import complete
from palimpsest.core.view import View
from palimpsest.lab.outcome import Figures, figures
from palimpsest.lab.simulation.behind_gateway import behind_gateway
from palimpsest.lab.simulation.cache_simulator import CacheSimulator
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording import RecordedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.replay import Replay, replay, unseen_head
from palimpsest.lab.simulation.simulated_requests import SimulatedRequest
from palimpsest.lab.simulation.simulation import Simulation, replay_card
from palimpsest.profiles.named import profile
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import cost

CLIENT: Final = "claude-code-2.1.325"
MODES: Final = {
    "lossless": "lossless",
    "lossless, keep-alive": "lossless@PAL_KEEP_ALIVE=on",
    "palimpsest": "gateway",
    "palimpsest, keep-alive": "gateway@PAL_KEEP_ALIVE=on",
    "thrifty": "gateway-thrifty",
}
"""The modes that change anything, with their profiles."""
LONG_TOKENS: Final = 150_000
"""Sessions of fewer tokens never come near a compaction."""


class GatewayRow(Value, frozen=True):
    """One session in one mode, in dollars: the client alone, and behind the gateway.

    `usd` is the whole cost, with summaries and re-reads; `usd_sent` that of the forwarded requests alone, which `usd_direct` compares with.
    `worst` is the highest ratio of these two after any request, had the session ended there; of a sum, that of any session.
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


class DirectBilling(Simulation):
    """A simulation that also bills each request of the conversation as the client gave it: without masks, with its own breakpoints.

    `turns`, `tokens_sent` and `tokens_direct` count those requests and the tokens of their prompts, as they were sent and as given.
    """

    def bill_directly(self, card: ModelCard, ttl: Literal["5m", "1h"], *, ours: bool = True) -> None:
        """Begin with the second bill; our gateway sets a breakpoint of its own, and its policies know both bills."""
        self.simulator = CacheSimulator(card, self.counter.item, anchored=ours)
        self._direct, self._ttl = CacheSimulator(card, self.counter.item), ttl
        self.usd_sent = self.usd_direct = self.worst = 0.0
        self.turns = self.tokens_sent = self.tokens_direct = 0
        self.session.two_bills = (lambda: (self.usd_sent, self.usd_direct)) if ours else None

    def _turn(self, request: SimulatedRequest) -> ModelReplied:
        reply = super()._turn(request)
        given = self._direct.turn(_as_given(request.view), replace(request.params, ttl=self._ttl), self.now)
        self.usd_direct += cost(replace(given, output=reply.usage.output), self.session.card).total
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
    return replace(view, items=tuple(item if item.mask is None else replace(item, mask=None) for item in view.items))


def gateway_rows(
    loaded: LoadedSession, *, card: str = "claude-sonnet-4-5", ttl: Literal["5m", "1h"] = "5m", shuffled: int | None = None
) -> Iterator[GatewayRow]:
    """Yield a row for each mode. With `shuffled`, the pauses between requests are exchanged with each other, by this seed."""
    recording = loaded.recording if shuffled is None else with_shuffled_pauses(loaded.recording, shuffled)
    index, model = RecordingIndex(recording.steps), replay_card(card)
    client = profile(CLIENT)
    alone = figures([replay(recording, client, model, ttl=ttl, index=index)])
    for mode, name in MODES.items():
        found, bills = replayed_with_bills(recording, index, behind_gateway(client, profile(name), model), model, ttl)
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
        )


def replayed_with_bills(
    recording: RecordedSession, index: RecordingIndex, used: Profile, card: ModelCard, ttl: Literal["5m", "1h"], *, ours: bool = True
) -> tuple[Figures, DirectBilling]:
    """Replay a recording under a profile, behind our gateway or another one, and return its figures, and the simulation with both bills."""
    simulation = DirectBilling(recording, index, used, card, ttl)
    simulation.bill_directly(card, ttl, ours=ours)
    replaying = Replay(simulation, index, unseen_head(recording))
    complete(replaying.replay_all(recording.steps, lambda *_: None))
    return figures([replaying.outcome(timing=False)]), simulation


def with_shuffled_pauses(recording: RecordedSession, seed: int) -> RecordedSession:
    """Return a recording whose pauses between requests are exchanged with each other."""
    times = [step.at for step in recording.steps]
    pauses = [max(0, after - before) for before, after in pairwise(times)]
    random.Random(seed).shuffle(pauses)  # noqa: S311 - the same pauses in every run
    at, steps = times[0] if times else 0, []
    for step, pause in zip(recording.steps, [0, *pauses], strict=True):
        at += pause
        steps.append(replace(step, at=at))
    return with_fields(recording, steps=tuple(steps))


def gateway_table(
    sessions: Iterable[LoadedSession], *, shuffled: int | None = None, announce: Callable[[str], None] = lambda _text: None
) -> list[GatewayRow]:
    """Return one row for each mode, summed over the sessions of a client that are long enough to come near a compaction."""
    rows: list[GatewayRow] = []
    for loaded in sessions:
        if loaded.recording.tokens >= LONG_TOKENS:
            announce(f"replaying {loaded.id} behind the gateway")
            rows += gateway_rows(loaded, shuffled=shuffled)
    return [summed([row for row in rows if row.mode == mode]) for mode in MODES if rows]


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
    )


def gateway_markdown(rows: Sequence[GatewayRow]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| mode | cost against the client alone | worst session against the same requests sent directly | compactions | re-reads by text |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.mode} | {row.usd / row.usd_client:.3f}x | {row.worst:.3f}x | {row.compactions} of {row.compactions_client} "
        f"| {row.rereads} of {row.rereads_client} |"
        for row in rows
    ]
    return "\n".join(lines)
