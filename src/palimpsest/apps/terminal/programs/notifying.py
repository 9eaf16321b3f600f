"""Tells the user that a turn has ended or asks: by the bell, by the terminal or the desktop, and by a command of the user's."""

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.programs.running import run_shell_line
from palimpsest.stores.config.terminal_config import TerminalConfig
from palimpsest.tools.workspace import program_outside

Occasion: TypeAlias = Literal["turn_ended", "question"]
BELL: Final = "\x07"
_SECONDS: Final = 30.0
_LONGEST: Final = 200
_TITLE: Final = "pal"


class Notifier:
    """Notifies a user who is away: one who has sent or answered nothing for the configured seconds.

    `write` sends a sequence to the terminal; `start` runs something beside the screen.
    """

    def __init__(self, config: TerminalConfig, root: Path, write: Callable[[str], None], start: Callable[[Awaitable[None]], None]) -> None:
        self.config = config
        self._root = root
        self._write = write
        self._start = start
        self._seen_at = time.monotonic()

    def seen(self) -> None:
        """Note that the user is there."""
        self._seen_at = time.monotonic()

    def notify(self, occasion: Occasion, text: str, session: str = "") -> None:
        """Notify the user in the configured ways, unless the user was there a moment ago."""
        config = self.config
        if time.monotonic() - self._seen_at < config.notify_seconds:
            return
        shown = plain(" ".join(text.split()))[:_LONGEST]
        match config.notify:
            case "bell":
                self._write(BELL)
            case "terminal":
                self._write(_osc_9(shown))
            case "desktop":
                self._notify_desktop(shown)
            case "off":
                pass
        if config.notify_command:
            fields = {"event": occasion, "message": shown, "session_id": session, "cwd": str(self._root)}
            self._start(self._run(config.notify_command, json.dumps(fields).encode()))

    def _notify_desktop(self, text: str) -> None:
        command = desktop_command(text, sys.platform, dict(os.environ), lambda name: program_outside(name, self._root))
        if command is None:
            self._write(_osc_9(text))
        else:
            self._start(self._run(command, b""))

    async def _run(self, command: str, given: bytes) -> None:
        # How it ends does not matter: there may be no desktop any more.
        await run_shell_line(command, self._root, given=given, seconds=_SECONDS)


def desktop_command(text: str, platform: str, environment: dict[str, str], which: Callable[[str], str | None]) -> str | None:
    """Return the shell line that shows a text on the desktop; `None` if there is none, such as over ssh."""
    import shlex  # only a notification needs it

    if environment.get("SSH_CONNECTION"):
        return None
    if platform == "darwin" and (program := which("osascript")):
        script = f"display notification {json.dumps(text, ensure_ascii=False)} with title {json.dumps(_TITLE)}"
        return shlex.join((program, "-e", script))
    has_screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    program = which("notify-send") if has_screen else None
    return None if program is None else shlex.join((program, "--", _TITLE, text))


def _osc_9(text: str) -> str:
    return f"\x1b]9;{text}\x07"
