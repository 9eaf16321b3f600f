"""Scores probes by rules: which facts the texts that a model sees prove, and which one recall would bring back."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import filterfalse
from typing import Final

from msgspec import structs

from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.audit.visibility.visible import last_two_parts, readable_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Content, Item, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.view import View, shown
from palimpsest.lab.probes.phrases import NamedIn, is_bare_list, is_named_in
from palimpsest.lab.probes.probes import KINDS, CommandOutcome, EditedFile, Fact, Kind, LastValue, Probe, QuotedText
from palimpsest.tools.session.recall import SHORT_ADDRESS

# Item ids as masks and folds write them.
_ITEM_ID: Final = re.compile(r"(?:\bid |\(|^- |\buser |`recall` )(\d+\.\d+(?:\.\d+)?)(?=[\],:;) ]|$)", re.MULTILINE)
# A command is identified by its first characters.
_COMMAND_CHARACTERS: Final = 60
# A shorter note could occur by coincidence.
_SHORTEST_NOTE: Final = 8


class ProbedText(Value, frozen=True):
    """One text; `event` is the recorded event that it shows whole, -1 for text of an edit; `result` is true for a tool result."""

    text: str
    event: int = -1
    result: bool = False


def model_text(content: Content) -> str:
    """Return the readable text of a content; empty for thinking, which not all providers get back."""
    return "" if isinstance(content, Thinking) else readable_text(content)


def visible(view: View, recorded_seqs: Mapping[int, int], *, drops_cached: bool = False) -> tuple[ProbedText, ...]:
    """Return the texts of a view; `recorded_seqs` maps an event of this log to the recorded event that it repeats."""
    found = []
    for item in (*view.head, *view.items):
        content = shown(item, drops_cached=drops_cached)
        if content is None:
            continue
        whole = content is item.content and item.id.count(".") == 1
        event = recorded_seqs.get(int(item.id.partition(".")[0]), -1) if whole else -1
        found.append(ProbedText(model_text(content), event, isinstance(content, ToolResult) and content is item.content))
    return tuple(found)


class RecordedTexts:
    """All recorded contents as a recall would bring them: whole, one at a time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._texts: dict[tuple[int, int], ProbedText] = {}
        # Keys of contents by path: results that read a file, and calls that wrote it.
        self._read: dict[str, list[tuple[int, int]]] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        calls: dict[str, ToolCall] = {}
        for event in events:
            contents = items_of(event.seq, event.body) if isinstance(event.body, UserSaid | ModelReplied | ToolReturned) else ()
            for number, content in enumerate(item.content for item in contents):
                key = (event.seq, number)
                self._texts[key] = ProbedText(model_text(content), event.seq, isinstance(content, ToolResult))
                if isinstance(content, ToolCall):
                    calls[content.call_id] = content
                    self._index_paths(content, key, written=True)
                elif isinstance(content, ToolResult) and content.call_id in calls:
                    self._index_paths(calls.pop(content.call_id), key, written=False)

    def _index_paths(self, call: ToolCall, key: tuple[int, int], *, written: bool) -> None:
        index = self._written if written else self._read
        for touched in action_of(call).paths:
            if (touched.how in ("edit", "write")) == written:
                index.setdefault(normalized_path(touched.path), []).append(key)

    @property
    def texts(self) -> tuple[ProbedText, ...]:
        """All recorded texts."""
        return tuple(self._texts.values())

    def reachable(self, view: View, recorded_seqs: Mapping[int, int]) -> tuple[ProbedText, ...]:
        """Return the hidden texts that one recall from a view could bring back.

        These are items whose id is visible, truncated results whose blob is named, and the newest content of each visible path.
        """
        visible_keys = {key for item in view.items if item.mask is None and (key := _key(item.id, recorded_seqs)) is not None}
        found: dict[tuple[int, int], None] = {}
        for named_id in _named_ids(view.items):
            key = _key(named_id, recorded_seqs)
            if key is not None and key not in visible_keys:
                found[key] = None
        text = "\n".join(visible_text.text for visible_text in visible(view, recorded_seqs)).replace("\\", "/")
        for item in view.items:
            blob = item.content.blob if isinstance(item.content, ToolResult) and item.mask is None else ""
            key = _key(item.id, recorded_seqs) if blob and blob[:SHORT_ADDRESS] in text else None
            if key is not None:
                found[key] = None
        for index in (self._read, self._written):
            for path, keys in index.items():
                if keys[-1] not in visible_keys and path_ending(path) in text:
                    found[keys[-1]] = None
        return tuple(self._texts[key] for key in sorted(found) if key in self._texts)


def path_ending(path: str) -> str:
    """Return the last two parts of a path, with forward slashes."""
    return last_two_parts(path.replace("\\", "/").rstrip("/"))


def _key(item_id: str, recorded_seqs: Mapping[int, int]) -> tuple[int, int] | None:
    numbers = item_id.split(".")
    event = recorded_seqs.get(int(numbers[0]))
    return (event, int(numbers[1])) if event is not None and len(numbers) == 2 else None


def _named_ids(items: Iterable[Item]) -> Iterator[str]:
    """Yield the item ids in masks and in texts of edits; in other texts such a number is not an id."""
    for item in items:
        if item.mask is not None:
            yield from _ITEM_ID.findall(item.mask.text)
        elif item.id.count(".") == 2 and isinstance(item.content, Text):
            yield from _ITEM_ID.findall(item.content.text)


