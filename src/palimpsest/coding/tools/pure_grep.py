"""Finds lines by a regular expression without ripgrep; run as a program, because a pattern can take exponential time."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from palimpsest.agent.tool import ToolError
from palimpsest.coding.tools.globs import as_python, ignore_expression
from palimpsest.coding.tools.search import LARGEST_FILE, LONGEST_LINE, MOST_LINES, WRONG_PATTERN, files_below


def matching_lines(pattern: re.Pattern[str], path: Path, root: Path, glob: str = "") -> Iterator[str]:
    """The lines that match, as `path:line:text`; binary, large and unreadable files are left out.

    `glob` is read as ripgrep reads it: from `root`, a name without a slash in every folder, and `!` for what is left out. A file that
    `path` names itself is always searched.
    """
    wanted = _chosen(glob, root) if glob and not path.is_file() else None
    for file in files_below(path):
        # A path with a line break could pass for another one.
        if "\n" not in str(file) and (wanted is None or wanted(file, path)):
            yield from _matches(pattern, file, LARGEST_FILE if file != path else None)


def _chosen(glob: str, root: Path) -> Callable[[Path, Path], bool]:
    """Whether a glob chooses a file that is found below a folder."""
    leaves_out = glob.startswith("!")
    named = glob[1:] if leaves_out else glob.removeprefix("\\") if glob.startswith("\\!") else glob
    expression = re.compile(ignore_expression(named), re.DOTALL)

    def names(path: Path) -> bool:
        inside = path.relative_to(root) if path.is_relative_to(root) else path.relative_to("/")
        return expression.fullmatch(inside.as_posix()) is not None

    def chosen(file: Path, below: Path) -> bool:
        if not leaves_out:
            return not named.endswith("/") and names(file)
        above = file.relative_to(below).parents
        return not ((not named.endswith("/") and names(file)) or any(names(below / each) for each in above if each != Path()))

    return chosen


def _matches(pattern: re.Pattern[str], file: Path, most: int | None) -> Iterator[str]:
    try:
        if most is not None and file.stat().st_size > most:
            return
        data = file.read_bytes()
    except OSError:
        return
    if b"\0" in data[:8_192]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if pattern.search(line):
            yield f"{file}:{number}:{line[:LONGEST_LINE].rstrip()}"


def main() -> int:
    """Print the first lines that match; the one argument is a JSON object with pattern, path, root, glob and ignore_case.

    The exit code is `WRONG_PATTERN` if the pattern or the glob cannot be read; the line printed then says why.
    """
    options = json.loads(sys.argv[1])
    try:
        pattern = re.compile(as_python(options["pattern"]), re.IGNORECASE if options["ignore_case"] else 0)
        lines = matching_lines(pattern, Path(options["path"]), Path(options["root"]), options["glob"])
        for count, line in enumerate(lines):
            if count > MOST_LINES:
                break
            sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
    except ToolError as error:
        sys.stdout.write(f"the glob cannot be read: {error.message}\n")
        return WRONG_PATTERN
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        sys.stdout.write(f"the pattern is no regular expression: {error}\n")
        return WRONG_PATTERN
    return 0


if __name__ == "__main__":
    sys.exit(main())
