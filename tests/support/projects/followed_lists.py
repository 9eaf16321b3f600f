"""Conversations over message lists of a tool loop, with a window so small that a list of 14 rounds is folded."""

from pathlib import Path

from message_lists import WIRES, Messages, tool_loop

from palimpsest.core.events import Event
from palimpsest.follow.conversation import Conversation
from palimpsest.stores.home import Home
from palimpsest.wire.models import WireName

SMALL = {"PAL_COMPACT_AT": "20000"}
SYSTEM = {"role": "system", "content": "You fix bugs."}


def opened(wire: WireName, home: Home | Path | None = None, name: str | None = None) -> Conversation:
    """A conversation of a wire."""
    return Conversation.open(name, model=WIRES[wire], home=home, settings=SMALL)


def new_events(conversation: Conversation, tip: int) -> list[Event]:
    """The events of the path after a sequence number."""
    return [event for event in conversation.session.log.events() if event.seq > tip]


def folded(wire: WireName, home: Home | Path | None = None, name: str | None = None) -> tuple[Conversation, Messages]:
    """A conversation whose list was folded: of 14 rounds of about 4,000 tokens each."""
    conversation, messages = opened(wire, home, name), tool_loop(wire, 14)
    conversation.prepare(messages)
    assert [edit.by for edit in conversation.audit()] == ["fold"]
    return conversation, messages
