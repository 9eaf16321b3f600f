"""The parts of a computed fold: what is kept verbatim, which texts are added, in which order and within which bounds."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from palimpsest.audit.entities import argument_texts, names_of
from palimpsest.audit.floor import REQUIRED_SOURCES, Floor
from palimpsest.audit.fold_texts import (
    EVIDENCE,
    MESSAGES,
    NAMES,
    NARRATIVE,
    PARTIAL_MESSAGE,
    SEEN,
    SHORT,
    evidence_block,
    first_event_of_turns,
    is_fold_part,
    names_block,
    older_messages_block,
    short_command_line,
    time_of,
    truncated,
)
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.pairs import pairs_of, rounds, safe_cuts
from palimpsest.core.redaction import redact
from palimpsest.core.situation import Situation
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.truncate import preview
from palimpsest.policies.fold.bounds import Bounds

_OLDER = "[Earlier messages of the user: id, time and opening words; `recall` with the id shows one whole]"
_EVIDENCE = "[Work so far, listed from the log by a program; results that are gone can be read again or recalled]"
_MORE = "[More commands of the last turns, newest first, with exit codes]"
_NAMES = "[Names used lately, newest first]"
_SEEN = "[Names in results that are gone, newest first]"
_TASK = 60
_SHORTEST_NAME = 3
# Nobody looks for names in more of one result than this.
_LOOKED_AT = 40_000
_LONGEST_NAME, _LONGEST_WORD, _LONGEST_MIXED = 80, 40, 20
_WORDS = re.compile(r"[^A-Za-z0-9+=]+")
_DIGITS = re.compile(r"[0-9].*[0-9]")
_NONE: frozenset[int] = frozenset()


def older_put(situation: Situation, shown: AbstractSet[str], room: int | None = None) -> tuple[Put, ...]:
    """Messages of the user that do not show any more: id, time and opening words of each, or of the newest that fit a room."""
    told = [older_messages_block((said,)) for said in situation.evidence.user_messages if said.id not in shown]
    if room is not None:
        told = _newest(told, room - estimate(_OLDER, situation.tokens.factor) - 16, situation.tokens.factor)
    return (_put(MESSAGES, "\n".join((_OLDER, *told))),) if told else ()


def _newest(told: Sequence[str], room: float, factor: float) -> list[str]:
    """The last ones that fit, after a line that counts the others."""
    fitting: list[str] = []
    for line in reversed(told):
        room -= estimate(line, factor) + factor
        if room < 0:
            break
        fitting.append(line)
    left = len(told) - len(fitting)
    return [*([f"- and {left} before them"] if left else []), *reversed(fitting)]


def evidence_put(situation: Situation, bounds: Bounds, kept: AbstractSet[int] = _NONE) -> tuple[Put, ...]:
    """What the log proves about the work so far. Open tasks show always.

    Results of the events `kept` show as they are, so that their commands need no room where it is short.
    """
    evidence, factor = situation.evidence, situation.tokens.factor
    room = bounds.evidence - estimate(_EVIDENCE, factor) - 8
    text = evidence_block(evidence, room, elsewhere=kept, factor=factor) if room > 0 else ""
    missing = [f"- {truncated(task, _TASK)}" for task in evidence.tasks if task[:_TASK] not in text]
    if missing:
        text = "\n".join((*(text,) * bool(text), "Open tasks:", *missing))
    return (_put(EVIDENCE, f"{_EVIDENCE}\n{text}"),) if text else ()


def names_put(situation: Situation, bounds: Bounds, told: Iterable[Put], kept: AbstractSet[int] = _NONE) -> tuple[Put, ...]:
    """The names that the model used itself, the most recent first; commands for which the evidence had no room take up to half of it."""
    factor = situation.tokens.factor
    room = bounds.names - estimate(_NAMES, factor) - 8
    more = _more_commands(situation, "\n".join(text_of(piece.content) for piece in told), kept, room // 2)
    text = names_block(situation.evidence.names, room - estimate(more, factor), factor=factor) if room > 0 else ""
    lines = [line for line in (more, text and f"{_NAMES}\n{text}") if line]
    return (_put(NAMES, "\n".join(lines)),) if lines else ()


def seen_put(situation: Situation, bounds: Bounds, gone: Sequence[Item]) -> tuple[Put, ...]:
    """Names in results that go, the newest first, which the model has not used itself: it can name them without reading again."""
    factor = situation.tokens.factor
    room = float(bounds.seen - estimate(_SEEN, factor) - 8)
    known = set(situation.evidence.names)
    found: list[str] = []
    for item in reversed(gone):
        if room < _SHORTEST_NAME:
            break
        if item.mask is None and (item.kind == "result" or item.source == SEEN):
            for name in names_of(text_of(item.content).removeprefix(_SEEN)[:_LOOKED_AT]):
                if name not in known and is_telling(name):
                    known.add(name)
                    room -= estimate(f", {name}", factor) + factor
                    if room < 0:
                        break
                    found.append(name)
    return (_put(SEEN, redact(f"{_SEEN}\n{', '.join(found)}")),) if found else ()


def is_telling(name: str) -> bool:
    """Whether a name tells something: not a digest, a key or a piece of base64, which nobody types."""
    if len(name) > _LONGEST_NAME:
        return False
    longest = max((len(word) for word in _WORDS.split(name)), default=0)
    return longest <= _LONGEST_WORD and not (_DIGITS.search(name) and longest > _LONGEST_MIXED)


def _more_commands(situation: Situation, told: str, kept: AbstractSet[int], room: int) -> str:
    """Commands of the last turns that are not told yet, newest first, as many as fit."""
    evidence, factor = situation.evidence, situation.tokens.factor
    begins = first_event_of_turns(evidence, elsewhere=kept)
    lines: list[str] = []
    for ran in reversed(evidence.commands):
        if ran.seq >= begins and ran.seq not in kept and ran.command[:SHORT] not in told:
            line = short_command_line(ran)
            room -= estimate(line, factor) + 1
            if room < estimate(_MORE, factor):
                break
            lines.append(line)
    return "\n".join((_MORE, *lines)) if lines else ""


def message_head(situation: Situation, item_id: str, cut: int) -> str:
    """The line above a message that is shown in part."""
    at = next((f", {time_of(said.at)}" for said in situation.evidence.user_messages if said.id == item_id), "")
    return f"[Message {item_id} of the user{at}: {cut} tokens in the middle are left out, `recall` with the id shows it whole]"


def _put(source: str, text: str) -> Put:
    return Put("summary", Text(text), source)


# A message is not cut to less than this: then only its opening is told.
_SHORTEST_CUT = 200
# Tokens of a message that is kept whole before longer ones are.
_SHORT_MESSAGE = 200
# What is added to the age and to the size of a result, so that the newest and the smallest do not outweigh everything.
_RECENT, _FRAME = 2, 50


class Folded(NamedTuple):
    """A fold and the tokens of the request that it leaves."""

    fold: Fold
    tokens: int


class _Message(NamedTuple):
    """A message of the user as the view shows it: its items, or the piece that stands in for it after an earlier fold."""

    id: str
    items: tuple[Item, ...]
    tokens: int
    whole: bool


def fold_of(situation: Situation, bounds: Bounds, floor: Floor, narrative: Put | None = None) -> Folded | None:
    """The fold within these bounds; nothing when there is nothing to fold."""
    items = situation.view.items
    cut = len(items) if bounds.bare else tail_start(situation, bounds.tail)
    if not cut:
        return None
    run, tail = items[:cut], items[cut:]
    messages = _messages(situation, run, tail, bounds, floor)
    shown = _commands_in(situation, tail)
    evidence = evidence_put(situation, bounds, shown)
    results = _results(situation, run, tail, bounds, floor)
    gone = [item for item in run if item.id not in results]
    into: list[Put | Keep] = [*messages, *evidence, *names_put(situation, bounds, evidence, shown), *seen_put(situation, bounds, gone)]
    into += _narrative(run, bounds, narrative)
    kept = {piece.id for piece in into if isinstance(piece, Keep)}
    state = _state(situation, run, bounds)
    into += [Keep(item.id) for item in run if item.id in state and item.id not in kept]
    into += [Keep(item.id) for item in run if item.id in results and item.id not in kept | state]
    fold = Fold(run[0].id, run[-1].id, tuple(into))
    return Folded(fold, _tokens(situation, fold.into, run, tail))


def _commands_in(situation: Situation, tail: Sequence[Item]) -> frozenset[int]:
    """The events of commands that show in the tail with their result; one that ran on shows its result without the command."""
    results = frozenset(seq_of(item.id) for item in tail if isinstance(item.content, ToolResult) and item.mask is None)
    calls = "\n".join(word for item in tail if isinstance(item.content, ToolCall) for word in argument_texts(item.content))
    return frozenset(ran.seq for ran in situation.evidence.commands if ran.seq in results and ran.command[:SHORT] in calls)


def tail_start(situation: Situation, bound: int) -> int:
    """Where the tail begins: as far back as the bound reaches at a safe place, behind an earlier fold, the last round always."""
    items, counter = situation.view.items, situation.tokens
    cuts = safe_cuts(items)
    starts = rounds(items)
    last_round = max((cut for cut in cuts if not starts or cut <= starts[-1]), default=0)
    barrier = max((place + 1 for place, item in enumerate(items) if is_fold_part(item)), default=0)
    tokens, reach = 0, len(items)
    for place in range(len(items) - 1, -1, -1):
        tokens += counter.item(items[place])
        if tokens > bound or place < barrier:
            break
        reach = place
    return min(next(cut for cut in cuts if cut >= reach), last_round)


def _messages(situation: Situation, run: Sequence[Item], tail: Sequence[Item], bounds: Bounds, floor: Floor) -> list[Put | Keep]:
    """The user's messages in their order.

    Where not all of them fit, short ones stay whole before long ones, the newest first. The first long one that does not fit is cut to
    its head and tail; of older ones id, time and opening words are listed.
    """
    messages = _said(situation, run)
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
                if message.whole and (piece := _cut(situation, message, room)) is not None:
                    kept[message.id] = [piece]
                break
            kept[message.id] = [Keep(item.id) for item in message.items]
            room -= message.tokens
    shown = frozenset(kept).union(message.id for message in _said(situation, tail))
    older = older_put(situation, shown, 4 * bounds.messages if bounds.needed else None) if not bounds.bare else ()
    return [*older, *(piece for message in messages for piece in kept.get(message.id, ()))]


def _said(situation: Situation, items: Iterable[Item]) -> list[_Message]:
    """The messages of the user among some items, oldest first."""
    messages: dict[str, list[Item]] = {}
    for item in items:
        if item.kind in ("user", "steering"):
            messages.setdefault(item.id.rpartition(".")[0], []).append(item)
        elif item.kind == "summary" and item.source.startswith(PARTIAL_MESSAGE):
            messages[item.source] = [item]
    return [
        _Message(
            name.removeprefix(PARTIAL_MESSAGE) if name.startswith(PARTIAL_MESSAGE) else parts[0].id,
            tuple(parts),
            sum(situation.tokens.item(item) for item in parts),
            not name.startswith(PARTIAL_MESSAGE),
        )
        for name, parts in messages.items()
    ]


def _cut(situation: Situation, message: _Message, room: int) -> Put | None:
    """The head and the tail of a message, within what is left of the bound."""
    if room < _SHORTEST_CUT:
        return None
    counter = situation.tokens
    text = "\n".join(text_of(item.content) for item in message.items)
    room -= _SHORTEST_CUT // 2
    bounded = preview(text, room, room * 2 // 3, room // 3, counter.factor)
    if not bounded.cut:
        return None
    return Put("summary", Text(f"{message_head(situation, message.id, bounded.cut)}\n{bounded.text}"), f"{PARTIAL_MESSAGE}{message.id}")


def _narrative(run: Sequence[Item], bounds: Bounds, narrative: Put | None) -> list[Put | Keep]:
    """What a model or running notes tell, if there is room for it: the newest, new or already there."""
    if bounds.bare or not bounds.narrative:
        return []
    if narrative is not None:
        return [narrative]
    there = [item for item in run if item.kind == "summary" and item.source == NARRATIVE]
    return [Keep(there[-1].id)] if there else []


def _state(situation: Situation, run: Sequence[Item], bounds: Bounds) -> set[str]:
    """The newest word of each source that lies in the run: all of them, or only what the model cannot do without."""
    facts = situation.view.facts
    wanted = {fact.id for source, fact in facts.items() if not (bounds.bare or bounds.needed) or source in REQUIRED_SOURCES}
    return {item.id for item in run if item.id in wanted}


def _results(situation: Situation, run: Sequence[Item], tail: Sequence[Item], bounds: Bounds, floor: Floor) -> set[str]:
    """Pinned items and open calls, and results that were named lately with their calls: the most recent and smallest first.

    Of two results that are as likely to be needed again the smaller one takes less room, so that more of them stay.
    """
    counter, calls = situation.tokens, situation.health.calls
    kept = {item.id for item in run if item.id in floor.ids}
    if not bounds.results:
        return kept
    pairs = {result.id: (call, result) for call, result in pairs_of((*run, *tail))}
    named: list[tuple[float, int, int, tuple[Item, Item]]] = []
    for place, item in enumerate(run):
        use = situation.uses.get(item.id)
        if use is None or use.last_named is None or use.died is not None or item.mask is not None or item.id in kept:
            continue
        pair = pairs.get(item.id)
        if calls - use.last_named <= bounds.recent and pair is not None:
            tokens = sum(counter.item(half) for half in pair)
            worth = 1 / ((_RECENT + calls - use.last_named) * (_FRAME + tokens))
            named.append((worth, place, tokens, pair))
    room = bounds.results
    for _, _, tokens, both in sorted(named, key=lambda each: each[:2], reverse=True):
        if tokens <= room:
            room -= tokens
            kept.update(item.id for item in both)
    return kept


def _tokens(situation: Situation, into: Into, run: Sequence[Item], tail: Sequence[Item]) -> int:
    counter = situation.tokens
    sizes = {item.id: counter.item(item) for item in run}
    made = sum(sizes[piece.id] if isinstance(piece, Keep) else counter.content(piece.content) for piece in into)
    rest = sum(counter.item(item) for item in (*situation.view.head, *tail))
    return made + rest + situation.tools_tokens
