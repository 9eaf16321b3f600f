"""The dialogue that a fold keeps: messages of the user, and the texts in which the agent said what it had found, in their order."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from palimpsest.audit.floor import Floor
from palimpsest.audit.fold_texts import MESSAGES, PARTIAL_MESSAGE, count_earlier_messages, older_messages_block, time_of
from palimpsest.core.edits import Keep, Put
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.situation import Situation
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.truncate import preview
from palimpsest.policies.fold.bounds import Bounds

_OLDER_TITLE = "[Earlier messages of the user: id, time and opening words; `recall` with the id shows one whole]"
# Tokens; a message is not cut to less, only its opening words are listed then.
_SHORTEST_CUT = 200
# Tokens; messages up to this size are kept before longer ones.
_SHORT_MESSAGE = 200


class _ShownMessage(NamedTuple):
    """A user message in the view: its items, or the excerpt that replaced it in an earlier fold, for which `is_complete` is false."""

    id: str
    items: tuple[Item, ...]
    tokens: int
    is_complete: bool


def dialogue(situation: Situation, run: Sequence[Item], tail: Sequence[Item], bounds: Bounds, floor: Floor) -> list[Put | Keep]:
    """Return the messages of the user and the texts of the agent that stay, in their order, behind a list of older messages.

    If not all messages of the user fit, short ones are kept before long ones, newest first. The first long one that does not fit is cut to
    its head and tail; of older ones id, time and opening words are listed.
    """
    messages = _user_messages(situation, run)
    kept = _kept_messages(situation, messages, bounds, floor)
    shown = frozenset(kept).union(message.id for message in _user_messages(situation, tail))
    older = older_messages_part(situation, shown, bounds.listed) if not bounds.floor_only else ()
    pieces = {message.items[0].id: kept[message.id] for message in messages if message.id in kept}
    pieces |= {item_id: [Keep(item_id)] for item_id in agent_texts(situation, run, bounds.said)}
    return [*older, *(piece for item in run for piece in pieces.get(item.id, ()))]


def agent_texts(situation: Situation, run: Sequence[Item], room: int) -> list[str]:
    """Return the ids of the agent's texts that stay within `room` tokens.

    The last text of each turn comes first, because there the agent says what it did; then its other texts; each newest first.
    """
    closing: list[Item] = []
    others: list[Item] = []
    is_later_turn = True
    for item in reversed(run):
        if item.kind == "user":
            is_later_turn = True
        elif item.kind == "assistant" and isinstance(item.content, Text) and item.mask is None and item.content.text.strip():
            (closing if is_later_turn else others).append(item)
            is_later_turn = False
    kept: list[str] = []
    for item in (*closing, *others):
        tokens = situation.tokens.item(item)
        if tokens <= room:
            room -= tokens
            kept.append(item.id)
    return kept


def _kept_messages(situation: Situation, messages: Sequence[_ShownMessage], bounds: Bounds, floor: Floor) -> dict[str, list[Put | Keep]]:
    room = bounds.messages
    kept: dict[str, list[Put | Keep]] = {}
    for message in messages:
        if any(item.id in floor.ids for item in message.items):
            kept[message.id] = [Keep(item.id) for item in message.items]
            room = max(0, room - message.tokens)
    for short in (True, False):
        for message in reversed(messages):
            if message.id in kept or (message.tokens <= _SHORT_MESSAGE) != short:
                continue
            if message.tokens > room:
                if message.is_complete and (piece := _cut(situation, message, room)) is not None:
                    kept[message.id] = [piece]
                break
            kept[message.id] = [Keep(item.id) for item in message.items]
            room -= message.tokens
    return kept


def older_messages_part(situation: Situation, shown: AbstractSet[str], room: int) -> tuple[Put, ...]:
    """Return a list of the user messages that are no longer shown, within `room` tokens: id, time and opening words of the newest of them.

    Only lines that fit are made, because a session of years has thousands of messages. A last line counts the others.
    """
    factor = situation.tokens.factor
    left, older = float(room - estimate(_OLDER_TITLE, factor) - 16), count_earlier_messages(situation.evidence, shown)
    lines: list[str] = []
    for message in reversed(situation.evidence.user_messages):
        if message.id in shown:
            continue
        if left >= 0:
            lines.append(older_messages_block((message,)))
            left -= estimate(lines[-1], factor) + factor
        older += 1
    if left < 0 and lines:
        lines.pop()
    omitted = older - len(lines)
    counted = (f"- and {omitted} before them, which `recall` finds by their words",) if omitted else ()
    return (Put("summary", Text("\n".join((_OLDER_TITLE, *counted, *reversed(lines)))), MESSAGES),) if older else ()


def _user_messages(situation: Situation, items: Iterable[Item]) -> list[_ShownMessage]:
    """Return the user messages among some items, oldest first."""
    messages: dict[str, list[Item]] = {}
    for item in items:
        if item.kind in ("user", "steering"):
            messages.setdefault(item.id.rpartition(".")[0], []).append(item)
        elif item.kind == "summary" and item.source.startswith(PARTIAL_MESSAGE):
            messages[item.source] = [item]
    return [
        _ShownMessage(
            name.removeprefix(PARTIAL_MESSAGE) if name.startswith(PARTIAL_MESSAGE) else parts[0].id,
            tuple(parts),
            sum(situation.tokens.item(item) for item in parts),
            not name.startswith(PARTIAL_MESSAGE),
        )
        for name, parts in messages.items()
    ]


def _cut(situation: Situation, message: _ShownMessage, room: int) -> Put | None:
    """Return the head and the tail of a message within `room` tokens; `None` if there is too little room."""
    if room < _SHORTEST_CUT:
        return None
    counter = situation.tokens
    text = "\n".join(text_of(item.content) for item in message.items)
    room -= _SHORTEST_CUT // 2
    bounded = preview(text, room, room * 2 // 3, room // 3, counter.factor)
    if not bounded.cut:
        return None
    return Put("summary", Text(f"{excerpt_title(situation, message.id, bounded.cut)}\n{bounded.text}"), f"{PARTIAL_MESSAGE}{message.id}")


def excerpt_title(situation: Situation, item_id: str, cut: int) -> str:
    """Return the line above a message of which the middle is cut."""
    at = next((f", {time_of(message.at)}" for message in situation.evidence.user_messages if message.id == item_id), "")
    return f"[Message {item_id} of the user{at}: {cut} tokens in the middle are left out, `recall` with the id shows it whole]"
