"""The functions and settings that a terminal gets from the program around it, and the reader of its session's status."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pal.terminal.choosing import Row, RowSource
from pal.terminal.conversation import AgentConversation
from pal.terminal.transcript import Status
from palimpsest.agent.decision import Approval
from palimpsest.agent.feed import Piece
from palimpsest.core.events import PermissionAsked
from palimpsest.core.log import Log
from palimpsest.stores.config import TerminalConfig
from palimpsest.wire.models import PriceBook, total_usd

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent
    from palimpsest.agent.session import Session


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

    `open_agent` makes the agent of the first session, of a fork of the second, or of a new one if both are empty; it raises `Locked` if
    another process has the session. It, `follow` and `sessions` run outside of the event loop. `run_pal` runs a command of `pal` that
    prints to the terminal.
    `renew` reads the settings again: the agent uses their providers and model cards from its next call on, later sessions all of them.
    """

    open_agent: Callable[[str, str, Approve], OpenedAgent]
    follow: Callable[[str], FollowedLog]
    run_pal: Callable[[Sequence[str]], None]
    sessions: Callable[[], SessionList]
    renew: Callable[["Agent"], RenewedSettings]
    root: Path
    folder: Path | None = None
    session: str = ""
    prompt: str = ""
    config: TerminalConfig = TerminalConfig()


class StatusReader:
    """Reads the status of a session. What takes time with the length of a session is computed once for each event, not for each frame."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._counted = Status()

    def read(self, conversation: AgentConversation, hint: str = "") -> Status:
        """Return the status of a session now."""
        agent = conversation.agent
        session = agent.session
        key = (agent.id, session.log.tip, session.card, session.profile.name)
        if key != self._key:
            self._key, self._counted = key, _counted(session)
        counted = self._counted
        return replace(
            counted,
            cost_usd=total_usd((counted.cost_usd, agent.children_spent().usd)),
            processes=0 if agent.shell is None else len(agent.shell.running()),
            agents=0 if agent.children is None else len(agent.children.live()),
            queued=len(conversation.queued),
            activity="working (Esc stops)" if conversation.is_running else "",
            hint=hint,
        )


def _counted(session: "Session") -> Status:
    """The part of the status that only an event changes."""
    view, ledger, budget = session.log.view, session.log.ledger, session.budget
    usage = ledger.usage
    read = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
    return Status(
        model=session.card.name,
        profile=session.profile.name,
        mode=view.mode,
        used=session.used,
        window=budget.window,
        fold_at=budget.compact_at,
        cost_usd=PriceBook((*session.environment.cards, session.card)).ledger_usd(ledger),
        cached=usage.cache_read / read if read else None,
    )
