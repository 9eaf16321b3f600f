"""The tools `grep` and `glob`: lines and files of the project by pattern, with ripgrep where it is installed."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.tools.workspace import Workspace

MOST_LINES: Final = 500
MOST_FILES: Final = 500
LONGEST_LINE: Final = 400
LARGEST_FILE: Final = 5_000_000
SECONDS: Final = 30
SKIPPED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


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


def grep_tool() -> AgentTool:
    """The tool."""
    return define(
        GrepArguments,
        _grep,
        name="grep",
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
        name="glob",
        description=f"List files of the project by a pattern such as `src/**/*.py`, newest first, at most {MOST_FILES}.",
        kind="reads",
        parallel=True,
    )


async def _grep(arguments: GrepArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve(arguments.path)
    if not path.exists():
        raise ToolError(f"there is no file or folder {arguments.path}", where=arguments.path)
    try:
        pattern = re.compile(arguments.pattern, re.IGNORECASE if arguments.ignore_case else 0)
    except re.error as error:
        raise ToolError(f"the pattern is no regular expression: {error}") from error
    ripgrep = _ripgrep(workspace)
    if ripgrep is not None:
        lines = await _by_ripgrep(ripgrep, arguments, path, workspace)
    else:
        lines = await asyncio.to_thread(lambda: _by_python(pattern, arguments, path, workspace))
    if not lines:
        return ToolOutput("no line matches")
    more = [f"[more than {MOST_LINES} lines match; narrow the search]"] if len(lines) > MOST_LINES else []
    return ToolOutput("\n".join((*lines[:MOST_LINES], *more)))


def _ripgrep(workspace: Workspace) -> str | None:
    """The program, unless it lies in the workspace, where the agent itself can have written it."""
    program = shutil.which("rg")
    if program is None:
        return None
    place = Path(program).resolve()
    return None if any(folder in place.parents for folder in (workspace.root, *workspace.extra)) else program


async def _by_ripgrep(program: str, arguments: GrepArguments, path: Path, workspace: Workspace) -> list[str]:
    options = [
        "--line-number",
        "--no-heading",
        "--color=never",
        "--with-filename",
        f"--max-columns={LONGEST_LINE}",
        "--max-columns-preview",
    ]
    options += ["--ignore-case"] if arguments.ignore_case else []
    options += ["--glob", arguments.glob] if arguments.glob else []
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        "--regexp",
        arguments.pattern,
        "--",
        workspace.shown(path),
        cwd=workspace.root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    lines: list[str] = []
    try:
        async with asyncio.timeout(SECONDS):
            while process.stdout is not None and len(lines) <= MOST_LINES and (line := await process.stdout.readline()):
                lines.append(line.decode("utf-8", "replace").rstrip("\n").removeprefix("./"))
            if len(lines) <= MOST_LINES and await process.wait() == 2 and process.stderr is not None:
                problem = (await process.stderr.read()).decode("utf-8", "replace").strip()
                raise ToolError(f"ripgrep could not search: {problem[:300]}")
    except TimeoutError as error:
        raise ToolError(f"the search took more than {SECONDS} s; narrow it to a folder") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return lines


def _by_python(pattern: re.Pattern[str], arguments: GrepArguments, path: Path, workspace: Workspace) -> list[str]:
    wanted = re.compile(translate(arguments.glob)) if arguments.glob else None
    lines: list[str] = []
    for file in _files(path):
        if wanted is not None and wanted.match(file.name) is None:
            continue
        lines += _matches(pattern, file, workspace.shown(file))
        if len(lines) > MOST_LINES:
            break
    return lines


def _matches(pattern: re.Pattern[str], file: Path, name: str) -> list[str]:
    try:
        if file.stat().st_size > LARGEST_FILE:
            return []
        data = file.read_bytes()
    except OSError:
        return []
    if b"\0" in data[:8_192]:
        return []
    numbered = enumerate(data.decode("utf-8", "replace").split("\n"), 1)
    return [f"{name}:{number}:{line[:LONGEST_LINE]}" for number, line in numbered if pattern.search(line)]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            file = Path(folder) / name
            if file.is_file() and not file.is_symlink():
                yield file


async def _glob(arguments: GlobArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve(arguments.path)
    found = await asyncio.to_thread(lambda: _globbed(path, arguments.pattern, workspace))
    if not found:
        return ToolOutput("no file matches")
    more = [f"[{len(found) - MOST_FILES:,} more files match; narrow the pattern]"] if len(found) > MOST_FILES else []
    return ToolOutput("\n".join((*found[:MOST_FILES], *more)))


def _globbed(path: Path, pattern: str, workspace: Workspace) -> list[str]:
    wanted = re.compile(glob_expression(pattern.removeprefix("./")))
    matching = [file for file in _files(path) if wanted.fullmatch(file.relative_to(path).as_posix())]
    return [workspace.shown(file) for file in sorted(matching, key=lambda file: (-file.stat().st_mtime_ns, str(file)))]


def glob_expression(pattern: str) -> str:
    """A glob pattern as a regular expression: `**` crosses folders, `*` and `?` do not, `{a,b}` is a choice."""
    out, place = "", 0
    while place < len(pattern):
        letter = pattern[place]
        if pattern.startswith("**/", place):
            out, place = out + "(?:[^/]+/)*", place + 3
        elif pattern.startswith("**", place):
            out, place = out + ".*", place + 2
        elif letter == "{" and "}" in pattern[place:]:
            end = pattern.index("}", place)
            out, place = out + "(?:" + "|".join(map(re.escape, pattern[place + 1 : end].split(","))) + ")", end + 1
        else:
            out, place = out + {"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)), place + 1
    return out
