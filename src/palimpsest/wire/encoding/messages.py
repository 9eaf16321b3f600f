"""Groups fragments into alternating messages, with tool results directly after their calls."""

from typing import TypeAlias

from palimpsest.core.format.tags import without_tags
from palimpsest.core.items import Text
from palimpsest.wire.encoding.fragments import BlockKind, Fragment

Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the message is from the model, and its fragments; in other messages the results come first, in the order of their calls."""


def alternating_messages(fragments: list[Fragment]) -> list[Message]:
    """Group fragments into alternating messages. Thinking comes first in its message, and is dropped if nothing follows it."""
    user, result, thinking, call = BlockKind.USER, BlockKind.RESULT, BlockKind.THINKING, BlockKind.CALL
    answers = {fragment.wire_id: fragment for fragment in fragments if fragment.place == result}
    messages: list[Message] = []
    blocks: list[Fragment] = []
    calls: list[Fragment] = []
    thinking_run: list[Fragment] = []
    from_model: bool | None = None
    for fragment in fragments:
        place = fragment.place
        if place > result:
            if place == thinking:
                thinking_run.append(fragment)
                continue
            if from_model is not True:
                from_model = True
                blocks = []
                messages.append((True, blocks))
            if thinking_run:
                _add_thinking(blocks, thinking_run)
                thinking_run = []
            blocks.append(fragment)
            if place == call:
                calls.append(fragment)
        elif place == user or (place == result and calls):
            if from_model is not False:
                from_model = False
                thinking_run = []
                blocks = [answers[open_call.wire_id] for open_call in calls]
                calls = []
                messages.append((False, blocks))
            if place == user:
                blocks.append(fragment)
    if calls:
        messages.append((False, [answers[open_call.wire_id] for open_call in calls]))
    return messages


def _add_thinking(blocks: list[Fragment], thinking_run: list[Fragment]) -> None:
    if blocks and blocks[0].place != BlockKind.THINKING:
        blocks[0:0] = thinking_run
    else:
        blocks.extend(thinking_run)


STATED = "stated"
"""Group of a statement that may become a system message: its body is framed as user text, `aside` is the block of a system message."""
SYSTEM = "system"
"""Group of the blocks of a system message."""


def is_statement(content: Text) -> bool:
    """Whether a text comes from the operator rather than from the user or the model."""
    return content.role in {"system", "developer"}


def framed_statement(text: str) -> str:
    """A statement as user text, for models that accept no system messages inside the conversation."""
    inside = without_tags(text, "system-message")
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{inside}\n</system-message>"


def with_system_messages(messages: list[Message]) -> list[Message]:
    """Move statements into system messages, each directly after the user message that contained them.

    Anthropic accepts them nowhere else and never two in a row. A user message of statements only stays as it is, framed.
    """
    separated: list[Message] = []
    for from_model, blocks in messages:
        stated = [] if from_model else [block for block in blocks if block.group == STATED]
        if not stated or len(stated) == len(blocks):
            separated.append((from_model, blocks))
            continue
        separated.append((False, [block for block in blocks if block.group != STATED]))
        separated.append((False, [Fragment(block.item, BlockKind.USER, block.aside, group=SYSTEM) for block in stated]))
    return separated
