"""The modes of our gateway, context editing by the provider and other tools, each on the traffic of the same recorded sessions."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

import msgspec

from palimpsest.core.format.texts import counted
from palimpsest.core.items import Value
from palimpsest.core.policy import Plan, Policy
from palimpsest.core.situation import Moment, Situation
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.lab.simulation.behind_gateway import behind_gateway
from palimpsest.lab.simulation.gateway_peers.policy import Messages, PeerPolicy, PeerProcess, message_list
from palimpsest.lab.simulation.gateway_table import CLIENT, LONG_TOKENS, MODES, replayed_with_bills
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.simulation import replay_card
from palimpsest.policies.clear.tool_uses import ClearToolUses
from palimpsest.profiles.named import profile
from palimpsest.profiles.profile import Profile

_CARD: Final = "claude-sonnet-4-5"
_OURS: Final = ("lossless", "palimpsest", "thrifty")
_EDITING: Final[Mapping[str, ClearToolUses]] = {
    "context editing, evaluated again at each call": ClearToolUses(),
    "context editing, sticky, at least 20k": ClearToolUses(clear_at_least=20_000, sticky=True),
}
# Tokens of the requests of which the time is measured, and how many of them.
_TIMED_TOKENS: Final = range(140_000, 160_000)
_TIMED_LISTS: Final = 8
_UNMEASURED: Final = " \\*"


class PeerRow(Value, frozen=True):
    """One way to send the requests of a client; tokens and dollars are those of the requests as sent, and as given.

    `hidden` counts steps that needed text which was no longer shown, `hidden_alone` those of the client alone. `ms` is of one request of
    150,000 tokens. `failures` counts requests that a peer could not edit. A row that is not `measured` has earlier figures.
    """

    name: str
    version: str = ""
    measured: bool = True
    sessions: int = 0
    turns: int = 0
    tokens_ratio: float = 1.0
    usd_ratio: float = 1.0
    worst: float = 1.0
    hidden: int | None = None
    hidden_alone: int = 0
    ms: float | None = None
    failures: int = 0


def _earlier(name: str, ratios: tuple[float, float], hidden: int | None, ms: float, turns: int = 1_484) -> PeerRow:
    return PeerRow(name, measured=False, sessions=8, turns=turns, tokens_ratio=ratios[0], usd_ratio=ratios[1], hidden=hidden, ms=ms)


# By the name of the worker. Earlier figures: eight recorded sessions of Claude Code with 1,657 calls, cache entries of five minutes, on
# another machine, with Headroom 0.42 and llmtrim 0.13.7; what the client alone hides is not counted there. A row without sessions is
# shown only if it was measured.
PEERS: Final[Mapping[str, PeerRow]] = {
    "headroom": PeerRow("Headroom's library, all at each call", measured=False),
    "headroom-frozen": PeerRow("Headroom's library, what was sent is frozen", measured=False),
    "llmtrim": _earlier("llmtrim", (1.0, 1.006), 0, 25),
    "litellm-100k": _earlier("LiteLLM compress, 100k", (1.0, 1.0), None, 114),
    "litellm-50k-hidden": _earlier("LiteLLM compress, 50k, breakpoints hidden", (0.876, 2.66), 10, 346, 469),
}

# What follows the replies of the model, as its proxy does, cannot be measured in a replay.
EARLIER: Final = (
    _earlier("Headroom's proxy, cache mode", (0.961, 0.964), 4, 137),
    _earlier("Headroom's proxy, token mode", (0.981, 0.984), 5, 150),
)


@dataclass
class _Sampler:
    """Keeps the message lists of some requests of about 150,000 tokens, and changes nothing."""

    lists: list[Messages] = field(default_factory=list)
    name: str = "sampler"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        if situation.used in _TIMED_TOKENS and len(self.lists) < _TIMED_LISTS:
            self.lists.append(message_list(situation.view.items))
        return ()


@dataclass
class _Totals:
    """Sums over sessions."""

    sessions: int = 0
    turns: int = 0
    tokens_sent: int = 0
    tokens_direct: int = 0
    usd_sent: float = 0.0
    usd_direct: float = 0.0
    worst: float = 0.0
    hidden: int = 0

    def row(self, name: str, *, alone: int, ms: float | None, version: str = "", failures: int = 0) -> PeerRow:
        return PeerRow(
            name,
            version,
            measured=True,
            sessions=self.sessions,
            turns=self.turns,
            tokens_ratio=self.tokens_sent / self.tokens_direct,
            usd_ratio=self.usd_sent / self.usd_direct,
            worst=self.worst,
            hidden=self.hidden,
            hidden_alone=alone,
            ms=None if ms is None else round(ms, 1),
            failures=failures,
        )


class _Traffic:
    """The sessions that are replayed, indexed once, and what the client alone does with them."""

    def __init__(self, sessions: Sequence[LoadedSession], least: int, announce: Callable[[str], None]) -> None:
        self._sessions = [(each, RecordingIndex(each.recording.steps)) for each in sessions if each.recording.tokens >= least]
        self._announce = announce
        self._sampler = _Sampler()
        self.hidden_alone = self.replayed("the client alone", (self._sampler,)).hidden if self._sessions else 0

    @property
    def lists(self) -> list[Messages]:
        """Message lists of which the time is measured."""
        return self._sampler.lists

    @property
    def is_empty(self) -> bool:
        """Whether no session is long enough."""
        return not self._sessions

    def replayed(self, name: str, policies: tuple[Policy, ...] = (), behind: Profile | None = None) -> _Totals:
        """Return the sums of all sessions with further policies before those of the client, or with the client behind a gateway."""
        total, model, client = _Totals(), replay_card(_CARD), profile(CLIENT)
        used = replace(client, policies=(*policies, *client.policies)) if behind is None else behind_gateway(client, behind, model)
        for loaded, index in self._sessions:
            self._announce(f"{name}: {loaded.id}")
            found, bills = replayed_with_bills(loaded.recording, index, used, model, "5m", ours=behind is not None)
            total.sessions += 1
            total.turns += bills.turns
            total.tokens_sent += bills.tokens_sent
            total.tokens_direct += bills.tokens_direct
            total.usd_sent += bills.usd_sent
            total.usd_direct += bills.usd_direct
            total.worst = max(total.worst, bills.usd_sent / bills.usd_direct)
            total.hidden += found.rereads_by.get("text", 0)
        return total


def peer_rows(
    sessions: Sequence[LoadedSession], python: str, announce: Callable[[str], None] = lambda _text: None, *, least: int = LONG_TOKENS
) -> Iterator[PeerRow]:
    """Yield a row for each way; peers that are not installed in `python` have earlier figures.

    Sessions of fewer than `least` tokens are left out; without any that is long enough, nothing is yielded.
    """
    traffic = _Traffic(sessions, least, announce)
    if traffic.is_empty:
        return
    alone = traffic.hidden_alone
    for name in _OURS:
        ms = _own_ms(MODES[name], traffic.lists)
        yield traffic.replayed(name, behind=profile(MODES[name])).row(f"`{name}`", alone=alone, ms=ms)
    for name, policy in _EDITING.items():
        yield traffic.replayed(name, (policy,)).row(name, alone=alone, ms=None)
    for worker, earlier in PEERS.items():
        with ExitStack() as stack:
            process = stack.enter_context(PeerProcess(worker, python))
            if not process.version:
                if earlier.sessions:
                    yield earlier
                continue
            times = [process.edit(messages)[1] for messages in traffic.lists]
            editor = stack.enter_context(PeerProcess(worker, python))
            total = traffic.replayed(earlier.name, (PeerPolicy(editor),))
            ms = median(times) if times else None
            yield total.row(earlier.name, alone=alone, ms=ms, version=process.version, failures=editor.failures)
    yield from EARLIER


def _own_ms(name: str, lists: Sequence[Messages]) -> float | None:
    """Milliseconds in which a profile of ours prepares a list that extends one it has seen; `None` without lists."""
    times: list[float] = []
    with Conversation.open(model=_CARD, profile=name) as conversation:
        for messages in lists:
            # Each request of a client is parsed by itself, so that no two lists share a text.
            given = msgspec.json.decode(msgspec.json.encode(messages))
            begun = time.perf_counter()
            conversation.prepare(given)
            times.append((time.perf_counter() - begun) * 1_000)
    return median(times[1:]) if len(times) > 1 else None


def peers_markdown(rows: Sequence[PeerRow]) -> str:
    """Return the table as Markdown."""
    heads = ("", "tokens forwarded", "billed †", "worst session †", "steps in need of something hidden", "ms at 150k tokens")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        name = f"{row.name}{f' ({row.version})' if row.version else ''}{'' if row.measured else _UNMEASURED}"
        worst = f"{row.worst:.3f}x" if row.measured else "–"
        ms = "–" if row.ms is None else f"{row.ms:.0f}"
        lines.append(f"| {name} | {row.tokens_ratio:.3f}x | {row.usd_ratio:.3f}x | {worst} | {_hidden_cell(row)} | {ms} |")
    measured = [row for row in rows if row.measured]
    notes = ["† Against the same requests sent directly."]
    if measured:
        sessions, needed = counted(measured[0].sessions, "session"), counted(measured[0].hidden_alone, "step")
        notes.append(f"{sessions}; {needed} in need of what the client's own compactions alone hide, which are included.")
    if len(measured) < len(rows):
        notes.append("\\* Not measured in this run: figures of an earlier run over eight sessions, without what the client alone hides.")
    return "\n".join(lines) + "\n\n" + " ".join(notes)


def _hidden_cell(row: PeerRow) -> str:
    return "–" if row.hidden is None else f"{row.hidden:,} of {row.turns:,}"
