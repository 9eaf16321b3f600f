"""Where `pal` begins: an interrupt while its modules are loaded ends it as quietly as a later one."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """The entry point of `pal`."""
    try:
        from palimpsest.apps.cli.main import main as run  # noqa: PLC0415 - an interrupt while this loads is to be caught here

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
