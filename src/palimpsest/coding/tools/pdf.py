"""The text of PDF files, extracted by `pypdf` in a process of its own, because a hostile file can take all time and memory."""

import asyncio
import importlib
import io
import json
import sys
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct
from msgspec import json as fast_json

from palimpsest.agent.processes import wait_killed
from palimpsest.agent.tool import ToolError, one_line

SECONDS: Final = 60
MOST_PAGES: Final = 50
LONGEST_PAGE: Final = 50_000
"""Characters of one page that are shown."""
_MEMORY: Final = 2_000_000_000
_MISSING: Final = "missing"


class PdfText(Struct, frozen=True):
    """The texts of some pages of a file that has `total` pages; `problem` says why there are none."""

    total: int = 0
    pages: tuple[str, ...] = ()
    problem: str = ""


async def pdf_text(name: str, data: bytes, first: int, count: int) -> PdfText:
    """The texts of `count` pages from page `first` on, which counts from 1.

    Raises `ToolError` if the file cannot be read within `SECONDS`, or if `pypdf` is not installed.
    """
    # -P keeps the working directory out of the module path: a project must not be able to put its own modules there.
    program = (sys.executable, "-P", "-m", "palimpsest.coding.tools.pdf", str(first), str(min(count, MOST_PAGES)))
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(SECONDS):
            printed, _ = await process.communicate(data)
        found = fast_json.decode(printed, type=PdfText)
    except TimeoutError as error:
        raise ToolError(f"{name} could not be read within {SECONDS} s", where=name) from error
    except ValueError as error:
        raise ToolError(f"{name} cannot be read: the process that reads it ended with {process.returncode}", where=name) from error
    finally:
        if process.returncode is None:
            process.kill()
            await wait_killed(process)
    if found.problem == _MISSING:
        raise ToolError("PDF files need the package pypdf; install it with: pip install 'palimpsest-agent[pdf]'", where=name)
    if found.problem:
        raise ToolError(f"{name} cannot be read: {found.problem}", where=name)
    return found


def _extracted(data: bytes, first: int, count: int) -> PdfText:
    try:
        pypdf: Any = importlib.import_module("pypdf")
    except ImportError:
        return PdfText(problem=_MISSING)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return PdfText(problem="it is protected by a password")
        total = len(reader.pages)
        pages = [reader.pages[number].extract_text()[:LONGEST_PAGE] for number in range(first - 1, min(total, first - 1 + count))]
    except Exception as error:  # noqa: BLE001 - a damaged file raises errors of many kinds, and the reader of this process wants one line
        return PdfText(problem=one_line(f"{type(error).__name__}: {error}"))
    return PdfText(total, tuple(pages))


def main() -> None:
    """Read a PDF file from standard input, and print a `PdfText` as JSON; the arguments are the first page and the number of pages."""
    with suppress(ImportError, OSError, ValueError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    first, count = map(int, sys.argv[1:3])
    found = _extracted(sys.stdin.buffer.read(), first, count)
    # ASCII only, because a page may hold lone surrogates.
    text = json.dumps({"total": found.total, "pages": found.pages, "problem": found.problem}, ensure_ascii=True)
    sys.stdout.write(text.encode("utf-8", "replace").decode())


if __name__ == "__main__":
    main()
