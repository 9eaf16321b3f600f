"""The tools `grep` and `glob`: lines and files of the project by pattern, with ripgrep where it is installed."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.agent.processes import wait_killed
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, define, one_line
from palimpsest.agent.workspace import Workspace, program_outside
from palimpsest.coding.tools.globs import glob_expression

GREP: Final = "grep"
GLOB: Final = "glob"
MOST_LINES: Final = 500
LONGEST_LINE: Final = 400
"""Characters of one line that are shown."""
LARGEST_FILE: Final = 5_000_000
SKIPPED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
MOST_FILES: Final = 500
SECONDS: Final = 30
WRONG_PATTERN: Final = 2
"""Exit code of a search whose pattern or glob cannot be read."""


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`glob` restricts the files by name; `path` is a file or a folder."""

    pattern: str
    path: str = "."
    glob: str = ""
    ignore_case: bool = False


class GlobArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern such as `src/**/*.py`."""

    pattern: str
    path: str = "."


def grep_tool(*, ripgrep: bool = True, seconds: float = SECONDS) -> AgentTool:
    """The tool; without `ripgrep` it searches with Python, also where the program is installed. `seconds` limits one search."""

    async def grep(arguments: GrepArguments, workspace: Workspace) -> ToolOutput:
        return await _grep(arguments, workspace, _ripgrep(workspace) if ripgrep else None, seconds)

    return define(
        GrepArguments,
        grep,
        name=GREP,
        description=(
            "Find lines that match a regular expression in the files of the project. Returns `path:line:text`, at most "
            f"{MOST_LINES} lines. `path` restricts the search to a folder or file, `glob` to file names such as `*.py`."
        ),
        kind="reads",
        parallel=True,
    )


def glob_tool() -> AgentTool:
    """The tool."""
    return define(
        GlobArguments,
        _glob,
        name=GLOB,
        description=f"List files of the project by a pattern such as `src/**/*.py`, newest first, at most {MOST_FILES}.",
        kind="reads",
        parallel=True,
    )


async def _grep(arguments: GrepArguments, workspace: Workspace, ripgrep: str | None, seconds: float) -> ToolOutput:
    path = workspace.resolve_to_read(arguments.path)
    if not path.exists():
        raise ToolError(f"there is no file or folder {arguments.path}", where=arguments.path)
    lines = await _by_ripgrep(ripgrep, arguments, path, workspace, seconds) if ripgrep is not None else None
    if lines is None:
        lines = await _by_python(arguments, path, workspace, seconds)
    if not lines:
        return ToolOutput("no line matches")
    more = [f"[more than {MOST_LINES} lines match; narrow the search]"] if len(lines) > MOST_LINES else []
    return ToolOutput("\n".join((*lines[:MOST_LINES], *more)))


def _ripgrep(workspace: Workspace) -> str | None:
    """The program, from the search path or from the package that the extra `search` installs beside Python.

    One that lies in the workspace is not used: the project or the agent can have brought it.
    """
    beside_python = Path(sys.executable).parent / "rg"
    folders = workspace.folders
    is_usable = os.access(beside_python, os.X_OK) and not any(folder in beside_python.resolve().parents for folder in folders)
    return program_outside("rg", *folders) or (str(beside_python) if is_usable else None)


async def _by_ripgrep(program: str, arguments: GrepArguments, path: Path, workspace: Workspace, seconds: float) -> list[str] | None:
    """The lines that ripgrep finds, or `None` if it does not know the pattern: it has no look-around and no back-references."""
    options = ["--line-number", "--no-heading", "--color=never", "--with-filename", "--null", "--no-messages", "--sort=path"]
    options += [f"--max-columns={LONGEST_LINE}", "--max-columns-preview"]
    options += ["--ignore-case"] if arguments.ignore_case else []
    options += ["--glob", arguments.glob] if arguments.glob else []
    # The same files as without ripgrep; the last glob that names a folder decides.
    options += ["--hidden", *(f"--glob=!**/{name}/" for name in sorted(SKIPPED))]
    lines, code = await _lines_of((program, *options, "--regexp", arguments.pattern, "--", workspace.shown(path)), workspace, seconds)
    # Exit code 2 is also returned if a file could not be read, but then there are usually lines.
    return None if code == 2 and not lines else list(_with_colons(lines))


def _with_colons(lines: list[str]) -> Iterator[str]:
    """Lines with a colon behind the path in place of the zero byte; a path with a line break could pass for another, and is left out."""
    broken = False
    for line in lines:
        path, mark, text = line.partition("\0")
        if mark and not broken:
            yield f"{path.removeprefix('./')}:{text}"
        broken = not mark


async def _by_python(arguments: GrepArguments, path: Path, workspace: Workspace, seconds: float) -> list[str]:
    """The lines that Python finds, in a process of its own: a pattern can take exponential time, and no thread can be stopped."""
    given = {"pattern": arguments.pattern, "glob": arguments.glob, "ignore_case": arguments.ignore_case}
    options = {**given, "path": str(path), "root": str(workspace.root)}
    program = (sys.executable, "-P", "-m", "palimpsest.coding.tools.pure_grep", json.dumps(options))
    lines, code = await _lines_of(program, workspace, seconds)
    if code == WRONG_PATTERN and lines:
        raise ToolError(one_line(lines[-1]))
    if code not in (0, None):
        raise ToolError(f"the search failed: {one_line(lines[-1]) if lines else f'exit code {code}'}")
    root = f"{workspace.root}{os.sep}"
    return [line.removeprefix(root) for line in lines]


async def _lines_of(program: tuple[str, ...], workspace: Workspace, seconds: float) -> tuple[list[str], int | None]:
    """The first lines that a program prints, and its exit code, or `None` if it was ended because there were enough."""
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=workspace.root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    lines: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while process.stdout is not None and len(lines) <= MOST_LINES and (line := await process.stdout.readline()):
                lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            return lines, await process.wait() if len(lines) <= MOST_LINES else None
    except TimeoutError as error:
        raise ToolError(f"the search took more than {seconds:g} s; narrow it to a folder, or use a simpler pattern") from error
    finally:
        if process.returncode is None:
            process.kill()
            await wait_killed(process)


async def _glob(arguments: GlobArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve_to_read(arguments.path)
    found = await asyncio.to_thread(lambda: _globbed(path, arguments.pattern, workspace))
    if not found:
        return ToolOutput("no file matches")
    more = [f"[{len(found) - MOST_FILES:,} more files match; narrow the pattern]"] if len(found) > MOST_FILES else []
    return ToolOutput("\n".join((*found[:MOST_FILES], *more)))


def _globbed(path: Path, pattern: str, workspace: Workspace) -> list[str]:
    wanted = re.compile(glob_expression(pattern.removeprefix("./")))
    end = time.monotonic() + SECONDS
    matching: list[tuple[int, str]] = []
    for file in files_below(path):
        if time.monotonic() > end:
            raise ToolError(f"the search took more than {SECONDS} s; narrow it to a folder")
        if "\n" not in str(file) and wanted.fullmatch(file.relative_to(path).as_posix()):
            # A file may vanish while its folder is listed.
            with suppress(OSError):
                matching.append((-file.stat().st_mtime_ns, workspace.shown(file)))
    return [name for _, name in sorted(matching)]


def files_below(path: Path) -> Iterator[Path]:
    """The regular files below a folder by name, or the file itself; links and the folders of `SKIPPED` are left out."""
    if path.is_file():
        yield path
        return
    # Without recursion, because folders may be nested as deep as their path is long.
    waiting = [path]
    while waiting:
        place = waiting.pop()
        if place.is_symlink() and place != path:
            continue
        if not place.is_dir():
            if place.is_file():
                yield place
        elif place == path or place.name not in SKIPPED:
            # A folder may vanish, or may not be searched.
            with suppress(OSError):
                waiting += sorted(place.iterdir(), reverse=True)
