"""Opens the session of a sub-agent: a new one, a fork of its parent, or one that exists."""

from contextlib import suppress
from dataclasses import replace

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import SessionOpened
from palimpsest.core.log.log import Log
from palimpsest.engine.agent import Agent
from palimpsest.engine.children.child import Child, Opening
from palimpsest.engine.children.forks import fork_for_child
from palimpsest.engine.children.roles import narrower_limits
from palimpsest.engine.environment import SessionThread
from palimpsest.stores.home import AnyHome, remove
from palimpsest.tools.tool import ToolError

# What a sub-agent has of the environment of its parent.
_INHERITED = ("retries", "sleep", "chance", "encoder")


def open_child(parent: Agent, home: AnyHome, child: Child, opening: Opening) -> Agent:
    """Open the session of a sub-agent and give it its agent, which has no tools yet. Raises `ToolError` if it cannot be opened."""
    session, root = parent.session, parent.toolbox.workspace.root
    meta = {"nickname": child.nickname, "role": child.role.name, "depth": str(child.depth)}
    opener = session.log.place_of(session.log.tip)
    is_forked = False
    try:
        model = _recorded_model(home, child.session) if opening.resume else opening.model
        if opening.fork:
            fork_for_child(session, home.store, child.session, opener, meta)
            is_forked = True
        agent = Agent(
            session.named_card(model) if model else session.card,
            profile=child.role.profile or session.profile,
            provider=session.environment.provider,
            cwd=root,
            home=home,
            resume=child.session if opening.fork or opening.resume else "",
            limits=narrower_limits(parent.limits, opening.limits),
            opened=SessionOpened(child.session, cwd=str(root), opener=opener, meta=meta),
        )
    except PalimpsestError as error:
        if is_forked:
            with suppress(PalimpsestError):
                remove(home.store, child.session)
        raise ToolError(f"the sub-agent cannot be opened: {error.message}") from error
    around = session.environment
    kept = {name: getattr(around, name) for name in _INHERITED}
    # Each session has a thread of its own; in one of the parent's, all sub-agents would wait for each other.
    own = agent.session.environment.offload if isinstance(around.offload, SessionThread) else around.offload
    agent.session.environment = replace(agent.session.environment, offload=own, **kept)
    agent.session.spent_out = lambda: None if session.spent_out is None else session.spent_out()
    child.agent = agent
    return agent


def _recorded_model(home: AnyHome, session: str) -> str:
    with Log.open(home.store, session, home.clock) as log:
        return log.view.model
