"""A review that the user asks for: a sub-agent reads and changes nothing, and its findings are stated to the agent, as in Codex."""

from contextlib import suppress
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Statement
from palimpsest.core.projections.children import CHILD_NOTICE
from palimpsest.engine.children.children import ChildAgents, SpawnRequest
from palimpsest.sources.model_prompt import mode_text
from palimpsest.sources.user_events import review_text
from palimpsest.tools.tool import ToolError

UNCOMMITTED: Final = "the changes in this project that are not committed yet"
_ROLE: Final = "explorer"
# Seconds between two looks at whether it has ended; it may take as long as its limits allow.
_WAIT: Final = 60.0


async def review(children: ChildAgents, what: str = "") -> str:
    """Have the work reviewed by a sub-agent of its own, state the findings to the agent, and return them.

    Raises `BadInput` if there can be no sub-agent, or if it did not complete.
    """
    asked = what.strip() or UNCOMMITTED
    try:
        child = await children.spawn(SpawnRequest(f"{mode_text('review')}\n\nReview {asked}.", _ROLE))
    except ToolError as error:
        raise BadInput(error.message) from error
    while not await children.wait([child.session], _WAIT):
        pass
    outcome = children.state(child.session)
    with suppress(ToolError):
        await children.close_child(child.session)
    if outcome.state != "completed":
        raise BadInput(f"the review did not complete: {outcome.state}. {outcome.text}".strip())
    log = children.agent.session.log
    if any(record.session == child.session and record.is_due(log.path) for record in log.children):
        # In the place of the notice that every sub-agent has ended.
        log.append(ContextStated((Statement(CHILD_NOTICE, review_text(asked, outcome.text), value=child.session),)))
    return outcome.text
