"""The state of a session for the status line: how full the window is, what it cost, and what runs beside."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from palimpsest.apps.terminal.conversation import AgentConversation
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.wire.models.prices import PriceBook, total_usd

if TYPE_CHECKING:
    # The engine is loaded while the user may type already.
    from palimpsest.engine.session import Session


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
