"""Statements of the operator in the middle of a conversation: sent with the authority of the system prompt as far as a wire can say it."""

from palimpsest.core.items import Text
from palimpsest.wire.alternate import Message
from palimpsest.wire.fragments import Fragment, Place

STATED = "stated"
"""The group of a statement that may stand in a system message; its body is framed, and `aside` is the block of that message."""
SYSTEM = "system"
"""The group of the blocks of a system message."""


def is_statement(content: Text) -> bool:
    """Whether a text is the operator's, not the user's or the model's."""
    return content.role in {"system", "developer"}


def framed(text: str) -> str:
    """A statement for a model that takes no system messages in its conversation: a user text that says whose it is."""
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{text}\n</system-message>"


def with_system_messages(messages: list[Message]) -> list[Message]:
    """The messages with statements in system messages of their own, each right after the user message that they stand in.

    Messages takes them nowhere else, and no two in a row. A statement with no user message beside it stays framed.
    """
    apart: list[Message] = []
    for said, blocks in messages:
        stated = [] if said else [block for block in blocks if block.group == STATED]
        if not stated or len(stated) == len(blocks):
            apart.append((said, blocks))
            continue
        apart.append((False, [block for block in blocks if block.group != STATED]))
        apart.append((False, [Fragment(block.item, Place.USER, block.aside, group=SYSTEM) for block in stated]))
    return apart
