"""Entry point of `pal`, which also ends quietly on an interrupt while its modules are imported."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """The entry point of `pal`."""
    try:
        from palimpsest.apps.cli.main import main as run  # noqa: PLC0415 - an interrupt during this import must be caught here

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
