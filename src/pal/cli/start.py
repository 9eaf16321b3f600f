"""Entry point of `pal`, which also ends quietly on an interrupt while its modules are imported, and ends the process fast."""

import atexit
import gc
import os
import sys
from contextlib import suppress

_INTERRUPTED = 130
# Objects between two garbage collections. Modules never become garbage: with the default of 700 looking for it takes 20 ms of a start. A
# prompt that is answered at once needs 62,000 objects, and a single collection of so many takes 15 ms.
_COLLECT_EVERY = 100_000


def main() -> None:
    """The entry point of `pal`. Raises `SystemExit`; once it has been called, the process ends with the code of that exit."""
    gc.set_threshold(_COLLECT_EVERY)
    codes: list[int] = []
    # Functions run in reverse order at exit, and everything that is imported below registers its own later.
    atexit.register(_end_process, codes)
    try:
        from pal.cli.main import main as run  # an interrupt during this import must be caught here

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except SystemExit as stop:
        if isinstance(stop.code, int):
            codes.append(stop.code)
        raise


def _end_process(codes: list[int]) -> None:
    """End the process without freeing its objects, which takes 40 ms. By now threads have ended and exit functions have run."""
    if not codes:
        return
    # A closed stream was replaced by none, see `command_line`.
    if sys.stderr is not None:
        # A message that cannot be printed changes no exit code.
        with suppress(OSError, ValueError):
            sys.stderr.flush()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        # The interpreter reports it, with an exit code of its own.
        return
    os._exit(codes[-1] & 0xFF)
