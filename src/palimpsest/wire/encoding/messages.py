"""Fragments as messages of user, assistant and system in turn, each call answered in the message after it."""

from typing import TypeAlias

from palimpsest.core.items import Text
from palimpsest.wire.encoding.fragments import Fragment, Place

Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the model says it, and what is said: results of the calls before it first, in the order of the calls."""


def alternating_messages(fragments: list[Fragment]) -> list[Message]:
    """Messages of both sides in turn. Thoughts open their message; those that nothing follows are left out."""
    user, result, thinking, call = Place.USER, Place.RESULT, Place.THINKING, Place.CALL
    answers = {fragment.wire_id: fragment for fragment in fragments if fragment.place == result}
    messages: list[Message] = []
    blocks: list[Fragment] = []
    calls: list[Fragment] = []
    thoughts: list[Fragment] = []
    from_model: bool | None = None
    for fragment in fragments:
        place = fragment.place
        if place > result:
            if place == thinking:
                thoughts.append(fragment)
                continue
            if from_model is not True:
                from_model = True
                blocks = []
                messages.append((True, blocks))
            if thoughts:
                _place_thoughts(blocks, thoughts)
                thoughts = []
            blocks.append(fragment)
            if place == call:
                calls.append(fragment)
        elif place == user or (place == result and calls):
            if from_model is not False:
                from_model = False
                thoughts = []
                blocks = [answers[each.wire_id] for each in calls]
                calls = []
                messages.append((False, blocks))
            if place == user:
                blocks.append(fragment)
    if calls:
        messages.append((False, [answers[each.wire_id] for each in calls]))
    return messages


def _place_thoughts(blocks: list[Fragment], thoughts: list[Fragment]) -> None:
    if blocks and blocks[0].place != Place.THINKING:
        blocks[0:0] = thoughts
    else:
        blocks.extend(thoughts)


STATED = "stated"
"""The group of a statement that may stand in a system message; its body is framed, and `aside` is the block of that message."""
SYSTEM = "system"
"""The group of the blocks of a system message."""


def is_statement(content: Text) -> bool:
    """Whether a text is the operator's, not the user's or the model's."""
    return content.role in {"system", "developer"}


def framed_statement(text: str) -> str:
    """A statement for a model that takes no system messages in its conversation: a user text that says whose it is."""
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{text}\n</system-message>"


def with_system_messages(messages: list[Message]) -> list[Message]:
    """The messages with statements in system messages of their own, each right after the user message that they stand in.

    Messages takes them nowhere else, and no two in a row. A statement with no user message beside it stays framed.
    """
    separated: list[Message] = []
    for from_model, blocks in messages:
        stated = [] if from_model else [block for block in blocks if block.group == STATED]
        if not stated or len(stated) == len(blocks):
            separated.append((from_model, blocks))
            continue
        separated.append((False, [block for block in blocks if block.group != STATED]))
        separated.append((False, [Fragment(block.item, Place.USER, block.aside, group=SYSTEM) for block in stated]))
    return separated
