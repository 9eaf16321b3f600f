"""The working set of a fold: results in use, the current text of the files in work, and the newest calls without their results."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from palimpsest.audit.dead_results import clearing_masks
from palimpsest.audit.floor import Floor
from palimpsest.audit.fold_texts import FILE_TEXT
from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.visibility.known_files import KnownText, changed_paths, known_texts
from palimpsest.core.edits import Mask, Put
from palimpsest.core.items import Item, Text, ToolCall, seq_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.situation import Situation
from palimpsest.policies.fold.bounds import Bounds

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
