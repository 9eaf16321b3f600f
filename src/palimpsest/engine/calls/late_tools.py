"""Tools that come and go during a session, and another effort: how the next request says so, and what was sent stays as it was."""

from msgspec.structs import replace

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolsChanged
from palimpsest.core.tool_changes import placed_changes, stated_effort
from palimpsest.engine.session import Session
from palimpsest.wire.binding import ANY_PREFIX
from palimpsest.wire.request import Tool, accepted_effort, is_deferred


def declared_tools(session: Session) -> tuple[Tool, ...]:
    """The tools that the next request declares: those on offer, or, where the model takes changes, all that were declared before.

    Tools that joined behind the first request to such a model are deferred, in this request and in all later ones. If the declaration of
    a tool is another one than before, the tools on offer are declared as in a first request.
    """
    offered, call = session.tools, session.log.view.call
    if call is None or not call.tools:
        return offered
    try:
        before = session.recorded_tools(call.tools)
    except PalimpsestError:
        # Without the record nothing that was sent can be kept.
        return offered
    own = {tool.name: tool for tool in offered}
    late = {tool.name for tool in before if tool.deferred}
    declared = tuple(replace(tool, deferred=True) if tool.name in late else tool for tool in offered) if late else offered
    if session.card.takes_tool_changes and call.prefix not in ("", ANY_PREFIX):
        if any(replace(tool, deferred=False) != own.get(tool.name, replace(tool, deferred=False)) for tool in before):
            return offered
        known = {tool.name for tool in before}
        declared = (*before, *(replace(tool, deferred=True) for tool in offered if tool.name not in known))
    return offered if all(tool.deferred for tool in declared) else declared


def announce_changes(session: Session) -> None:
    """Record, right before a request, which tools the model can call from here on and which not any more, and another effort."""
    log, card = session.log, session.card
    if not card.takes_tool_changes:
        return
    declared = declared_tools(session)
    deferred = [tool.name for tool in declared if is_deferred(tool, card.wire)]
    names = [tool.name for tool in declared]
    available = frozenset(names).difference(deferred)
    for placed in placed_changes(log.view.items, names, deferred):
        available = placed.available
    offered = {tool.name for tool in session.tools}
    added = tuple(name for name in names if name in offered and name not in available)
    removed = tuple(name for name in names if name in available and name not in offered)
    effort = _effort_to_state(session)
    if added or removed or effort:
        log.append(ToolsChanged(added, removed, effort))


def _effort_to_state(session: Session) -> str:
    """The effort that the list must state, because the field of the request stays what earlier reasoning is bound to; empty if none."""
    wanted = accepted_effort(session.params.effort, session.card)
    if not wanted or session.card.wire != "responses":
        return ""
    holds = stated_effort(session.log.view.items) or accepted_effort(session.request_params.effort, session.card)
    return wanted if holds != wanted else ""
