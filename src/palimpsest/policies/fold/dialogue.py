"""The dialogue that a fold keeps: messages of the user, and the texts in which the agent said what it had found, in their order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from palimpsest.audit.floor import Floor
from palimpsest.audit.fold_texts import MESSAGES, PARTIAL_MESSAGE, count_earlier_messages, older_messages_block, time_of
from palimpsest.core.edits import Keep, Put
from palimpsest.core.items import EMPTY_MAPPING, Item, Text, text_of
from palimpsest.core.situation import ClosingMessage, Situation
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.truncate import preview
from palimpsest.policies.fold.bounds import Bounds

_OLDER_TITLE = "[Earlier messages of the user, with the agent's answers: id, time and opening words; `recall` with the id shows one whole]"
# Tokens; a message is not cut to less, only its opening words are listed then.
_SHORTEST_CUT = 200
# Tokens of the words around an answer that is listed or stands behind its message.
_ANSWER_TOKENS = 5
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
    its head and tail; of older ones id, time and opening words are listed. A closing message that does not fit shows by the same, behind
    the message that it answers.
    """
    messages = _user_messages(situation, run)
    kept = _kept_messages(situation, messages, bounds, floor)
    shown = frozenset(kept).union(message.id for message in _user_messages(situation, tail))
    texts = agent_texts(situation, run, bounds.said)
    # Without room for texts of the agent, none of them is listed either.
    unseen = _closing_messages(situation, frozenset(texts).union(item.id for item in tail)) if bounds.said else ()
    older = older_messages(situation, shown, unseen, bounds.listed) if not bounds.floor_only else OlderMessages()
    pieces: dict[str, Sequence[Put | Keep]] = {item_id: [Keep(item_id)] for item_id in texts}
    answer: Sequence[Put] = ()
    for message in messages:
        # An answer by its opening words ends its turn, behind other texts that stay.
        pieces[message.items[0].id] = [*answer, *kept.get(message.id, ())]
        answer = older.answers.get(message.id, ())
    return [*older.listed, *(piece for item in run for piece in pieces.get(item.id, ())), *answer]


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


class OlderMessages(NamedTuple):
    """The list of the messages that are not shown, and closing messages by their opening words, by the shown message that each answers."""

    listed: tuple[Put, ...] = ()
    answers: Mapping[str, tuple[Put, ...]] = EMPTY_MAPPING


def _closing_messages(situation: Situation, shown: AbstractSet[str]) -> Iterator[tuple[str, ClosingMessage]]:
    """Yield the closing messages that are no longer shown, newest first, each after the id of the message that it answers."""
    for message in reversed(situation.evidence.user_messages):
        if message.closing is not None and message.closing.id not in shown:
            yield message.id, message.closing


def older_messages(
    situation: Situation, shown: AbstractSet[str], closing_messages: Iterable[tuple[str, ClosingMessage]], room: int
) -> OlderMessages:
    """Return id, time and opening words of messages that are no longer shown, within `room` tokens, the newest of them.

    The messages of the user that are not in `shown` come first, and a line counts those for which there is no room; then come the given
    closing messages. Only lines that fit are made, because a session of years has thousands of messages.
    """
    factor = situation.tokens.factor
    left, older = room - estimate(_OLDER_TITLE, factor) - 16 * factor, count_earlier_messages(situation.evidence, shown)
    lines: dict[str, str] = {}
    for message in reversed(situation.evidence.user_messages):
        if message.id in shown:
            continue
        older += 1
        if left >= 0:
            line = older_messages_block((message,))
            left -= estimate(line, factor) + factor
            if left >= 0:
                lines[message.id] = line
    answers: dict[str, tuple[Put, ...]] = {}
    omitted = older - len(lines)
    for message_id, closing in closing_messages:
        line = f"{closing.id}, {time_of(closing.at)}: {closing.opening}"
        left -= estimate(line, factor) + _ANSWER_TOKENS * factor
        if left < 0:
            break
        if message_id in lines:
            lines[message_id] += f"\n  - answer {line}"
        elif message_id in shown:
            answers[message_id] = (Put("summary", Text(f"[Your answer {line}]"), MESSAGES),)
    counted = (f"- and {omitted} before them, which `recall` finds by their words",) if omitted else ()
    listed = (Put("summary", Text("\n".join((_OLDER_TITLE, *counted, *reversed(lines.values())))), MESSAGES),) if older else ()
    return OlderMessages(listed, answers)


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
