"""A small session with `pal` in a real terminal, of which pictures are taken: a user lets a failing test be fixed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Final

from pty_screen import PtyScreen
from streaming_model import Call, Gate, Part, Spent, Thought
from svg_screen import Frozen, freeze, svg
from terminal_room import Room, room_of, say

# The command as it is, but for a clock that stands still and a version of the system that is the same everywhere.
_PAL = """
import platform, sys
platform.release = lambda: "6.1"
from pathlib import Path
from pal.cli.main import cli
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.home import FolderHome
cli.main(sys.argv[1:], obj=FolderHome(Path({home!r}), FixedClock(1_767_225_600_000)))
"""
_SLUG = """import re
import unicodedata


def initial(title: str) -> str:
    return unicodedata.normalize("NFKD", title)[0].upper()


def slug(title: str) -> str:
    lower = title.lower()
    return re.sub(r"[^a-z0-9]+", "-", lower).strip("-")
"""
_TEST = """from slug import slug


def test_words_are_joined():
    assert slug("Apple pie") == "apple-pie"


def test_accents_are_dropped():
    assert slug("Crème brûlée") == "creme-brulee"
"""
_BEFORE = _SLUG[_SLUG.index("def slug") :]
_AFTER = _BEFORE.replace(
    "    lower = title.lower()\n",
    '    bare = unicodedata.normalize("NFKD", title)\n    lower = bare.encode("ascii", "ignore").decode().lower()\n',
)
_EXPLAINED = """The pattern keeps only `a-z`, so an accented letter becomes a dash. Taking the accents off first keeps the letter:

```python
unicodedata.normalize("NFKD", "è")  # an e, and the accent behind it
```

"""
_DONE = "Both tests pass now. **Addresses change** for titles with accents: old links need a redirect.\n"
_SHELVES = ("bread", "cakes", "drinks", "pies", "salads", "soups")
_ANSWER = """34 of 1,500 titles get another address:

| shelf | titles | for example |
|---|---:|---|
| cakes | 21 | `creme-brulee` |
| pies | 13 | `pate-en-croute` |