class Score(Value, frozen=True, omit_defaults=False):
    """Shares of answered probes, from 0 to 1, by kind and over all kinds; kinds without probes are left out."""

    total: float
    kinds: dict[Kind, float]


def score(probes: Iterable[Probe], visible: Sequence[ProbedText], recalled: Sequence[ProbedText] = ()) -> Score:
    """Score probes: a probe by the share of its proved facts, a kind by the mean of its probes, the total by the mean of the kinds.

    The share of decoys that are proved is taken off, down to zero.
    `recalled` are texts that one recall could bring back: a fact is proved by any single visible or recalled text.
    """
    is_proved = fact_checker((*visible, *recalled))
    shares_by_kind: dict[Kind, list[float]] = {}
    for probe in probes:
        wrong = sum(map(is_proved, probe.decoys)) / len(probe.decoys) if probe.decoys else 0.0
        shares_by_kind.setdefault(probe.kind, []).append(max(0.0, sum(map(is_proved, probe.facts)) / len(probe.facts) - wrong))
    kinds = {kind: sum(shares_by_kind[kind]) / len(shares_by_kind[kind]) for kind in KINDS if kind in shares_by_kind}
    total = sum(kinds.values()) / len(kinds) if kinds else 1.0
    return Score(round(total, 4), {kind: round(share, 4) for kind, share in kinds.items()})


def answerable(probes: Iterable[Probe], texts: Sequence[ProbedText], stated: Sequence[ProbedText] = ()) -> tuple[Probe, ...]:
    """Return the probes with only those facts that the whole recording proves, and those decoys that it does not.

    `stated` is the context that was stated beside the recorded contents. Probes without such facts are left out.
    """
    is_proved, is_shown = fact_checker(texts), fact_checker((*texts, *stated))
    checked = (
        structs.replace(probe, facts=tuple(filter(is_proved, probe.facts)), decoys=tuple(filterfalse(is_shown, probe.decoys)))
        for probe in probes
    )
    return tuple(probe for probe in checked if probe.facts)


def fact_checker(texts: Sequence[ProbedText]) -> Callable[[Fact], bool]:
    """Return a function that tests whether one of the texts proves a fact; whitespace is normalised once.

    A text of an edit that is a bare list of names proves nothing.
    """
    texts = [each for each in texts if each.event >= 0 or each.result or not is_bare_list(each.text)]
    plain_texts = [_plain_whitespace(visible_text.text) for visible_text in texts]
    statements = [
        (visible_text, text.replace("\\", "/")) for visible_text, text in zip(texts, plain_texts, strict=True) if not visible_text.result
    ]
    events = {visible_text.event for visible_text in texts if visible_text.result}

    def is_proved(fact: Fact) -> bool:
        match fact:
            case QuotedText(text=text):
                words = _plain_whitespace(text)
                return any(words in each for each in plain_texts)
            case EditedFile(path=path):
                ending = path_ending(path)
                return any(ending in text and _is_whole_word(ending, text) for _, text in statements)
            case CommandOutcome():
                return fact.event in events or any(_states_outcome(fact, visible_text.text, text) for visible_text, text in statements)
            case LastValue(name=name, value=value):
                return any(
                    name in visible_text.text and value in visible_text.text and _in_one_line(name, value, visible_text.text)
                    for visible_text in texts
                )
            case NamedIn():
                return is_named_in(fact, (visible_text.text for visible_text in texts))

    return is_proved


def _states_outcome(fact: CommandOutcome, text: str, plain: str) -> bool:
    """Whether a text states the outcome of a command: by its note, or by the command and its exit code in one line."""
    note = _plain_path_text(fact.note)
    if len(note) >= _SHORTEST_NOTE and note in plain:
        return True
    if fact.exit is None:
        return False
    full_command, code = _plain_path_text(fact.command), str(fact.exit)
    command = full_command[:_COMMAND_CHARACTERS]
    if command not in plain:
        return False
    # A cut command may continue in the text; a whole one must end there.
    is_cut = len(full_command) > _COMMAND_CHARACTERS
    lines = (line for line in map(_plain_path_text, text.split("\n")) if command in line and (is_cut or _is_whole_word(command, line)))
    if any(_is_whole_word(code, line.replace(command, " ")) for line in lines):
        return True
    # A command of several lines may be written in one; its exit code precedes it.
    return "\n" in fact.command and _is_whole_word(code, plain.partition(command)[0].rpartition("- ")[2])


def _in_one_line(name: str, value: str, text: str) -> bool:
    return any(name in line and _is_whole_word(name, line) and _is_whole_word(value, line) for line in text.split("\n"))


def _is_whole_word(words: str, text: str) -> bool:
    """Whether words occur in a text as whole words; Chinese has no word boundaries."""
    return _whole_word(words).search(text) is not None


@lru_cache(maxsize=4_096)
def _whole_word(words: str) -> re.Pattern[str]:
    before = r"(?<![A-Za-z0-9_])" if words[:1].isascii() else ""
    after = r"(?![A-Za-z0-9_])(?!\.\d)" if words[-1:].isascii() else ""
    return re.compile(before + re.escape(words) + after)


def _plain_path_text(text: str) -> str:
    """Return a text with single spaces and forward slashes."""
    return _plain_whitespace(text).replace("\\", "/")


def _plain_whitespace(text: str) -> str:
    return " ".join(text.split())
