"""States what concerns sub-agents beside the context of the project: the briefing of a sub-agent, and the ends of those it started."""

from msgspec.structs import replace

from palimpsest.core.events import ChildEnded, ContextStated, Statement
from palimpsest.core.items import Part
from palimpsest.core.log.log import Log
from palimpsest.core.projections.children import CHILD_NOTICE, ChildRecord
from palimpsest.engine.children.reports import BRIEFING, notice
from palimpsest.engine.loop.context import ContextStating
from palimpsest.engine.session import Session


class FamilyContext:
    """States all that another context states, then the briefing if the view does not show it, and each end that this branch lacks.

    The loop asks for it at its safe points only, so that an end never enters the view during a call and starts no turn.
    """

    def __init__(self, inner: ContextStating, session: Session, briefing: str = "") -> None:
        self._inner = inner
        self._session = session
        self._briefing = briefing

    async def prepare(self, tools: frozenset[str]) -> None:
        """Make tools available that pending calls need."""
        await self._inner.prepare(tools)

    async def observe(self) -> None:
        """Observe the sources, and state what changed and what the sub-agents did."""
        await self._inner.observe()
        self._state()

    def restate(self) -> None:
        """State what the view no longer shows, and what the sub-agents did since."""
        self._inner.restate()
        self._state()

    def mention(self, parts: tuple[Part, ...]) -> None:
        """State what the input mentions."""
        self._inner.mention(parts)

    def _state(self) -> None:
        log, tagged = self._session.log, self._session.profile.agents.tagged
        missing = self._briefing and BRIEFING not in log.view.facts
        statements = [Statement(BRIEFING, self._briefing)] if missing else []
        path = log.path
        statements += [
            Statement(CHILD_NOTICE, notice(_with_report(log, child), tagged=tagged), value=child.session)
            for child in log.children
            if child.depth and child.is_due(path)
        ]
        if statements:
            log.append(ContextStated(tuple(statements)))


def _with_report(log: Log, child: ChildRecord) -> ChildRecord:
    """The record with its report, which it does not hold any more once the end was stated on another branch."""
    ended = None if child.ended is None else log.event(child.ended).body
    return replace(child, text=ended.text) if isinstance(ended, ChildEnded) else child
