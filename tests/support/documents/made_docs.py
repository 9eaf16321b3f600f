"""Writes what documents have of the code: tables of keys, commands, settings and mechanisms, and pictures."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pal.terminal.commands.registry import COMMANDS
from pal.terminal.keys import KEYS
from pal_lab.mechanisms.rows import Mechanism, mechanisms
from palimpsest.stores.config import KEYS as SETTINGS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PARTS = ("tables", "pictures")


def tables() -> Iterator[tuple[Path, str]]:
    """Yield the pages with tables that the code states, as they are with the tables of now."""
    agent = (DOCS / "agent.md").read_text(encoding="utf-8")
    agent = _with_table(agent, "keys", ("key", "does"), KEYS)
    rows = [(f"`/{each.name}`{'' if each.while_running else '*'}", each.argument, each.help) for each in COMMANDS.values()]
    agent = _with_table(agent, "commands", ("command", "argument", "does"), rows)
    yield DOCS / "agent.md", _with_table(agent, "terminal settings", ("key", "default", "meaning"), _settings("terminal."))
    settings = (DOCS / "configuration.md").read_text(encoding="utf-8")
    yield DOCS / "configuration.md", _with_table(settings, "settings", ("key", "default", "meaning"), _settings())
    profiles = (DOCS / "profiles.md").read_text(encoding="utf-8")
    for system, found in mechanisms().items():
        profiles = _with_table(profiles, f"mechanisms {system}", _MECHANISM_HEAD, [_mechanism(each) for each in found])
    yield DOCS / "profiles.md", profiles


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield the pictures of a run of `pal` in a terminal."""
    # Only the pictures need a terminal emulator.
    from recorded_run import pictures as recorded  # noqa: PLC0415

    yield from ((DOCS / "pictures" / name, text) for name, text in recorded())


def _settings(prefix: str = "") -> list[tuple[str, ...]]:
    return [
        (f"`{key.name.replace('*', 'NAME')}`", "" if key.example else f"`{msgspec.json.encode(key.default).decode()}`", key.description)
        for key in SETTINGS.values()
        if key.name.startswith(prefix)
    ]


_MECHANISM_HEAD = ("mechanism", "profiles", "the system", "its profiles", "`palimpsest`", "shown by")
_NOT_DESCRIBED = "not described yet"


def _mechanism(row: Mechanism) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in row.profiles)
    path = row.test.partition("::")[0]
    shown = f"`{path}`" if path else "no test yet"
    return row.name, names, row.system, row.here or _NOT_DESCRIBED, row.ours or _NOT_DESCRIBED, shown


def _with_table(page: str, name: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a page with a table between the two marks of a name. Raises `ValueError` if the page has no such marks."""
    begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks {begin.strip()} and {end}")
    lines = [_row(head), "|" + "---|" * len(head), *map(_row, rows)]
    return f"{before}{begin}{chr(10).join(lines)}\n{end}{after}"


def _row(cells: tuple[str, ...]) -> str:
    return "|" + "".join(f" {cell.replace('|', chr(92) + '|')} |" if cell else " |" for cell in cells)


def main(parts: list[str]) -> None:
    """Write the named parts, or all of them; name the files that changed on standard output."""
    made = {"tables": tables, "pictures": pictures}
    for part in parts or PARTS:
        for path, text in made[part]():
            path.parent.mkdir(exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                print(os.path.relpath(path))


if __name__ == "__main__":
    main(sys.argv[1:])
