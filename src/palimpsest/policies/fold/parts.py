"""The parts of a fold from the log: what is kept verbatim, which texts are added, in which order and within which bounds."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from palimpsest.audit.entities import argument_texts
from palimpsest.audit.floor import REQUIRED_SOURCES, Floor
from palimpsest.audit.fold_texts import (
    COMMANDS,
    EVIDENCE,
    NAMES,
    NARRATIVE,
    SHORT,
    evidence_block,
    first_event_of_turns,
    is_fold_part,
    short_command_line,
    truncated,
)
from palimpsest.core.edits import Fold, Keep, Mask, Put
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.pairs import rounds, safe_cuts
from palimpsest.core.situation import Situation
from palimpsest.core.tokens.estimate import estimate
from palimpsest.core.view import CHANGED
from palimpsest.policies.fold.bounds import Bounds
from palimpsest.policies.fold.dialogue import dialogue
from palimpsest.policies.fold.working_set import working_set
from palimpsest.policies.fold_threshold import tokens_after

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
    fold = Fold(run[0].id, run[-1].id, tuple(into))
    return FoldCandidate((fold, *work.masks), tokens_after(situation, run, fold) - work.freed, work.lost)


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
