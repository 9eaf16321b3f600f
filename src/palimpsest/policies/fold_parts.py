"""Parts of a fold from the log: evidence, the kept dialogue, the working set, and bounds with ever smaller fallback levels."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from palimpsest.audit.entities import argument_texts
from palimpsest.audit.fold_texts import (
    COMMANDS,
    EVIDENCE,
    FILE_TEXT,
    MESSAGES,
    NAMES,
    NARRATIVE,
    PARTIAL_MESSAGE,
    SHORT,
    count_earlier_messages,
    evidence_block,
    first_event_of_turns,
    is_fold_part,
    older_messages_block,
    short_command_line,
    time_of,
    truncated,
)
from palimpsest.audit.gate import REQUIRED_SOURCES, Floor
from palimpsest.audit.tool_calls import action_of
from palimpsest.audit.uses import clearing_masks
from palimpsest.audit.visible import KnownText, changed_paths, known_texts
from palimpsest.core.items import (
    EMPTY_MAPPING,
    MODEL_KINDS,
    Fold,
    Item,
    Keep,
    Mask,
    Put,
    Text,
    ToolCall,
    ToolResult,
    pairs_of,
    rounds,
    safe_cuts,
    seq_of,
    text_of,
)
from palimpsest.core.plans import ClosingMessage, Situation
from palimpsest.core.tokens import estimate
from palimpsest.core.truncate import preview
from palimpsest.core.view import CHANGED
from palimpsest.policies.limits import tokens_after

FULL_WINDOW = 200_000
# Tokens; halving a smaller part gains nothing.
_LEAST_HALVED = 400
_SCALED = ("messages", "listed", "evidence", "said", "commands", "names", "narrative", "results", "calls", "tail")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a fold in a window of 200,000 tokens; all but the last three are in tokens.

    messages: user messages that stay whole.
    listed: older user messages by id, time and opening words, about 800 of them; then closing messages of the agent in the same way.
    said: texts of the agent that stay whole; the last one of each turn first.
    evidence: evidence from the log.
    commands: commands of the last turns that the evidence has no room for.
    names: names that the model used itself; by default none, because they are worth less than they cost.
    narrative: the account that a model wrote.
    results: the working set: results in use with their calls, and the current texts of edited files.
    calls: the newest other calls, with stubs in place of their results.
    tail: the newest items.
    recent: a result is in use if one of this many newest calls named it.
    needed_only: keep only the context that the model cannot work without.
    floor_only: keep only the floor, and a line of evidence if it fits.
    """

    messages: int = 20_000
    listed: int = 20_000
    said: int = 6_000
    evidence: int = 4_000
    commands: int = 1_200
    names: int = 0
    narrative: int = 1_600
    results: int = 15_000
    calls: int = 5_000
    tail: int = 15_000
    recent: int = 40
    needed_only: bool = False
    floor_only: bool = False

    @property
    def usual(self) -> int:
        """Usual tokens of all parts but head and messages: evidence takes half of its bound, and the working set three fifths."""
        return self.evidence // 2 + self.said + self.names + self.calls + self.tail + self.results * 3 // 5

    def scaled(self, window: int) -> "Bounds":
        """Return the bounds for a window; below 200,000 tokens they shrink in proportion."""
        if not window or window >= FULL_WINDOW:
            return self
        share = window / FULL_WINDOW
        scaled: dict[str, Any] = {name: int(getattr(self, name) * share) for name in _SCALED}
        return replace(self, **scaled)


USUAL_LEVEL = 2
"""The level of a fold that keeps all of its parts; level 1 is clearing, which is another policy."""


