"""Groups fragments into alternating messages, with tool results directly after their calls."""

from typing import TypeAlias

from palimpsest.core.format.tags import without_tags
from palimpsest.core.items import Text
from palimpsest.wire.encoding.fragments import BlockKind, Fragment

Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the message is from the model, and its fragments; in other messages the results come first, in the order of their calls."""


def alternating_messages(fragments: list[Fragment], *, in_order: bool = False) -> list[Message]:
    """Group fragments into alternating messages. Thinking is dropped if nothing follows it in its message.

    It comes first in its message, unless all is to stay `in_order`, as for models that bind thinking to what stands before it.
    """
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
                if in_order:
                    blocks += thinking_run
                else:
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
            elif in_order:
                thinking_run = []
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
CHANGED = "tool changes"
"""Group of a change of tools, whose blocks may stand in a system message alone."""
OF_SYSTEM = frozenset({SYSTEM, CHANGED})


def is_statement(content: Text) -> bool:
    """Whether a text comes from the operator rather than from the user or the model."""
    return content.role in {"system", "developer"}


def framed_statement(text: str) -> str:
    """A statement as user text, for models that accept no system messages inside the conversation."""
    inside = without_tags(text, "system-message")
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{inside}\n</system-message>"


_TOOLS_CHANGED = b'{"type":"text","text":"The list of tools changed."}'
_END_OF_RESULTS = b'{"type":"text","text":"End of the tool results."}'


def with_system_messages(messages: list[Message], *, ends_results: bool = False) -> list[Message]:
    """Move statements into system messages, each directly after the user message that contained them.

    Anthropic accepts them nowhere else and never two in a row. A user message of statements only stays as it is, framed. One of changes of
    tools only gets a short text before them.
    `ends_results` puts a short text behind tool results, because some models read a system message there as part of the last result.
    """
    separated: list[Message] = []
    for from_model, blocks in messages:
        changes = [] if from_model else [block for block in blocks if block.group == CHANGED]
        stated = [] if from_model else [block for block in blocks if block.group in (STATED, CHANGED)]
        moved = {STATED, CHANGED} if len(stated) < len(blocks) else {CHANGED}
        stated = [block for block in stated if block.group in moved]
        if not stated:
            separated.append((from_model, blocks))
            continue
        said = [block for block in blocks if block.group not in moved] or [Fragment(changes[0].item, BlockKind.USER, _TOOLS_CHANGED)]
        if ends_results and said[-1].place == BlockKind.RESULT:
            said.append(Fragment(said[-1].item, BlockKind.USER, _END_OF_RESULTS))
        separated.append((False, said))
        separated.append((False, [block if block.group == CHANGED else _of_system(block) for block in stated]))
    return separated


def _of_system(block: Fragment) -> Fragment:
    return Fragment(block.item, BlockKind.USER, block.aside, group=SYSTEM)
