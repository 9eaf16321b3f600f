"""Probes: questions about a session whose answers follow from its log, scored by rules, also after forced folds."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import filterfalse, pairwise
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import structs

from pal.replay.outcome import KindScores, ProbeScores
from pal.replay.simulation import RealSummaries, SummaryProvider, simulated_encoder
from palimpsest.agent.archive import SHORT_ADDRESS
from palimpsest.agent.calls import carry_out_now, compact
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.agent.ways_back import name_whole
from palimpsest.audit.entities import argument_texts, is_name, names_of, trimmed
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.tool_calls import action_of, result_text
from palimpsest.audit.visible import last_two_parts, normalized_path, readable_text
from palimpsest.core.errors import TooFull
from palimpsest.core.events import (
    TURN,
    Body,
    ContextStated,
    EditRefused,
    Event,
    ModeChanged,
    ModelReplied,
    SessionOpened,
    TaskChanged,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
    items_of,
)
from palimpsest.core.items import Content, Item, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.plans import CommandRun
from palimpsest.core.view import View, shown
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import ModelCard

NEXT_REPLIES: Final = 20
"""Recorded replies after the last fold whose calls say what is used next."""
MOST_NAMES: Final = 20
_MOST_CLOSINGS: Final = 20
_SHORTEST_NUMBER: Final = 2
_PHRASE_LONGEST_TEXT: Final = 100_000
# Characters beside a name that are searched for the word before or after it.
_REACH: Final = 48
_EDGES: Final = "`*\"'()[]{}<>,;:!?.|=-#"


class NamedIn(Value, frozen=True, tag="named"):
    """A name, path or number: it must be visible beside one of the plain words that stood beside it in the recording."""

    name: str
    words: tuple[str, ...]


def neighbours(text: str, name: str) -> set[str]:
    """Return the plain words directly before and after a name, wherever it stands by itself; names and numbers are no plain words."""
    found: set[str] = set()
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not _continues(text[start - 1 : start]) and not _continues(text[end : end + 1]):
            before = [word for each in text[max(0, start - _REACH) : start].split() if (word := each.strip(_EDGES))]
            after = [word for each in text[end : end + _REACH].split() if (word := each.strip(_EDGES))]
            found.update(word.lower() for word in (*before[-1:], *after[:1]) if _is_plain(word))
        start = text.find(name, end)
    return found


def is_named_in(fact: NamedIn, texts: Iterable[str]) -> bool:
    """Whether one of the texts shows the name of a fact beside one of its words."""
    return any(fact.name in text and not neighbours(text, fact.name).isdisjoint(fact.words) for text in texts)


def is_bare_list(text: str) -> bool:
    """Whether a text has several names, paths and numbers, and nothing that says what they stand for: no plain word, no sign of a value.

    A text that is not ASCII is none, because its words need not have blanks between them.
    """
    tokens = text.split()
    return (
        len(tokens) > 1 and text.isascii() and not any("=" in each or each[-1] == ":" or _is_plain(each.strip(_EDGES)) for each in tokens)
    )


def closing_facts(events: Iterable[Event]) -> list[tuple[NamedIn, ...]]:
    """Return the names, paths and numbers of each closing message, which is a reply without calls, with their words there."""
    found = []
    for event in events:
        body = event.body
        if isinstance(body, ModelReplied) and not any(isinstance(part, ToolCall) for part in body.parts):
            text = "\n".join(part.text for part in body.parts if isinstance(part, Text))[:_PHRASE_LONGEST_TEXT]
            facts = [NamedIn(name, tuple(sorted(words))) for name in _entities(text) if (words := neighbours(text, name))]
            found.append(tuple(facts[:MOST_NAMES]))
    return [facts for facts in found if facts][-_MOST_CLOSINGS:]


def next_facts(replies: Iterable[Event], earlier: Sequence[str]) -> tuple[NamedIn, ...]:
    """Return the names and paths in the calls of some replies that earlier texts show, with their words there."""
    calls = [part for event in replies if isinstance(event.body, ModelReplied) for part in event.body.parts if isinstance(part, ToolCall)]
    names = dict.fromkeys(name for call in calls for name in names_of("\n".join(argument_texts(call))[:_PHRASE_LONGEST_TEXT]))
    facts = []
    for name in names:
        words = set[str]().union(*(neighbours(text, name) for text in earlier if name in text))
        if words:
            facts.append(NamedIn(name, tuple(sorted(words))))
    return tuple(facts[: 5 * MOST_NAMES])


def decoys_of(facts: Sequence[NamedIn]) -> tuple[NamedIn, ...]:
    """Return facts that are not so: each name with the words of the next name, without those that it had itself."""
    rotated = (*facts[1:], *facts[:1])
    return tuple(
        NamedIn(one.name, words)
        for one, other in zip(facts, rotated, strict=True)
        if one.name != other.name and (words := tuple(word for word in other.words if word not in one.words))
    )


def _entities(text: str) -> list[str]:
    """Return the distinct names, paths and numbers of a text, in order."""
    tokens = (trimmed(each.strip(_EDGES)) for each in text.split())
    return list(dict.fromkeys(token for token in tokens if is_name(token) or (token.isdecimal() and len(token) >= _SHORTEST_NUMBER)))


def _continues(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_plain(word: str) -> bool:
    return word.isalpha() and len(word) > 1 and not is_name(word)


Kind: TypeAlias = Literal["asked", "edited", "commands", "tests", "values", "open", "concluded", "next"]
KINDS: Final[tuple[Kind, ...]] = ("asked", "edited", "commands", "tests", "values", "open", "concluded", "next")

MOST_PROBES: Final = 20
MOST_FACTS: Final = 100
LONGEST_TEXT: Final = 300
SHORTEST_TEXT: Final = 6
_SENTENCE_END: Final = re.compile(r"\n|(?<=[.!?])\s+|(?<=[。！？])")


class QuotedText(Value, frozen=True, tag="worded"):
    """Text that must be visible verbatim, except for whitespace."""

    text: str


class EditedFile(Value, frozen=True, tag="changed"):
    """An edited file: its path must be visible outside of tool results."""

    path: str


class CommandOutcome(Value, frozen=True, tag="ended"):
    """Outcome of a command: proved by its result, by a line with the command and its exit code, or by its summary line (`note`)."""

    command: str
    exit: int | None
    note: str
    event: int


class LastValue(Value, frozen=True, tag="held"):
    """The last value of a name: both must be visible in one line."""

    name: str
    value: str


Fact: TypeAlias = QuotedText | EditedFile | CommandOutcome | LastValue | NamedIn


class Probe(Value, frozen=True):
    """A question, the facts that answer it, and decoys: facts that are not so, which no view may prove."""

    kind: Kind
    question: str
    facts: tuple[Fact, ...]
    decoys: tuple[Fact, ...] = ()


Element = TypeVar("Element")


def probes_of(events: Iterable[Event]) -> tuple[Probe, ...]:
    """Return all probes of a session, by kind; a probe without facts is left out."""
    all_events = tuple(events)
    projection = EvidenceProjection()
    for event in all_events:
        projection.take(event)
    evidence = projection.value()
    ended = [run for run in evidence.commands if run.exit is not None][-MOST_PROBES:]
    tests = evidence.tests
    tasks: list[Fact] = [QuotedText(_plain_task(task)[:LONGEST_TEXT]) for task in evidence.tasks]
    probes = (
        *_user_request_probes(all_events),
        Probe("edited", "Which files were edited?", tuple(map(EditedFile, spread(evidence.edited, MOST_FACTS)))),
        Probe("commands", "Which commands were run last, and how did each end?", tuple(map(_outcome_of, ended))),
        Probe("tests", "What was the exit code of the last test run?", () if tests is None else (_outcome_of(tests),)),
        *(Probe("values", f"Which value did {fact.name} have last?", (fact,)) for fact in spread(named_values(all_events), MOST_PROBES)),
        Probe("open", "What is still open?", tuple(spread([*tasks, *map(_outcome_of, evidence.errors)], MOST_FACTS))),
        *(Probe("concluded", "What did the agent conclude?", facts, decoys_of(facts)) for facts in closing_facts(all_events)),
    )
    return tuple(probe for probe in probes if probe.facts)


def next_probe(replies: Iterable[Event], earlier: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probe about what the calls of some replies use, of all that earlier texts show; none if there is nothing."""
    facts = next_facts(replies, earlier)
    return (Probe("next", "What is used next?", facts, decoys_of(facts)),) if facts else ()


