"""Finds lines by a regular expression without ripgrep; run as a program, because a pattern can take exponential time."""

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path

from palimpsest.tools.files.search import LARGEST_FILE, LONGEST_LINE, MOST_LINES, files_below


def matching_lines(pattern: re.Pattern[str], path: Path, glob: str = "") -> Iterator[str]:
    """The lines that match, as `path:line:text`; binary, large and unreadable files are left out."""
    wanted = re.compile(translate(glob)) if glob else None
    for file in files_below(path):
        if wanted is None or wanted.match(file.name) is not None:
            yield from _matches(pattern, file)


def _matches(pattern: re.Pattern[str], file: Path) -> Iterator[str]:
    try:
        if file.stat().st_size > LARGEST_FILE:
            return
        data = file.read_bytes()
    except OSError:
        return
    if b"\0" in data[:8_192]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if pattern.search(line):
            yield f"{file}:{number}:{line[:LONGEST_LINE].rstrip()}"


def main() -> None:
    """Print the first lines that match; the one argument is a JSON object with pattern, path, glob and ignore_case."""
    options = json.loads(sys.argv[1])
    pattern = re.compile(options["pattern"], re.IGNORECASE if options["ignore_case"] else 0)
    for count, line in enumerate(matching_lines(pattern, Path(options["path"]), options["glob"])):
        if count > MOST_LINES:
            break
        sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    main()
