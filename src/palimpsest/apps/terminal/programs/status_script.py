"""The status line from a script of the user's: it gets the state of the session as JSON, and its first line is shown."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palimpsest.apps.terminal.programs.running import run_shell_line
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.stores.config.terminal_config import TerminalConfig

_LONGEST: Final = 400
# Colours and other sequences of terminals; the line is painted in our own colours.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class StatusScript:
    """Runs the command of the status line; `text` is what it printed last. It never runs twice at once."""

    def __init__(self, config: TerminalConfig, root: Path, changed: Callable[[], None]) -> None:
        self.config = config
        self._root = root
        self._changed = changed
        self._is_running = False
        self.text = ""

    async def refresh(self, session: str, log: str, status: Status) -> None:
        """Run the command with the present state. A failure is shown in the line, because its author has to see it."""
        if not self.config.status_command or self._is_running:
            return
        self._is_running = True
        try:
            given = json.dumps(status_fields(session, log, self._root, status)).encode()
            done = await run_shell_line(self.config.status_command, self._root, given=given, seconds=self.config.status_seconds)
        finally:
            self._is_running = False
        lines = _ESCAPES.sub("", done.output).strip().splitlines()
        first = lines[0].strip()[:_LONGEST] if lines else ""
        self.text = (
            first if done.code == 0 else f"status_command failed ({done.code}): {first}" if done.code else f"status_command: {first}"
        )
        self._changed()


def status_fields(session: str, log: str, root: Path, status: Status) -> dict[str, object]:
    """Return what the script gets: the fields that scripts for Claude Code read, and `palimpsest` with those of ours."""
    share = status.used / status.window * 100 if status.window else 0.0
    return {
        "hook_event_name": "Status",
        "session_id": session,
        "transcript_path": log,
        "cwd": str(root),
        "model": {"id": status.model, "display_name": status.model},
        "workspace": {"current_dir": str(root), "project_dir": str(root)},
        "version": _version(),
        "output_style": {"name": "default"},
        "cost": {"total_cost_usd": status.cost_usd},
        "context_window": {
            "context_window_size": status.window,
            "used_percentage": round(share, 1),
            "remaining_percentage": round(100 - share, 1),
        },
        "palimpsest": {
            "profile": status.profile,
            "mode": status.mode,
            "used_tokens": status.used,
            "fold_at_tokens": status.fold_at,
            "cached_share": status.cached,
            "processes": status.processes,
            "agents": status.agents,
        },
    }


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes milliseconds, and only a script needs it

    try:
        return version("palimpsest-agent")
    except PackageNotFoundError:
        return ""
