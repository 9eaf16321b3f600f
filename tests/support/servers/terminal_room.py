"""A project folder, a home and a streaming model on the loopback, in which `pal` is opened in real terminals."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pty_screen import PtyScreen
from streaming_model import Part, StreamingModel, model_streaming

PAL = [sys.executable, "-m", "pal.cli"]
# A few words already are a part of this window.
SMALL_WINDOW = '[cards."claude-sonnet-4-6"]\nlike = "claude-sonnet-4-6"\nwindow = 200000\n'
READY = "of 200k"
NOTICE = ["· There is no sandbox (it is turned off): every command that may change", "  something asks first."]


class Room:
    """Where terminals are opened. The jobs of memory are off, and the usual model has a window of 200,000 tokens."""

    def __init__(self, folder: Path, model: StreamingModel) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        # Here a terminal that is killed leaves its temp folder.
        self.temp = folder / "tmp"
        self.model = model
        for each in (self.project, self.home, self.temp):
            each.mkdir()
        (self.home / "config.toml").write_text('[memory]\njobs = "off"\n')
        (self.home / "cards.toml").write_text(SMALL_WINDOW)

    def environment(self, **variables: str) -> dict[str, str]:
        """What `pal` is started with."""
        own = {"PAL_HOME": str(self.home), "PAL_SANDBOX": "off", "TERM": "xterm-256color", "HOME": str(self.home), "SHELL": "/bin/sh"}
        own["TMPDIR"] = str(self.temp)
        # Variables of the terminal in which the tests run say nothing about this one.
        kept = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TERM_PROGRAM", "VTE_VERSION", "EDITOR", "VISUAL")}
        return {**kept, **self.model.environment, **own, **variables}

    @contextmanager
    def terminal(
        self, *options: str, columns: int = 80, rows: int = 24, ready: str = READY, command: Sequence[str] = PAL, **variables: str
    ) -> Iterator[PtyScreen]:
        """`pal` in a terminal of its own, once its session is open; narrow terminals have no room for the word that says so."""
        sign = ready if columns >= 80 else "❯" if "--screen-reader" not in options else "you:"
        with PtyScreen([*command, *options], cwd=self.project, env=self.environment(**variables), columns=columns, rows=rows) as screen:
            screen.wait_for(sign)
            yield screen


@contextmanager
def room_of(folder: Path, *replies: tuple[Part, ...], about: dict[str, list[tuple[Part, ...]]] | None = None) -> Iterator[Room]:
    """A room whose model gives these replies in order, the last one for all later requests, and those `about` a text to others."""
    with model_streaming(*replies, about=about) as model:
        yield Room(folder, model)


def say(screen: PtyScreen, text: str) -> None:
    """Type a message and send it."""
    screen.type(text)
    screen.wait_for(text)
    screen.press("enter")
