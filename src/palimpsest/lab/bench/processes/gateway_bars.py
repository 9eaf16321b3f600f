"""Bars of the gateway: its time for a request in each mode, the slowest event of many streams, and its memory over many requests."""

import asyncio
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.processes.gateway import (
    LONG_ROUNDS,
    GatewayProcess,
    LoopbackProvider,
    body_of,
    gateway_between,
    round_of,
    rounds_before,
)
from palimpsest.lab.bench.processes.streams import time_streams
from palimpsest.lab.bench.workspace import BenchWorkspace

GATEWAY_BARS: Final = frozenset({"gateway_ms", "stream_ms", "gateway_growth"})
_MODES: Final = ("watch", "lossless", "palimpsest", "thrifty")
_STREAM_RUNS: Final = 3
_PATIENCE_S: Final = 60.0
# Requests of a session of the soak, and sessions that are open at once.
_SESSION_REQUESTS: Final = 10
_SESSIONS_AT_ONCE: Final = 5


def measure_gateway(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `gateway_ms`, `stream_ms` and `gateway_growth`."""
    if "gateway_ms" in wanted:
        workspace.announce("requests through the gateway")
        found: dict[str, float] = {}
        for mode in _MODES:
            with gateway_between(workspace.pal_command, mode, workspace.folder / f"gateway-{mode}") as (process, provider):
                samples = [*forwarding_seconds(process, provider, workspace.sizes.rounds)]
            found |= {mode: median(samples) * 1_000, f"{mode}_worst": max(samples) * 1_000}
        yield bar("gateway_ms", max(found[mode] for mode in _MODES), None, **found)
    if "stream_ms" in wanted:
        workspace.announce("streams through the gateway")
        # Other programs of the machine can only make an event slower, so the run that they disturbed least shows what the gateway does.
        runs = [_event_delays_ms(workspace, number) for number in range(min(_STREAM_RUNS, workspace.sizes.streams))]
        delays = min(runs, key=lambda each: each[-1])
        yield bar("stream_ms", delays[-1], median_ms=median(delays), p99_ms=delays[len(delays) * 99 // 100])
    if "gateway_growth" in wanted:
        workspace.announce("memory of the gateway")
        home, requests = workspace.folder / "gateway-soak", 2 * workspace.sizes.terminal_turns
        with gateway_between(workspace.pal_command, "palimpsest", home) as (process, provider):
            half, end = memory_by_halves(process, provider, requests)
        yield bar("gateway_growth", end / half, half_kb=half, last_kb=end, requests=requests)


def forwarding_seconds(process: GatewayProcess, provider: LoopbackProvider, count: int) -> Iterator[float]:
    """Yield the seconds from the first byte of a request to its first byte at the provider, for requests that go on by a round each."""
    messages = rounds_before(LONG_ROUNDS)
    for number in range(LONG_ROUNDS, LONG_ROUNDS + count + 1):
        provider.round = number
        begun = process.ask(body_of(messages), "bench")
        seconds = provider.arrived.get(timeout=_PATIENCE_S) - begun
        # The first request has all of the list, which is new to the gateway.
        if number > LONG_ROUNDS:
            yield seconds
        messages += round_of(number)


def _event_delays_ms(workspace: BenchWorkspace, number: int) -> list[float]:
    home, sizes = workspace.folder / f"gateway-streams-{number}", workspace.sizes
    return asyncio.run(time_streams(workspace.pal_command, "thrifty", home, streams=sizes.streams, events=sizes.stream_events)).delays_ms()


def memory_by_halves(process: GatewayProcess, provider: LoopbackProvider, requests: int) -> tuple[int, int]:
    """Send requests of sessions that begin and end, and return the memory of the gateway after half of them and after all, in kB."""
    memory: list[int] = []
    lists: dict[int, list[dict[str, Any]]] = {}
    for number in range(requests):
        block, place = divmod(number, _SESSIONS_AT_ONCE * _SESSION_REQUESTS)
        turn, session = place // _SESSIONS_AT_ONCE, block * _SESSIONS_AT_ONCE + place % _SESSIONS_AT_ONCE
        first = {"role": "user", "content": [{"type": "text", "text": f"Session {session}."}]}
        messages = lists.pop(session, [first])
        # No text of a session is in another one.
        provider.round = session * 2 * _SESSION_REQUESTS + turn
        process.ask(body_of(messages), f"session-{session}")
        provider.arrived.get(timeout=_PATIENCE_S)
        if turn + 1 < _SESSION_REQUESTS:
            lists[session] = [*messages, *round_of(provider.round)]
        if number + 1 in (requests // 2, requests):
            memory.append(process.memory_kb())
    return memory[0], memory[-1]
