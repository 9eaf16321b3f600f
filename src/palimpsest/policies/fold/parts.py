"""The parts of a fold from the log: what is kept verbatim, which texts are added, in which order and within which bounds."""

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
    count_earlier_messages,
    evidence_block,
    first_event_of_turns,
    is_fold_part,
    names_block,
    older_messages_block,
    short_command_line,
    time_of,
    truncated,
)
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.pairs import pairs_of, rounds, safe_cuts
from palimpsest.core.redaction import redact
from palimpsest.core.situation import Situation
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.core.tokens.truncate import preview
from palimpsest.core.view import CHANGED
from palimpsest.policies.fold.bounds import Bounds
from palimpsest.policies.fold_threshold import tokens_after

_OLDER_TITLE = "[Earlier messages of the user: id, time and opening words; `recall` with the id shows one whole]"
_EVIDENCE_TITLE = "[Work so far, listed from the log by a program; results that are gone can be read again or recalled]"
_MORE_TITLE = "[More commands of the last turns, newest first, with exit codes]"
_NAMES_TITLE = "[Names used lately, newest first]"
_SEEN_TITLE = "[Names in results that are gone, newest first]"
_TASK_CHARS = 60
_SHORTEST_NAME = 3
# Characters of one result that are searched for names; more would be slow.
_SEARCHED_CHARS = 40_000
_LONGEST_NAME, _LONGEST_WORD, _LONGEST_MIXED = 80, 40, 20
_WORDS = lazy_pattern(r"[^A-Za-z0-9+=]+")
_DIGITS = lazy_pattern(r"[0-9].*[0-9]")
_NO_EVENTS: frozenset[int] = frozenset()


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
    return (_put(MESSAGES, "\n".join((_OLDER_TITLE, *counted, *reversed(lines)))),) if older else ()


def evidence_part(situation: Situation, bounds: Bounds, kept: AbstractSet[int] = _NO_EVENTS) -> tuple[Put, ...]:
    """Return the evidence about the work so far; open tasks are always listed.

    The results of the events `kept` stay visible, so that their commands are listed only if there is room.
    """
    evidence, factor = situation.evidence, situation.tokens.factor
    room = bounds.evidence - estimate(_EVIDENCE_TITLE, factor) - 8
    text = evidence_block(evidence, room, elsewhere=kept, factor=factor) if room > 0 else ""
    missing = [f"- {truncated(task, _TASK_CHARS)}" for task in evidence.tasks if task[:_TASK_CHARS] not in text]
    if missing:
        text = "\n".join((*(text,) * bool(text), "Open tasks:", *missing))
    return (_put(EVIDENCE, f"{_EVIDENCE_TITLE}\n{text}"),) if text else ()


