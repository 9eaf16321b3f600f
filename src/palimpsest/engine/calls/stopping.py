"""Runs a coroutine and turns Ctrl-C, SIGTERM and SIGHUP into its cancellation, so that open calls are recorded before the process ends."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
# Sent by the keyboard, by service managers and by closed terminals. Asyncio would turn only the first Ctrl-C into a cancellation and raise
# an exception for the second at any line, also in the middle of what removes temporary folders.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the coroutine. Raises `SystemExit(128 + signal number)` if a signal of `SIGNALS` arrives first."""
    stopped: list[int] = []

    async def stoppable() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def stop(number: int) -> None:
            stopped.append(number)
            if task is not None:
                task.cancel()

        for number in SIGNALS:
            # Signal handlers can be installed only in the main thread, and only on Unix.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise SystemExit(128 + stopped[0]) from None
