"""A gateway in a thread of its own, as `pal gateway` runs it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pal.gateway.gateway import Gateway, RequestReport, listening, serve
from pal.gateway.hosting import Mode
from pal.gateway.routing import Upstreams
from palimpsest.audit.two_bills import GatewayBill
from palimpsest.stores.home import Home


@dataclass
class RunningGateway:
    """Where it listens, what it reported, and the bill that it ended with."""

    url: str
    reports: list[RequestReport] = field(default_factory=list)
    total: GatewayBill | None = None


@contextmanager
def gateway_running(home: Home, mode: Mode, upstream: str, **options: Any) -> Iterator[RunningGateway]:
    """The gateway while it runs; at the end all that it records is recorded."""
    running, openai, head_s = RunningGateway(""), options.pop("openai", upstream), options.pop("head_s", 30.0)
    ready, loops = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def run() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        gateway = Gateway(home, mode, Upstreams(upstream, openai), report=running.reports.append, **options)

        def started(url: str) -> None:
            running.url = url
            ready.set()

        await serve(gateway, listening(0), started, stop, head_s=head_s)
        running.total = gateway.total

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(20)
        yield running
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
