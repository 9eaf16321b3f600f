"""`pal mcp` as a process over HTTP."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND: tuple[str, ...] = (sys.executable, "-m", "pal.cli", "mcp")


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """The address of a server over HTTP."""
    process = subprocess.Popen([*COMMAND, "--http"], env={**os.environ, "PAL_HOME": str(home)}, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("pal mcp: http://127.0.0.1:")
        assert said.endswith(f", token in {home / 'mcp-token'}\n")
        yield said.removeprefix("pal mcp: ").partition(",")[0]
    finally:
        process.terminate()
        process.communicate(timeout=120)
