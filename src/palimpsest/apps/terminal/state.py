"""The state of a session for the status line: how full the window is, what it cost, and what runs beside."""

from palimpsest.apps.terminal.conversation import AgentConversation
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.core.projections.ledger import Ledger
from palimpsest.wire.models.cards import ModelCard, recorded_card
from palimpsest.wire.models.prices import cost


def status_of(conversation: AgentConversation, hint: str = "") -> Status:
    """Return the status of a session now."""
    agent = conversation.agent
    session = agent.session
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
        cost_usd=session_usd(ledger, tuple(session.environment.cards)) + agent.children_usd(),
        cached=usage.cache_read / read if read else None,
        processes=len(agent.processes()),
        agents=0 if agent.children is None else len(agent.children.live()),
        queued=len(conversation.queued),
        activity="working (Esc interrupts)" if conversation.is_running else "",
        hint=hint,
    )


def session_usd(ledger: Ledger, cards: tuple[ModelCard, ...]) -> float:
    """Return what the calls of a session cost at the prices of their models, in US dollars; unknown models cost nothing."""
    return sum(cost(spending.usage, recorded_card(spending.model, cards)).total for spending in ledger.spendings)