"""
# Titles and descriptions of the pictures, for people who do not see them.
_WORDS: Final = {
    "edit": (
        "A question about an edit",
        (
            "The agent has read two files, explained the fault with code in colour, and asks whether it may change slug.py. The "
            "diff has the line numbers of the file; y, a, n and Esc answer."
        ),
    ),
    "session": (
        "A session in the terminal",
        (
            "A user asks for a failing test to be fixed. The agent reads two files, explains the fault, changes one line to two, "
            "shown as a coloured diff with line numbers, and asks for permission to run pytest. The line below the input has the "
            "model, how full the window is, the cost and the mode."
        ),
    ),
    "fold": (
        "A fold in mid-work",
        (
            "The agent reads six files. When the window is full to the chosen limit, one quiet line says how many tokens a fold "
            "left of how many, what it saves with each call, what it costs once, and the key that shows it, Ctrl-T. The answer with "
            "a table follows."
        ),
    ),
    "audit": (
        "What an edit hid and cost",
        (
            "Ctrl-T lists the edits of the context. The newest is the fold: its sizes, how many items it hid, why it happened, what "
            "it saves and costs. Enter shows the items, u undoes the edit."
        ),
    ),
    "context": (
        "What fills the window",
        (
            "After the fold was undone, /context draws the window as a grid of a hundred cells in the colours of a legend: results, "
            "tools, context, free space and the buffer. Below are the tokens by source and the five largest items."
        ),
    ),
}


def _replies(gate: Gate) -> tuple[tuple[Part, ...], ...]:
    """What the model says, call by call."""
    shelves = [Call("read", {"path": f"shelves/{name}.csv"}) for name in _SHELVES]
    return (
        (
            Thought("The test about accents fails. Look at both files."),
            Call("read", {"path": "slug.py"}),
            Call("read", {"path": "test_slug.py"}),
            Spent(3100, 0, 2900),
        ),
        (_EXPLAINED, Call("edit", {"path": "slug.py", "old": _BEFORE, "new": _AFTER}), Spent(420, 6000, 300, 160)),
        (Call("bash", {"command": "pytest -q test_slug.py"}), Spent(150, 6500, 200, 40)),
        (_DONE, Spent(150, 6700, 200, 60)),
        (*shelves[:2], Spent(120, 6900, 100, 60)),
        (*shelves[2:4], Spent(300, 7000, 20_000, 60)),
        (*shelves[4:], Spent(300, 27_000, 20_000, 60)),
        (_ANSWER, gate, "I can write the redirects.\n", Spent(300, 6000, 6000, 110)),
    )


def _fill(project: Path) -> None:
    (project / "slug.py").write_text(_SLUG)
    (project / "test_slug.py").write_text(_TEST)
    (project / "shelves").mkdir()
    for shelf in _SHELVES:
        lines = (f"{number},{shelf} number {number},{number % 97}.{number % 10}0\n" for number in range(1, 251))
        (project / "shelves" / f"{shelf}.csv").write_text("".join(lines))


def pictures() -> Iterator[tuple[str, str]]:
    """Run the session and yield its pictures in order, each as the name of its file and an SVG document."""
    gate = Gate()
    # The path of the project is part of what the model reads: with as many digits everywhere, it has as many tokens.
    folder = Path(f"/tmp/pal-{os.getpid():07d}")  # noqa: S108 - made here, and fails if it exists
    folder.mkdir()
    try:
        with room_of(folder, *_replies(gate)) as room:
            for name, screen in _session(room, gate):
                yield f"{name}.svg", svg(screen, *_WORDS[name])
    finally:
        rmtree(folder)


def _session(room: Room, gate: Gate) -> Iterator[tuple[str, Frozen]]:
    _fill(room.project)
    with (room.home / "config.toml").open("a") as config:
        config.write("[context]\ncompact_at = 60000\n")
    command = [sys.executable, "-c", _PAL.format(home=str(room.home))]
    with room.terminal(command=command, rows=40, TZ="UTC", PATH=_path()) as screen:
        yield from _fixing(screen)
        yield from _working(screen, gate)


def _fixing(screen: PtyScreen) -> Iterator[tuple[str, Frozen]]:
    say(screen, "slug('Crème brûlée') gives cr-me-br-l-e, so a test fails. Please fix it.")
    screen.wait_for("y  yes, once")
    screen.wait_until_quiet()
    yield "edit", freeze(screen.screen, "❯ slug")
    screen.type("y")
    screen.wait_for("allow bash(pytest")
    screen.wait_until_quiet()
    yield "session", freeze(screen.screen, "❯ slug")
    screen.type("y")
    screen.wait_for("redirect.")
    screen.wait_for(lambda: "working" not in screen.lines()[-1])


def _working(screen: PtyScreen, gate: Gate) -> Iterator[tuple[str, Frozen]]:
    say(screen, "Which titles on the shelves get another address?")
    screen.wait_for(gate.reached.is_set)
    screen.wait_for("for example")
    screen.wait_until_quiet()
    yield "fold", freeze(screen.screen, "❯ Which")
    gate.opened.set()
    screen.wait_for("redirects.")
    screen.wait_for(lambda: "working" not in screen.lines()[-1])
    screen.press("ctrl-t")
    screen.wait_for("Edits of the context")
    screen.wait_until_quiet()
    yield "audit", freeze(screen.screen, "Edits")
    screen.type("u")
    screen.wait_for("(undone)")
    screen.press("esc")
    screen.wait_for(lambda: "(type to filter" not in "\n".join(screen.lines()))
    screen.wait_for("was undone")
    say(screen, "/context grid")
    screen.wait_for("Autocompact buffer")
    screen.wait_until_quiet()
    yield "context", freeze(screen.screen, "❯ /context grid")


def _path() -> str:
    """The search path of the shell, with the programs of this Python first."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
