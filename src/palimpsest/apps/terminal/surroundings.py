"""What a terminal needs of the program around it: what makes agents, runs commands of `pal` and lists sessions."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from palimpsest.apps.terminal.choosing import Row
from palimpsest.core.events import PermissionAsked
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.feed import Piece
from palimpsest.tools.permissions.decision import Approval

Approve = Callable[[PermissionAsked], Awaitable[Approval]]


class OpenedAgent(Struct, frozen=True):
    """An agent that is ready, what the user should know about it, and the pieces of its conversation so far that are shown again."""

    agent: Agent
    notices: tuple[str, ...] = ()
    earlier: tuple[Piece, ...] = ()


class OpenAgent(Protocol):
    """Makes agents."""

    def __call__(self, session: str, approve: Approve, *, fork: bool) -> OpenedAgent:
        """Return the agent of a session, of a fork of it, or of a new one if the id is empty. It may take long."""
        ...


class TerminalSurroundings(Struct, frozen=True):
    """What a terminal needs of the program around it.

    `open_agent` runs outside of the event loop.
    `run_pal` runs a command of `pal` that prints to the terminal. `sessions` are the rows of the list of sessions.
    """

    open_agent: OpenAgent
    run_pal: Callable[[Sequence[str]], None]
    sessions: Callable[[], Sequence[Row]]
    root: Path
    folder: Path | None = None
    session: str = ""
    prompt: str = ""
