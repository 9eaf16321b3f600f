"""Recorded sessions through `pal gateway` as a process: its bill against that of the same requests sent directly, and what it says."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import httpx

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.lab.bench.processes.live.honest_cache import MarkedCache, PrefixCache, PriceList
from palimpsest.lab.bench.processes.live.honest_provider import HonestProvider, output_of
from palimpsest.lab.bench.processes.live.recorded_requests import RecordedRequest, chat_body, marked_body, recorded_requests
from palimpsest.wire.models.cards import card

MOST_RATIO: Final = 1.01
"""The bill may be so many times that of the same requests sent directly, after any of them."""
MOST_ERROR: Final = 0.01
"""What the gateway says of either bill may be off by this share."""
MODELS: Final = ("claude-sonnet-4-5", "gpt-5.5")
MODES: Final = ("lossless", "palimpsest", "thrifty")
_LEAST_REQUESTS: Final = 5
_SECONDS: Final = 120.0


class LiveRow(Value, frozen=True):
    """One session in one mode: the true bills in dollars, the worst ratio of both after any request, and how wrong the gateway was at most.

    `error` is the largest share by which what it said of the second bill was off, after any request; `edited` requests were changed.
    """

    session: str
    mode: str
    model: str
    requests: int
    usd: float
    usd_direct: float
    worst: float
    worst_at: int
    error: float
    error_at: int
    edited: int
    ok: bool


def live_rows(
    files: Iterable[Path],
    folder: Path,
    command: Sequence[str],
    *,
    modes: Sequence[str] = MODES,
    models: Sequence[str] = MODELS,
    load: int = 0,
    most: int | None = None,
    announce: Callable[[str], None] = lambda _text: None,
) -> Iterator[LiveRow]:
    """Send the first `most` requests of each session through a gateway of each mode, while `load` other processes keep the machine busy."""
    with _busy(load):
        for path in files:
            requests = list(islice(recorded_requests(path), most))
            if len(requests) < _LEAST_REQUESTS:
                continue
            for mode in modes:
                for model in models:
                    announce(f"{path.stem}: {len(requests)} requests, {mode}, {model}")
                    yield _row(path.stem, requests, folder / f"{path.stem}-{mode}-{model}", command, mode=mode, model=model)


def transcripts(folder: Path) -> list[Path]:
    """Return the transcripts of Claude Code below a folder, without those of sub-agents."""
    return sorted(path for path in folder.rglob("*.jsonl") if "subagents" not in path.parts and _is_transcript(path))


def _is_transcript(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return any('"message":' in line and '"isSidechain":' in line for line in islice(lines, 50))


def _row(name: str, requests: Sequence[RecordedRequest], home: Path, command: Sequence[str], *, mode: str, model: str) -> LiveRow:
    marked = card(model).cache == "breakpoints"
    rates, writes = rates_of(model), card(model).prices.cache_write is not None
    provider, direct = HonestProvider(marked=marked, writes=writes), MarkedCache() if marked else PrefixCache(writes=writes)
    path = "/v1/messages" if marked else "/v1/chat/completions"
    headers = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": name} if marked else {"session-id": name}
    paid = without = worst = error = 0.0
    worst_at = error_at = edited = 0
    with gateway_process(command, mode, home, provider.url) as (url, reports), httpx.Client(trust_env=False, timeout=_SECONDS) as client:
        for number, request in enumerate(requests, 1):
            provider.now += request.pause
            provider.reply = request.reply
            body = marked_body(request, model, number) if marked else chat_body(request, model)
            client.post(url + path, json=body, headers=headers).raise_for_status()
            said = json.loads(reports())
            given = direct.bill(body, provider.now)._replace(output=output_of(request.reply))
            edited += provider.bodies.pop() != body
            paid += rates.dollars(provider.billed[-1])
            without += rates.dollars(given)
            if paid / without > worst:
                worst, worst_at = paid / without, number
            off = max(abs(said["usd"] / paid - 1), abs(said["usd_without"] / without - 1))
            if off > error:
                error, error_at = off, number
    provider.close()
    ok = worst <= MOST_RATIO and error <= MOST_ERROR
    return LiveRow(name, mode, model, len(requests), paid, without, worst, worst_at, error, error_at, edited, ok)


def rates_of(model: str) -> PriceList:
    """Return the prices of a model; what a cache has no price of its own for is input."""
    prices = card(model).prices
    write = prices.input if prices.cache_write is None else prices.cache_write
    read = prices.input if prices.cache_read is None else prices.cache_read
    return PriceList(prices.input, read, write, write if prices.cache_write_long is None else prices.cache_write_long, prices.output)


@contextmanager
def gateway_process(
    command: Sequence[str], mode: str, home: Path, upstream: str, *options: str
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """A gateway while it runs: its address, and a function that returns its next report."""
    read, write = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - measured
        (
            *command,
            "gateway",
            "--mode",
            mode,
            "--port",
            "0",
            "--anthropic",
            upstream,
            "--openai",
            upstream,
            "--wrapped",
            str(write),
            "--json-stream",
            *options,
        ),
        env={**os.environ, "PAL_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(write,),
    )
    os.close(write)
    try:
        with os.fdopen(read, "rb") as told:
            url = told.readline().decode().strip()
            if not url or process.stdout is None:
                raise StoreError("the gateway did not start", where="pal bench")
            yield url, process.stdout.readline
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Other processes that do nothing but take processor time, each until its standard input ends."""
    code = "import sys, threading; threading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0))).start()\nwhile True: pass"
    processes = [subprocess.Popen((sys.executable, "-c", code), stdin=subprocess.PIPE) for _ in range(count)]  # noqa: S603 - this program itself
    try:
        yield
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(_SECONDS)
