"""Makes the table of general strings from recorded sessions: `./run general-strings FOLDER…`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.events.event_items import items_of
from palimpsest.lab.rereads.definitions import strings_in
from palimpsest.lab.rereads.general_strings import DATA
from palimpsest.lab.rereads.visible import searched_text
from palimpsest.lab.simulation.loading import LoadedSession, load_all
from palimpsest.stores.files import write_atomically

# A string of a session is general if two other projects have it; the session's own project is the third.
FEWEST_PROJECTS: Final = 3
TABLE: Final = Path(__file__).parents[1] / "rereads" / DATA


def project_of(loaded: LoadedSession) -> str:
    """Return the project of a session: what its file is named before `__`, as in collections of sessions, else its working folder."""
    project, separator, _ = Path(loaded.source).name.partition("__")
    return project if separator else loaded.recording.cwd


def strings_of_projects(sessions: Iterable[LoadedSession]) -> list[str]:
    """Return the strings of 12 characters and more that sessions of three or more projects have, sorted."""
    projects: dict[str, set[str]] = {}
    for loaded in sessions:
        texts = (searched_text(item.content) for event in loaded.events for item in items_of(event.seq, event.body))
        for string in {string for text in texts for string in strings_in(text)}:
            projects.setdefault(string, set()).add(project_of(loaded))
    return sorted(string for string, having in projects.items() if len(having) >= FEWEST_PROJECTS)


def write_table(folders: Iterable[Path], table: Path) -> int:
    """Write the table from all sessions below some folders. Returns the number of strings; raises `BadInput` if there is none."""
    found = strings_of_projects(load_all(list(folders)))
    if not found:
        raise BadInput(f"no string occurs in sessions of {FEWEST_PROJECTS} projects, so the table stays as it is", where=str(table))
    write_atomically(table, ["".join(f"{string}\n" for string in found).encode()], replace=True)
    return len(found)


if __name__ == "__main__":
    sys.stdout.write(f"{write_table(map(Path, sys.argv[1:]), TABLE)} strings\n")