def _user_request_probes(events: Sequence[Event]) -> list[Probe]:
    """Return one probe a turn, for at most `MOST_PROBES` turns at even distances."""
    messages = [event for event in events if isinstance(event.body, UserSaid) and not event.body.steering]
    turns = list(enumerate(messages, 1))
    return [
        Probe("asked", f"What did the user ask at turn {number}?", tuple(map(QuotedText, _sentences(event))))
        for number, event in spread(turns, MOST_PROBES)
    ]


def _sentences(event: Event) -> list[str]:
    """Return the distinct informative sentences of a user message."""
    body = event.body
    texts = [part.text for part in body.parts if isinstance(part, Text)] if isinstance(body, UserSaid) else []
    sentences = [sentence.strip() for text in texts for sentence in _SENTENCE_END.split(text)]
    return spread([text[:LONGEST_TEXT] for text in dict.fromkeys(sentences) if _is_informative(text)], MOST_FACTS)


def _is_informative(text: str) -> bool:
    """Whether a text is long enough that finding it is no coincidence; "1" or "ok" is not."""
    return sum(1 if character.isascii() else 3 for character in text) >= SHORTEST_TEXT


def _outcome_of(run: CommandRun) -> CommandOutcome:
    return CommandOutcome(run.command, run.exit, run.note, run.seq)


