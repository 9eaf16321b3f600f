"""A small session with `pal` in a real terminal, of which pictures are taken: a user lets a failing test be fixed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from pty_screen import PtyScreen
from streaming_model import Call, Gate, Part, Spent, Thought
from svg_screen import Frozen, freeze, svg
from terminal_room import Room, room_of, say

# The command as it is, but for a clock that stands still and a version of the system that is the same everywhere.
_PAL = """
import platform, sys
platform.release = lambda: "6.1"
from pathlib import Path
from palimpsest.apps.cli.main import cli
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.stores.home import Home
cli.main(sys.argv[1:], obj=Home(Path({home!r}), FixedClock(1_767_225_600_000)))
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


class Picture(NamedTuple):
    """A picture: the name of its file, its title, what it shows in words, and the screen."""

    name: str
    title: str
    description: str
    screen: Frozen

    def svg(self) -> str:
        """Return the document."""
        return svg(self.screen, self.title, self.description)


def pictures() -> Iterator[Picture]:
    """Run the session and yield its pictures in order."""
    gate = Gate()
    # The path of the project is part of what the model reads: with as many digits everywhere, it has as many tokens.
    folder = Path(f"/tmp/pal-{os.getpid():07d}")  # noqa: S108 - made here, and fails if it exists
    folder.mkdir()
    try:
        with room_of(folder, *_replies(gate)) as room:
            yield from _session(room, gate)
    finally:
        rmtree(folder)


def _session(room: Room, gate: Gate) -> Iterator[Picture]:
    _fill(room.project)
    with (room.home / "config.toml").open("a") as config:
        config.write("[context]\ncompact_at = 60000\n")
    command = [sys.executable, "-c", _PAL.format(home=str(room.home))]
    with room.terminal(command=command, rows=40, TZ="UTC", PATH=_path()) as screen:
        yield from _fixing(screen)
        yield from _working(screen, gate)


def _fixing(screen: PtyScreen) -> Iterator[Picture]:
    say(screen, "slug('Crème brûlée') gives cr-me-br-l-e, so a test fails. Please fix it.")
    screen.wait_for("y  yes, once")
    screen.wait_until_quiet()
    yield Picture("edit", "A question about an edit", "…", freeze(screen.screen, "❯ slug"))
    screen.type("y")
    screen.wait_for("allow bash(pytest")
    screen.wait_until_quiet()
    yield Picture("session", "The terminal", "…", freeze(screen.screen, "❯ slug"))
    screen.type("y")
    screen.wait_for("redirect.")
    screen.wait_for(lambda: "working" not in screen.lines()[-1])


def _working(screen: PtyScreen, gate: Gate) -> Iterator[Picture]:
    say(screen, "Which titles on the shelves get another address?")
    screen.wait_for(gate.reached.is_set)
    screen.wait_for("for example")
    screen.wait_until_quiet()
    yield Picture("fold", "A fold in mid-work", "…", freeze(screen.screen, "❯ Which"))
    gate.opened.set()
    screen.wait_for("redirects.")
    screen.wait_for(lambda: "working" not in screen.lines()[-1])
    screen.press("ctrl-t")
    screen.wait_for("Edits of the context")
    screen.wait_until_quiet()
    yield Picture("audit", "What an edit hid and cost", "…", freeze(screen.screen, "Edits"))
    screen.type("u")
    screen.wait_for("(undone)")
    screen.press("esc")
    screen.wait_for("was undone")
    say(screen, "/context")
    screen.wait_for("/context items")
    screen.wait_until_quiet()
    yield Picture("context", "What fills the window", "…", freeze(screen.screen, "❯ /context"))


def _path() -> str:
    """The search path of the shell, with the programs of this Python first."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
