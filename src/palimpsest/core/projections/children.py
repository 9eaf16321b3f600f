"""The sub-agents of a session: how each of them ended or that it runs, and what it cost."""

from typing import ClassVar, Final

from msgspec.structs import replace

from palimpsest.core.events import Event
from palimpsest.core.events.calls import Usage
from palimpsest.core.events.context import ContextStated
from palimpsest.core.events.records import ChildEnded, ChildOpened
from palimpsest.core.format.path import Path
from palimpsest.core.items import Value
from palimpsest.core.projections.projection import Scope, StateProjection

CHILD_NOTICE: Final = "subagent_notification"
"""The source of the statements to the model about how a sub-agent ended; their `value` is the session of the sub-agent."""
RUNNING: Final = "running"


class ChildRecord(Value, frozen=True):
    """A sub-agent as the log of its parent knows it. `status` is `running` until its end is recorded.

    `usage`, dollars and `children_tokens` are those of its newest recorded end. `text` is its report until that end was stated to the
    model. `opened` and `ended` are the events of its newest start and end; `noticed` are those that stated that end, one on each branch.
    """

    session: str
    role: str = ""
    nickname: str = ""
    depth: int = 0
    status: str = RUNNING
    text: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    children_usd: float | None = 0.0
    children_tokens: int = 0
    opened: int | None = None
    ended: int | None = None
    noticed: tuple[int, ...] = ()

    @property
    def total_usd(self) -> float | None:
        """US dollars of its calls and of those below it; `None` if they are not known."""
        return None if self.cost_usd is None or self.children_usd is None else self.cost_usd + self.children_usd

    def is_due(self, path: Path) -> bool:
        """Whether its end has to be stated on a path: one on which it was started and its end was not stated yet."""
        has_ended = self.ended is not None and self.status != RUNNING
        started_here = self.opened is not None and self.opened in path
        return has_ended and started_here and not any(seq in path for seq in self.noticed)


class ChildrenProjection(StateProjection):
    """Projection of the sub-agents, over all events of the file, because each of them exists and costs money on every branch."""

    name: ClassVar = "children"
    version: ClassVar = 2
    watches: ClassVar = frozenset({ChildOpened, ChildEnded, ContextStated})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = tuple[ChildRecord, ...]

    __slots__ = ("_children",)

    def __init__(self) -> None:
        self._children: dict[str, ChildRecord] = {}

    def take(self, event: Event) -> None:
        """Apply one event; an end of a sub-agent that was never opened, as in some imported sessions, counts too."""
        body = event.body
        match body:
            case ChildOpened(session=session, role=role, nickname=nickname, depth=depth):
                known = self._children.get(session, ChildRecord(session))
                named = {"role": role or known.role, "nickname": nickname or known.nickname, "depth": depth or known.depth}
                self._children[session] = replace(known, **named, status=RUNNING, text="", opened=event.seq, noticed=())
            case ChildEnded(session=session, status=status, text=text):
                known = self._children.get(session, ChildRecord(session))
                names = ("usage", "cost_usd", "children_usd", "children_tokens")
                spent = {name: getattr(body, name) for name in names}
                report = text if known.depth else ""
                self._children[session] = replace(known, status=status, text=report, ended=event.seq, noticed=(), **spent)
            case ContextStated(items=items):
                for statement in items:
                    if statement.source == CHILD_NOTICE and statement.value in self._children:
                        known = self._children[statement.value]
                        self._children[statement.value] = replace(known, text="", noticed=(*known.noticed, event.seq))
            case _:
                return

    def value(self) -> tuple[ChildRecord, ...]:
        """Return the sub-agents, oldest first."""
        return tuple(self._children.values())

    def start_from(self, children: tuple[ChildRecord, ...]) -> None:
        """Replace the sub-agents."""
        self._children = {child.session: child for child in children}
