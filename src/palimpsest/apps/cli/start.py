"""Entry point of `pal`, which also ends quietly on an interrupt while its modules are imported."""

import gc
import sys

_INTERRUPTED = 130
# Objects between two garbage collections. Modules never become garbage, and with the default of 700 looking for it takes 20 ms of a start.
_COLLECT_EVERY = 50_000


def main() -> None:
    """The entry point of `pal`."""
    gc.set_threshold(_COLLECT_EVERY)
    try:
        from palimpsest.apps.cli.main import main as run  # noqa: PLC0415 - an interrupt during this import must be caught here

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
