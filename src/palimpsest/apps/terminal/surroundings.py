"""What a terminal needs of the program around it: agents, logs to follow, commands of `pal`, and settings."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from palimpsest.apps.terminal.choosing import Row, RowSource
from palimpsest.core.events import PermissionAsked
from palimpsest.core.log.log import Log
from palimpsest.engine.loop.feed import Piece
from palimpsest.stores.config.terminal_config import TerminalConfig
from palimpsest.tools.permissions.decision import Approval

if TYPE_CHECKING:
    # The engine is loaded while the user may type already.
    from palimpsest.engine.agent import Agent

Approve = Callable[[PermissionAsked], Awaitable[Approval]]


class OpenedAgent(Struct, frozen=True):
    """An agent that is ready, what the user should know about it, and the pieces of its conversation so far that are shown again.

    `missing` says why no model can be asked; empty if one can.
    """

    agent: "Agent"
    notices: tuple[str, ...] = ()
    earlier: tuple[Piece, ...] = ()
    missing: str = ""


class FollowedLog(Struct, frozen=True):
    """A session that another process writes, opened for reading. `has_writer` returns whether it still does."""

    log: Log
    has_writer: Callable[[], bool]
    earlier: tuple[Piece, ...] = ()


class OpenAgent(Protocol):
    """Makes agents."""

    def __call__(self, session: str, approve: Approve, *, fork: bool) -> OpenedAgent:
        """Return the agent of a session, of a fork of it, or of a new one if the id is empty. It may take long.

        Raises `Locked` if another process has the session.
        """
        ...


class RenewedSettings(Struct, frozen=True):
    """What holds after the settings were read again: why no model can be asked, empty if one can, and the settings of the terminal."""

    missing: str = ""
    config: TerminalConfig = TerminalConfig()


class SessionList(Struct, frozen=True):
    """The rows of the list of sessions, and where previews and further rows come from."""

    rows: Sequence[Row]
    source: RowSource = RowSource()


class TerminalSurroundings(Struct, frozen=True):
    """What a terminal needs of the program around it.

    `open_agent`, `follow` and `sessions` run outside of the event loop. `run_pal` runs a command of `pal` that prints to the terminal.
    `renew` reads the settings again: the agent uses their providers and model cards from its next call on, later sessions all of them.
    """

    open_agent: OpenAgent
    follow: Callable[[str], FollowedLog]
    run_pal: Callable[[Sequence[str]], None]
    sessions: Callable[[], SessionList]
    renew: Callable[["Agent"], RenewedSettings]
    root: Path
    folder: Path | None = None
    session: str = ""
    prompt: str = ""
    config: TerminalConfig = TerminalConfig()