def fallback_levels(bounds: Bounds, window: int) -> Iterator[tuple[int, Bounds]]:
    """Yield the fallback levels from 2 to 5 with their bounds for a window, largest first.

    Level 2 is the usual fold, 3 halves tail, working set and calls repeatedly, 4 keeps fewer messages and less evidence, 5 keeps only the
    floor.
    """
    level = bounds.scaled(window)
    yield USUAL_LEVEL, level
    while max(level.tail, level.results) > _LEAST_HALVED:
        level = replace(level, tail=level.tail // 2, results=level.results // 2, calls=level.calls // 2)
        yield 3, level
    few_messages = Bounds(messages=5_000, evidence=1_000).scaled(window)
    without_parts = replace(level, said=0, commands=0, names=0, narrative=0, results=0, calls=0, tail=0)
    level = replace(without_parts, messages=min(level.messages, few_messages.messages), evidence=min(level.evidence, few_messages.evidence))
    yield 4, level
    yield 4, replace(level, needed_only=True)
    yield 5, replace(level, messages=0, evidence=min(level.evidence, 200), floor_only=True)
    yield 5, replace(level, messages=0, evidence=0, floor_only=True)


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
                if message.is_complete and (piece := _head_and_tail(situation, message, room)) is not None:
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


def _head_and_tail(situation: Situation, message: _ShownMessage, room: int) -> Put | None:
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


# Added to the age in calls and to the tokens of a part, so that very new and very small ones do not outweigh all others.
_EXTRA_AGE, _EXTRA_TOKENS = 2, 50
# A file that was edited is edited again more often than a result is used again, and one that was used more often than one that was not.
_FILE_WORTH, _NAMED_WORTH = 50.0, 2.0
# Files whose present text is read before a fold.
_MOST_FILES = 8
# Tokens; a larger result is masked if only its call stays, and a larger call does not stay without its result.
_SMALL_RESULT, _LARGEST_CALL = 100, 400


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What stays of the work.

    ids: items that stay.
    texts: files as they are now.
    masks, freed: masks of the results of which only the call stays, and the tokens that these free.
    lost: tokens of results in use and of files in work for which there is no room.
    """

    ids: frozenset[str]
    texts: tuple[Put, ...] = ()
    masks: tuple[Mask, ...] = ()
    freed: int = 0
    lost: int = 0


class _WorkPart(NamedTuple):
    """A part of the working set: its worth, its tokens, and the items that stay, or a new text in their place.

    `is_unseen` says that no item has shown the text, so that nothing is lost if there is no room for it.
    """

    worth: float
    tokens: int
    ids: tuple[str, ...]
    text: Put | None = None
    is_unseen: bool = False


def files_in_work(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the paths of the files that were changed last, newest first: those whose text may stay."""
    return tuple(reversed(changed_paths(items)))[:_MOST_FILES]


def working_set(
    situation: Situation, run: Sequence[Item], tail: Sequence[Item], bounds: Bounds, floor: Floor, *, now: Mapping[str, str]
) -> WorkingSet:
    """Return what stays of the folded items beside the dialogue: the floor, and by expected use what fits within the bounds.

    `now` are the present texts of files in work, as far as they could be read.
    """
    kept = {item.id for item in run if item.id in floor.ids}
    texts: list[Put] = []
    room, lost = bounds.results, 0
    for candidate in sorted(_candidates(situation, run, tail, bounds.recent, now), key=lambda each: -each.worth) if room else ():
        if candidate.ids and kept.issuperset(candidate.ids):
            continue
        if candidate.tokens <= room:
            room -= candidate.tokens
            kept.update(candidate.ids)
            texts += [candidate.text] if candidate.text is not None else []
        else:
            lost += 0 if candidate.is_unseen else candidate.tokens
    calls, masks, freed = _calls(situation, run, kept, bounds)
    return WorkingSet(frozenset(kept | calls), tuple(texts), masks, freed, lost)


def _candidates(situation: Situation, run: Sequence[Item], tail: Sequence[Item], recent: int, now: Mapping[str, str]) -> list[_WorkPart]:
    files = {path: file for path, file in known_texts((*run, *tail)).items() if file.edits}
    changed = _changed_since(files, now, changed_paths((*run, *tail)))
    files |= changed
    in_files = {item_id for file in files.values() for item_id in file.items}
    results = [each for each in _results(situation, run, tail, recent) if in_files.isdisjoint(each.ids)]
    return [*_files(situation, run, files, now, changed.keys()), *results]


def _changed_since(files: Mapping[str, KnownText], now: Mapping[str, str], changed: Mapping[str, str]) -> dict[str, KnownText]:
    """Return the present texts of the files whose text the log does not know, or knows as it was before something else changed it."""
    found: dict[str, KnownText] = {}
    for path, text in now.items():
        known = files.get(path)
        # What is known may be the part of a file that was read; blanks at its end are those of the tool that printed it.
        if known is None or known.text.rstrip() not in text:
            items = known.items if known is not None else ()
            found[path] = KnownText(text, items, is_shown=False, in_call=False, edits=1, touched=changed[path])
    return found


def _worth(age: int, tokens: int) -> float:
    return 1 / ((_EXTRA_AGE + age) * (_EXTRA_TOKENS + tokens))


def _files(
    situation: Situation, run: Sequence[Item], files: Mapping[str, KnownText], now: Mapping[str, str], unseen: AbstractSet[str]
) -> Iterator[_WorkPart]:
    """Yield the edited files whose current text is known and which the tail does not show; no item has shown the text of `unseen`."""
    items = {item.id: item for item in run}
    replies = sorted({seq_of(item.id) for item in situation.view.items if isinstance(item.content, ToolCall)})
    for path, file in files.items():
        age = len(replies) - bisect_right(replies, seq_of(file.touched))
        if not file.is_shown and file.text.strip():
            when = "as it is now" if now.get(path) == file.text else "after its last recorded edit"
            put = Put("summary", Text(f"[{path} {when}]\n{file.text}"), f"{FILE_TEXT}{path}")
            tokens = situation.tokens.content(put.content)
            yield _WorkPart(_FILE_WORTH * _worth(age, tokens), tokens, (), put, is_unseen=path in unseen)
        shown = [items[item_id] for item_id in file.items if item_id in items]
        if file.is_shown and shown and (file.in_call or shown[-1].mask is None):
            tokens = sum(situation.tokens.item(item) for item in shown)
            yield _WorkPart(_FILE_WORTH * _worth(age, tokens), tokens, file.items)


def _results(situation: Situation, run: Sequence[Item], tail: Sequence[Item], recent: int) -> Iterator[_WorkPart]:
    """Yield the results that arrived or were named in the last `recent` calls, with their calls; not those that are out of date."""
    counter, calls = situation.tokens, situation.health.calls
    pairs = {result.id: (call, result) for call, result in pairs_of((*run, *tail))}
    for item in run:
        use, pair = situation.uses.get(item.id), pairs.get(item.id)
        if use is None or use.died is not None or use.superseded is not None or item.mask is not None or pair is None:
            continue
        age = calls - (use.last_named or use.arrived)
        if age <= recent:
            tokens = sum(counter.item(half) for half in pair)
            yield _WorkPart((_NAMED_WORTH if use.last_named else 1.0) * _worth(age, tokens), tokens, (pair[0].id, pair[1].id))


def _calls(situation: Situation, run: Sequence[Item], kept: set[str], bounds: Bounds) -> tuple[set[str], tuple[Mask, ...], int]:
    """Return the ids of the newest calls with their results, the masks of those results, and the tokens that the masks free."""
    room, freed = bounds.calls, 0
    places = {item.id: place for place, item in enumerate(run)}
    ids: set[str] = set()
    masks: list[Mask] = []
    for call, result in reversed(tuple(pairs_of(run))):
        tokens, whole, gain = situation.tokens.item(call), situation.tokens.item(result), 0
        if result.id in kept or tokens > _LARGEST_CALL or not room:
            continue
        found: list[tuple[Mask, int]] = []
        if result.mask is None and (whole > _SMALL_RESULT or _is_read(call)):
            found = clearing_masks(situation.view, [places[result.id]], situation.tokens)
            gain = sum(freed_tokens for _, freed_tokens in found)
        if tokens + whole - gain <= room:
            room -= tokens + whole - gain
            ids |= {call.id, result.id}
            masks += [mask for mask, _ in found]
            freed += gain
    return ids, tuple(reversed(masks)), freed


def _is_read(call: Item) -> bool:
    """Whether a call read a file; its result may be out of date."""
    return isinstance(call.content, ToolCall) and action_of(call.content).kind == "read"


_EVIDENCE_TITLE = "[Work so far, listed from the log by a program; results that are gone can be read again or recalled]"
_MORE_TITLE = "[More commands of the last turns, newest first, with exit codes]"
_NAMES_TITLE = "[Names used lately, newest first]"
_TASK_CHARS = 60
_NO_EVENTS: frozenset[int] = frozenset()
NO_FILES: Mapping[str, str] = MappingProxyType({})


def evidence_part(situation: Situation, bounds: Bounds, kept: AbstractSet[int] = _NO_EVENTS) -> tuple[Put, ...]:
    """Return the evidence about the work so far; open tasks are always listed.

    The results of the events `kept` stay visible, so that their commands are listed only if there is room.
    """
    evidence, factor = situation.listed_evidence, situation.tokens.factor
    room = bounds.evidence - estimate(_EVIDENCE_TITLE, factor) - 8
    text = evidence_block(evidence, room, elsewhere=kept, factor=factor) if room > 0 else ""
    missing = [f"- {truncated(task, _TASK_CHARS)}" for task in evidence.tasks if task[:_TASK_CHARS] not in text]
    if missing:
        text = "\n".join((*(text,) * bool(text), "Open tasks:", *missing))
    return (_put(EVIDENCE, f"{_EVIDENCE_TITLE}\n{text}"),) if text else ()


def more_commands_part(
    situation: Situation, bounds: Bounds, evidence: Iterable[Put], kept: AbstractSet[int] = _NO_EVENTS
) -> tuple[Put, ...]:
    """Return the commands of the last turns that the evidence has no room for, newest first, as many as fit."""
    text = "\n".join(text_of(piece.content) for piece in evidence)
    more = _more_commands(situation, text, kept, bounds.commands)
    return (_put(COMMANDS, more),) if more else ()


def _more_commands(situation: Situation, evidence_text: str, kept: AbstractSet[int], room: int) -> str:
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


def used_names_part(situation: Situation, bounds: Bounds) -> tuple[Put, ...]:
    """Return the names that the model used, newest first, as many as fit."""
    factor, shown = situation.tokens.factor, list[str]()
    room = bounds.names - estimate(_NAMES_TITLE, factor)
    for name in reversed(situation.evidence.names):
        room -= estimate(f", {name}", factor)
        if room < 0:
            break
        shown.append(name)
    return (_put(NAMES, f"{_NAMES_TITLE}\n{', '.join(shown)}"),) if shown else ()


def _put(source: str, text: str) -> Put:
    return Put("summary", Text(text), source)


class FoldCandidate(NamedTuple):
    """A fold with its masks, the tokens of the request after it, and the tokens of what is in use and does not stay."""

    edits: tuple[Fold | Mask, ...]
    tokens: int
    lost: int


def fold_within(
    situation: Situation, bounds: Bounds, floor: Floor, narrative: Put | None = None, files: Mapping[str, str] = NO_FILES
) -> FoldCandidate | None:
    """Return the fold within these bounds, or `None` if there is nothing to fold. `files` are present texts of files in work, by path."""
    items = situation.view.items
    cut = len(items) if bounds.floor_only else tail_start(situation, bounds.tail)
    if not cut:
        return None
    run, tail = items[:cut], items[cut:]
    messages = dialogue(situation, run, tail, bounds, floor)
    shown = _command_events(situation, tail)
    evidence = evidence_part(situation, bounds, shown)
    work = working_set(situation, run, tail, bounds, floor, now=files)
    into: list[Put | Keep] = [
        *messages,
        *evidence,
        *more_commands_part(situation, bounds, evidence, shown),
        *used_names_part(situation, bounds),
    ]
    into += _narrative(run, bounds, narrative)
    kept = {piece.id for piece in into if isinstance(piece, Keep)}
    context = _current_context(situation, run, bounds)
    into += [Keep(item.id) for item in run if item.id in context and item.id not in kept]
    into += [Keep(item.id) for item in run if item.id in work.ids and item.id not in kept | context]
    into += work.texts
    into = _with_bound_thinking(situation, run, into)
    fold = Fold(run[0].id, run[-1].id, tuple(into))
    return FoldCandidate((fold, *work.masks), tokens_after(situation, run, fold) - work.freed, work.lost)


def _with_bound_thinking(situation: Situation, run: Sequence[Item], pieces: Sequence[Put | Keep]) -> list[Put | Keep]:
    """The pieces of a fold with the thinking that still fits: as long as they are the items that the run begins with."""
    if not situation.reasoning:
        return [*pieces]
    begun: list[Put | Keep] = []
    waiting: list[Keep] = []
    left = iter(pieces)
    piece = next(left, None)
    for item in run:
        if item.id in situation.reasoning or _is_blank_reply(item):
            waiting.append(Keep(item.id))
            continue
        if piece != Keep(item.id):
            break
        # Thinking is not sent without anything of its reply behind it.
        begun += [*(waiting if item.kind in MODEL_KINDS else ()), piece]
        waiting, piece = [], next(left, None)
    return [*begun, *([piece] if piece is not None else ()), *left]


def _is_blank_reply(item: Item) -> bool:
    """Whether an item is white space of a reply, which the thinking behind it may be bound to."""
    return item.kind == "assistant" and isinstance(item.content, Text) and not item.content.text.strip()


def _command_events(situation: Situation, tail: Sequence[Item]) -> frozenset[int]:
    """Return the events of commands whose call and result are both in the tail; a result may come many calls after its command."""
    results = frozenset(seq_of(item.id) for item in tail if isinstance(item.content, ToolResult) and item.mask is None)
    calls = "\n".join(word for item in tail if isinstance(item.content, ToolCall) for word in argument_texts(item.content))
    return frozenset(ran.seq for ran in situation.evidence.commands if ran.seq in results and ran.command[:SHORT] in calls)


def tail_start(situation: Situation, bound: int) -> int:
    """Return the index where the tail begins: at a safe cut within `bound` tokens of the end, after an earlier fold.

    The last round is always in the tail. No reply or message is divided, because a reply may have calls that its provider has run.
    """
    items, counter = situation.view.items, situation.tokens
    cuts = [cut for cut in safe_cuts(items) if cut in (0, len(items)) or seq_of(items[cut - 1].id) != seq_of(items[cut].id)]
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
