"""Runs asynchronous work so that a request to stop the process ends it cleanly: what is under way is cancelled and recorded first."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
# What a service manager, a closed terminal and a shutdown send. Ctrl-C is turned into a cancellation by asyncio itself.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work. Raises `SystemExit` with 128 and the signal's number if the process is told to stop before that."""
    stopped: list[int] = []

    async def stoppable() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def stop(number: int) -> None:
            stopped.append(number)
            if task is not None:
                task.cancel()

        for number in SIGNALS:
            # Only the main thread of a Unix process can be told so.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise SystemExit(128 + stopped[0]) from None
