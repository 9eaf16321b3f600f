"""What was visible before an edit and is not after it."""

from collections.abc import Sequence
from typing import Final

from palimpsest.audit.entities import is_path, number_in, tokens_of, trimmed
from palimpsest.audit.tools import Action, action_of
from palimpsest.audit.visible import Visible, readable, texts_of
from palimpsest.core.events import Loss
from palimpsest.core.items import Item, Text, ToolCall
from palimpsest.core.view import View

MOST_PATHS: Final = 500
MOST_COMMANDS: Final = 400
LONGEST_COMMAND: Final = 160


def loss_of(before: View, after: View) -> Loss:
    """What an edit hides: something counts as lost only if nothing that still shows names it.

    Paths that were worked on come before those that a text only mentions.
    """
    still = {item.id for item in after.items if item.mask is None}
    gone = [item for item in before.items if item.mask is None and item.id not in still]
    if not gone:
        return Loss()
    visible = Visible([*texts_of(after.head), *texts_of(after.items)])
    tokens = tokens_of("\n".join([readable(item.content) for item in gone]))
    actions = [action_of(item.content) for item in gone if isinstance(item.content, ToolCall)]
    return Loss(
        paths=_paths(actions, tokens, visible),
        commands=_commands(actions, visible),
        numbers=_numbers(tokens, visible),
        user_messages=_messages(gone, visible),
        ids=tuple(item.id for item in gone),
    )


def _paths(actions: Sequence[Action], tokens: dict[str, None], visible: Visible) -> tuple[str, ...]:
    touched = [each.path for action in actions for each in action.paths if each.how != "search"]
    mentioned = [trimmed(token) for token in tokens if "/" in token or "." in token]
    found: dict[str, None] = {}
    for path in (*touched, *(path for path in mentioned if is_path(path))):
        if path not in found and not visible.path(path):
            found[path] = None
            if len(found) == MOST_PATHS:
                break
    return tuple(found)


def _commands(actions: Sequence[Action], visible: Visible) -> tuple[str, ...]:
    lines = [action.command for action in actions]
    lost = [line[:LONGEST_COMMAND] for line in dict.fromkeys(lines) if line and not visible.command(line)]
    return tuple(dict.fromkeys(lost))[-MOST_COMMANDS:]


def _numbers(tokens: dict[str, None], visible: Visible) -> int:
    return len(visible.unseen({number for token in tokens if token[0].isdigit() and (number := number_in(token))}))


def _messages(gone: Sequence[Item], visible: Visible) -> int:
    """Messages of which nothing shows: one whose first words are told with its id is not among them, however many parts it has."""
    first: dict[str, Item] = {}
    for item in gone:
        if item.kind in ("user", "steering") and isinstance(item.content, Text):
            first.setdefault(item.id.partition(".")[0], item)
    return sum(not visible.message(readable(item.content), item.id) for item in first.values())
