"""The parts of a fold that is computed from the log: what is kept verbatim, what is told about the rest, in which order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from palimpsest.audit.block import SHORT
from palimpsest.audit.entities import words_of
from palimpsest.audit.floor import NEEDED, Floor
from palimpsest.audit.parts import NARRATIVE, STAND_IN, is_part
from palimpsest.core.bound import preview
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.pairs import pairs_of, rounds, safe_cuts
from palimpsest.core.situation import Situation
from palimpsest.policies.fold_bounds import Bounds
from palimpsest.policies.fold_texts import evidence_put, message_head, names_put, older_put, seen_put

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
    calls = "\n".join(word for item in tail if isinstance(item.content, ToolCall) for word in words_of(item.content))
    return frozenset(ran.seq for ran in situation.evidence.commands if ran.seq in results and ran.command[:SHORT] in calls)


def tail_start(situation: Situation, bound: int) -> int:
    """Where the tail begins: as far back as the bound reaches at a safe place, behind an earlier fold, the last round always."""
    items, counter = situation.view.items, situation.tokens
    cuts = safe_cuts(items)
    starts = rounds(items)
    last_round = max((cut for cut in cuts if not starts or cut <= starts[-1]), default=0)
    barrier = max((place + 1 for place, item in enumerate(items) if is_part(item)), default=0)
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
        elif item.kind == "summary" and item.source.startswith(STAND_IN):
            messages[item.source] = [item]
    return [
        _Message(
            name.removeprefix(STAND_IN) if name.startswith(STAND_IN) else parts[0].id,
            tuple(parts),
            sum(situation.tokens.item(item) for item in parts),
            not name.startswith(STAND_IN),
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
    return Put("summary", Text(f"{message_head(situation, message.id, bounded.cut)}\n{bounded.text}"), f"{STAND_IN}{message.id}")


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
    wanted = {fact.id for source, fact in facts.items() if not (bounds.bare or bounds.needed) or source in NEEDED}
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