def used_names_part(situation: Situation, bounds: Bounds, evidence: Iterable[Put], kept: AbstractSet[int] = _NO_EVENTS) -> tuple[Put, ...]:
    """Return the names that the model used, newest first; up to half of the bound goes to commands that the evidence has no room for."""
    factor = situation.tokens.factor
    room = bounds.names - estimate(_NAMES_TITLE, factor) - 8
    more = _more_commands(situation, "\n".join(text_of(piece.content) for piece in evidence), kept, room // 2)
    text = names_block(situation.evidence.names, room - estimate(more, factor), factor=factor) if room > 0 else ""
    lines = [line for line in (more, text and f"{_NAMES_TITLE}\n{text}") if line]
    return (_put(NAMES, "\n".join(lines)),) if lines else ()


def seen_names_part(situation: Situation, bounds: Bounds, dropped: Sequence[Item]) -> tuple[Put, ...]:
    """Return names in folded results that the model has not used, newest first, so that it can use them without reading again."""
    factor = situation.tokens.factor
    room = float(bounds.seen - estimate(_SEEN_TITLE, factor) - 8)
    listed = set(situation.evidence.names)
    found: list[str] = []
    for item in reversed(dropped):
        if room < _SHORTEST_NAME:
            break
        if item.mask is None and (item.kind == "result" or item.source == SEEN):
            for name in names_of(text_of(item.content).removeprefix(_SEEN_TITLE)[:_SEARCHED_CHARS]):
                if name not in listed and is_informative(name):
                    listed.add(name)
                    room -= estimate(f", {name}", factor) + factor
                    if room < 0:
                        break
                    found.append(name)
    return (_put(SEEN, redact(f"{_SEEN_TITLE}\n{', '.join(found)}")),) if found else ()


def is_informative(name: str) -> bool:
    """Return whether a name is worth listing; digests, keys and base64 are not."""
    if len(name) > _LONGEST_NAME:
        return False
    longest = max((len(word) for word in _WORDS.split(name)), default=0)
    return longest <= _LONGEST_WORD and not (_DIGITS.search(name) and longest > _LONGEST_MIXED)


def _more_commands(situation: Situation, evidence_text: str, kept: AbstractSet[int], room: int) -> str:
    """Return the commands of the last turns that are not in the evidence, newest first, as many as fit."""
    evidence, factor = situation.evidence, situation.tokens.factor
    first_seq = first_event_of_turns(evidence, elsewhere=kept)
    lines: list[str] = []
    for ran in reversed(evidence.commands):
        if ran.seq >= first_seq and ran.seq not in kept and ran.command[:SHORT] not in evidence_text:
            line = short_command_line(ran)
            room -= estimate(line, factor) + 1
            if room < estimate(_MORE_TITLE, factor):
                break
            lines.append(line)
    return "\n".join((_MORE_TITLE, *lines)) if lines else ""


def excerpt_title(situation: Situation, item_id: str, cut: int) -> str:
    """Return the line above a message of which the middle is cut."""
    at = next((f", {time_of(message.at)}" for message in situation.evidence.user_messages if message.id == item_id), "")
    return f"[Message {item_id} of the user{at}: {cut} tokens in the middle are left out, `recall` with the id shows it whole]"


def _put(source: str, text: str) -> Put:
    return Put("summary", Text(text), source)


# Tokens; a message is not cut to less, only its opening words are listed then.
_SHORTEST_CUT = 200
# Tokens; messages up to this size are kept before longer ones.
_SHORT_MESSAGE = 200
# Added to the age in calls and to the tokens of a result, so that very new and very small ones do not outweigh all others.
_EXTRA_AGE, _EXTRA_TOKENS = 2, 50


class FoldCandidate(NamedTuple):
    """A fold, and the tokens of the request after it."""

    fold: Fold
    tokens: int


class _ShownMessage(NamedTuple):
    """A user message in the view: its items, or the excerpt that replaced it in an earlier fold, for which `is_complete` is false."""

    id: str
    items: tuple[Item, ...]
    tokens: int
    is_complete: bool


def fold_within(situation: Situation, bounds: Bounds, floor: Floor, narrative: Put | None = None) -> FoldCandidate | None:
    """Return the fold within these bounds, or `None` if there is nothing to fold."""
    items = situation.view.items
    cut = len(items) if bounds.floor_only else tail_start(situation, bounds.tail)
    if not cut:
        return None
    run, tail = items[:cut], items[cut:]
    messages = _messages(situation, run, tail, bounds, floor)
    shown = _command_events(situation, tail)
    evidence = evidence_part(situation, bounds, shown)
    results = _results(situation, run, tail, bounds, floor)
    dropped = [item for item in run if item.id not in results]
    into: list[Put | Keep] = [
        *messages,
        *evidence,
        *used_names_part(situation, bounds, evidence, shown),
        *seen_names_part(situation, bounds, dropped),
    ]
    into += _narrative(run, bounds, narrative)
    kept = {piece.id for piece in into if isinstance(piece, Keep)}
    context = _current_context(situation, run, bounds)
    into += [Keep(item.id) for item in run if item.id in context and item.id not in kept]
    into += [Keep(item.id) for item in run if item.id in results and item.id not in kept | context]
    fold = Fold(run[0].id, run[-1].id, tuple(into))
    return FoldCandidate(fold, tokens_after(situation, run, fold))


def _command_events(situation: Situation, tail: Sequence[Item]) -> frozenset[int]:
    """Return the events of commands whose call and result are both in the tail; a result may come many calls after its command."""
    results = frozenset(seq_of(item.id) for item in tail if isinstance(item.content, ToolResult) and item.mask is None)
    calls = "\n".join(word for item in tail if isinstance(item.content, ToolCall) for word in argument_texts(item.content))
    return frozenset(ran.seq for ran in situation.evidence.commands if ran.seq in results and ran.command[:SHORT] in calls)


def tail_start(situation: Situation, bound: int) -> int:
    """Return the index where the tail begins: at a safe cut within `bound` tokens of the end, after an earlier fold.

    The last round is always in the tail.
    """
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
    """Return the user messages that stay, in their order.

    If not all fit, short ones are kept before long ones, newest first. The first long one that does not fit is cut to its head and tail;
    of older ones id, time and opening words are listed.
    """
    messages = _user_messages(situation, run)
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
    shown = frozenset(kept).union(message.id for message in _user_messages(situation, tail))
    older = older_messages_part(situation, shown, bounds.listed) if not bounds.floor_only else ()
    return [*older, *(piece for message in messages for piece in kept.get(message.id, ()))]


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


def _narrative(run: Sequence[Item], bounds: Bounds, narrative: Put | None) -> list[Put | Keep]:
    """Return the narrative: the given one, else the newest in the view; empty if the bounds have no room for one."""
    if bounds.floor_only or not bounds.narrative:
        return []
    if narrative is not None:
        return [narrative]
    earlier = [item for item in run if item.kind == "summary" and item.source == NARRATIVE]
    return [Keep(earlier[-1].id)] if earlier else []


def _current_context(situation: Situation, run: Sequence[Item], bounds: Bounds) -> set[str]:
    """Return the ids of current context in the run: of all sources, or only of those that the model cannot work without."""
    facts = situation.view.facts
    wanted = {
        fact.id
        for source, fact in facts.items()
        if source.removesuffix(CHANGED) in REQUIRED_SOURCES
        # A source with a changed value states it in full after the fold, instead of the old value and a change.
        or (not (bounds.floor_only or bounds.needed_only) and source.removesuffix(CHANGED) + CHANGED not in facts)
    }
    return {item.id for item in run if item.id in wanted}


def _results(situation: Situation, run: Sequence[Item], tail: Sequence[Item], bounds: Bounds, floor: Floor) -> set[str]:
    """Return the ids of the floor, and of results in use with their calls: recently named and small ones first.

    Small ones come first because more of them fit.
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
            worth = 1 / ((_EXTRA_AGE + calls - use.last_named) * (_EXTRA_TOKENS + tokens))
            named.append((worth, place, tokens, pair))
    room = bounds.results
    for _, _, tokens, kept_pair in sorted(named, key=lambda candidate: candidate[:2], reverse=True):
        if tokens <= room:
            room -= tokens
            kept.update(item.id for item in kept_pair)
    return kept