def _plain_task(task: str) -> str:
    """Return a task without its `#` number."""
    first, blank, rest = task.partition(" ")
    return rest if blank and first.startswith("#") else task


def spread(elements: Sequence[Element], most: int) -> list[Element]:
    """Return at most `most` elements at even distances, including the first and the last."""
    if len(elements) <= most:
        return list(elements)
    return [elements[round(number * (len(elements) - 1) / (most - 1))] for number in range(most)]


# A name, an assignment sign and a number; Chinese has its own names, colons and verbs for this.
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w./@$-])([A-Za-z_][\w-]{4,60}|[\u4e00-\u9fff]{2,12})(?:[\"'`]?\s{0,3}(?:=|:|：|＝)|为|是)\s{0,3}[\"']?"
    r"(-?\d[\d_]*(?:\.\d+)?)(?![\w.:/-]|,\d)"
)
_LONGEST_LINE: Final = 400
_LONGEST_TEXT: Final = 100_000
_MOST_CHINESE: Final = 400


@dataclass(slots=True)
class _NameState:
    """Last value of a name; `unique` is false if one text gives several values, `used` is the newest event that uses the name, or -1."""

    value: str = ""
    unique: bool = True
    used: int = -1


def named_values(events: Iterable[Event]) -> list[LastValue]:
    """Return every name with a unique last value that was used later, ordered by last use."""
    states: dict[str, _NameState] = {}
    chinese: dict[str, None] = {}
    for event in events:
        match event.body:
            case UserSaid(parts=parts):
                _record_uses(states, chinese, [part.text for part in parts if isinstance(part, Text)], event.seq)
            case ModelReplied(parts=parts):
                calls = [part for part in parts if isinstance(part, ToolCall)]
                texts = [part.text for part in parts if isinstance(part, Text)]
                _record_uses(states, chinese, [*texts, *("\n".join(argument_texts(call)) for call in calls)], event.seq)
                # An edit call holds the old text before the new one, so the last value counts.
                written = "\n".join(word for call in calls if action_of(call).kind in ("edit", "write") for word in argument_texts(call))
                _record_values(states, chinese, written, last_only=True)
            case ToolReturned(result=result) if not result.error:
                _record_values(states, chinese, result_text(result))
            case _:
                pass
    used = sorted((state.used, name, state.value) for name, state in states.items() if state.used >= 0 and state.unique)
    return [LastValue(name, value) for _, name, value in used]


def _record_uses(states: dict[str, _NameState], chinese: dict[str, None], texts: list[str], seq: int) -> None:
    for text in texts:
        for name in names_of(text[:_LONGEST_TEXT]):
            if name in states:
                states[name].used = seq
        for name in chinese if not text.isascii() else ():
            if name in text:
                states[name].used = seq


def _record_values(states: dict[str, _NameState], chinese: dict[str, None], text: str, *, last_only: bool = False) -> None:
    values_by_name: dict[str, list[str]] = {}
    for name, value in assignments(text):
        values_by_name.setdefault(name, []).append(value)
    for name, values in values_by_name.items():
        state = states.setdefault(name, _NameState())
        state.value = values[-1]
        state.unique = last_only or len(set(values)) == 1
        if not name.isascii() and len(chinese) < _MOST_CHINESE:
            chinese[name] = None


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and the numbers that a text assigns to them, in order."""
    for line in text[:_LONGEST_TEXT].split("\n"):
        if len(line) > _LONGEST_LINE:
            continue
        for name, value in _ASSIGNMENT.findall(line):
            if len(value.lstrip("-")) > 1 and (not name.isascii() or is_name(name)):
                yield name, value


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


CYCLES: Final = (1, 2, 5, 10)
NOTHING_TO_FOLD: Final = "there was nothing to fold, or a fold would not have made it much smaller"
# In a shorter session, holding replies back would leave little to fold.
_LEAST_TIMES_FED: Final = 2
_PROBED_BODIES = (UserSaid, ModelReplied, ToolReturned, ContextStated, TaskChanged, ModeChanged, TurnEnded)


@dataclass(frozen=True, slots=True)
class SummarySource:
    """Source of summaries: a real model, else imitation with this factor of the token estimate."""

    factor: float
    real: RealSummaries | None = None


class ProbedSession:
    """A recorded session without its edits, with its probes; reusable under any profile.

    The last replies of a long session are not fed: what their calls use is a probe.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        all_events = tuple(
            event
            for event in events
            if isinstance(event.body, _PROBED_BODIES) and not (isinstance(event.body, ModelReplied) and event.body.purpose != TURN)
        )
        safe, replies = _safe_cuts(all_events)
        fed = replies - NEXT_REPLIES
        is_long = fed >= _LEAST_TIMES_FED * NEXT_REPLIES
        cut = next((place for place, done in safe if done >= fed), len(all_events)) if is_long else len(all_events)
        self.events: Sequence[Event] = all_events[:cut]
        self.recorded = RecordedTexts(self.events)
        texts = self.recorded.texts
        probes = (*probes_of(self.events), *next_probe(all_events[cut:], [each.text for each in texts]))
        stated = [ProbedText(model_text(item.content)) for each in self.events for item in items_of(each.seq, each.body)]
        self.probes: tuple[Probe, ...] = answerable(probes, texts, stated)

    def parts(self, number: int) -> list[Sequence[Event]]:
        """Return the session in `number` parts with equal numbers of replies, cut where no call is pending; fewer if it is too short."""
        safe, replies = _safe_cuts(self.events)
        if not replies:
            return []
        cuts = [next((place for place, done in safe if done * number >= part * replies), len(self.events)) for part in range(1, number)]
        edges = sorted({0, *cuts, len(self.events)})
        return [self.events[first:last] for first, last in pairwise(edges)]


def probe_after(
    probed_session: ProbedSession, profile: Profile, model: ModelCard, cycles: int, summary_source: SummarySource | None = None
) -> ProbeScores:
    """Feed a session part by part, force a fold after each part, and score the probes at the end."""
    clock = FixedClock()
    blobs = MemoryBlobs()
    recorded_seqs: dict[int, int] = {}
    reasons: Counter[str] = Counter()
    environment = Environment(MemorySessions(), blobs, clock, offload=inline, retries=NO_RETRIES)
    with Session.create(SessionOpened("probed"), profile, model, environment) as session:
        if summary_source is not None:
            _provide_summaries(session, summary_source)
        for part in probed_session.parts(cycles):
            for event in part:
                clock.time = event.at
                recorded_seqs[session.log.append(_as_recorded_by(session, event.body)).seq] = event.seq
            reasons[_force_fold(session)] += 1
        view, drops = session.log.view, session.card.cache_edits
        visible_texts = visible(view, recorded_seqs, drops_cached=drops)
        reachable_texts = probed_session.recorded.reachable(view, recorded_seqs)
    folds, forced = reasons.pop("", 0), len(probed_session.parts(cycles))
    alone, with_recall = score(probed_session.probes, visible_texts), score(probed_session.probes, visible_texts, reachable_texts)
    kinds: dict[str, KindScores] = {kind: KindScores(share, with_recall.kinds[kind], 1) for kind, share in alone.kinds.items()}
    return ProbeScores(alone.total, with_recall.total, folds, forced, int(folds > 0), int(not folds), dict(reasons), kinds)


def probed(
    probed_session: ProbedSession,
    profile: Profile,
    model: ModelCard,
    cycles: Iterable[int] = CYCLES,
    summary_source: SummarySource | None = None,
) -> dict[str, ProbeScores]:
    """Score the probes for several numbers of forced folds. Returns the scores by that number."""
    scores: dict[str, ProbeScores] = {}
    for number in cycles:
        # A profile without policies never folds, so one run is enough.
        if profile.policies or not scores:
            last = probe_after(probed_session, profile, model, number, summary_source)
        scores[str(number)] = last
    return scores


def _as_recorded_by(session: Session, body: Body) -> Body:
    """Return a body as this profile records it: results shortened, and without usage that was measured on another view."""
    match body:
        case ModelReplied():
            return structs.replace(body, call=None, usage=Usage())
        case ToolReturned():
            limiter = session.profile.limiter(session.card)
            bounded = carry_out_now(limiter(body), session)
            # As the agent shows it, which has the tool `recall`; other programs have none. What was shortened when it was recorded stays.
            return name_whole(bounded) if bounded is not body and isinstance(limiter, PreviewLimiter) else bounded
        case _:
            return body


def _provide_summaries(session: Session, summary_source: SummarySource) -> None:
    """Connect a session to simulated requests and to the provider of summaries."""
    summaries = SummaryProvider(session, summary_source.factor, summary_source.real)
    session.environment = replace(session.environment, provider=summaries.provider, encoder=simulated_encoder(session))


def _force_fold(session: Session) -> str:
    """Force a fold. Returns the reason why none was made, or an empty string if one was."""
    try:
        policy_run = asyncio.run(compact(session))
    except TooFull as error:
        return error.message
    if policy_run.folded:
        return ""
    refused = next((event.body.why for event in policy_run.events if isinstance(event.body, EditRefused)), "")
    return refused or (policy_run.failure.message if policy_run.failure is not None else NOTHING_TO_FOLD)


def _safe_cuts(events: Sequence[Event]) -> tuple[list[tuple[int, int]], int]:
    """Return the positions without pending calls, each with the number of replies before it, and the number of all replies."""
    pending: set[str] = set()
    scores: list[tuple[int, int]] = []
    replies = 0
    for place, event in enumerate(events, 1):
        if isinstance(event.body, ModelReplied):
            replies += 1
            pending = {part.call_id for part in event.body.parts if isinstance(part, ToolCall)}
        elif isinstance(event.body, ToolReturned):
            pending.discard(event.body.result.call_id)
        if not pending and isinstance(event.body, ModelReplied | ToolReturned):
            scores.append((place, replies))
    return scores, replies
