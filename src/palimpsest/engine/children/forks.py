"""Forks a session for a sub-agent in the middle of a turn: pending calls are answered and the turn ends, in the fork alone."""

from collections.abc import Iterator, Mapping, Sequence

from palimpsest.audit.tools.working_state import DIALOGUE_FORK
from palimpsest.core.edits import Fold, Keep
from palimpsest.core.events import EventRef, ToolReturned, TurnEnded, ViewEdited
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import pending_calls
from palimpsest.core.ports import SessionStore
from palimpsest.engine.session import Session

FORKED = "forked"
"""The stop reason of the turn that a fork leaves to its base."""


def fork_for_child(parent: Session, store: SessionStore, session: str, opener: EventRef, meta: Mapping[str, str]) -> None:
    """Create the session of a sub-agent that begins with the conversation of its parent as it is now.

    Under a profile with `dialogue_forks` its view has the messages and the closing replies only; the edit that hides the rest is recorded.
    """
    with parent.log.fork(store, session, opener=opener, meta=meta) as log:
        for item in pending_calls(log.view.items):
            call = item.content
            if isinstance(call, ToolCall):
                log.append(ToolReturned(_elsewhere(call, meta.get("nickname", "")), tool=call.tool))
        if log.health.turn is not None:
            log.append(TurnEnded(FORKED))
        if parent.profile.agents.dialogue_forks:
            _keep_dialogue(log)


def _elsewhere(call: ToolCall, nickname: str) -> ToolResult:
    text = f"The conversation was forked here, before this call had a result. It belongs to the other agent; you are now {nickname}."
    return ToolResult(call.call_id, (Text(text),), form=call.form)


def _keep_dialogue(log: Log) -> None:
    items = log.view.items
    kept = tuple(_dialogue(items))
    if len(kept) < len(items):
        fold = Fold(items[0].id, items[-1].id, tuple(Keep(item.id) for item in kept))
        log.append(ViewEdited((fold,), DIALOGUE_FORK, "a sub-agent gets messages and closing replies, without thinking and tool calls"))


def _dialogue(items: Sequence[Item]) -> Iterator[Item]:
    """The items that neither are thinking, a call or a result, nor a reply that led to a call."""
    for place, item in enumerate(items):
        if item.kind in ("thinking", "call", "result"):
            continue
        following = next((each.kind for each in items[place + 1 :] if each.kind not in ("assistant", "thinking")), "")
        if item.kind != "assistant" or following != "call":
            yield item
