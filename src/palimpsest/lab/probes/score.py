"""Scores probes by rules: which facts are visible to the model, and which one recall would bring back."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import structs

from palimpsest.core.items import Value
from palimpsest.lab.probes.probes import KINDS, CommandOutcome, EditedFile, Fact, Kind, LastValue, Probe, QuotedText
from palimpsest.lab.probes.visible_texts import ProbedText, path_ending

# A command is identified by its first characters.
_COMMAND_CHARACTERS: Final = 60
# A shorter note could occur by coincidence.
_SHORTEST_NOTE: Final = 8


class Score(Value, frozen=True, omit_defaults=False):
    """Shares of answered probes, from 0 to 1, by kind and over all kinds; kinds without probes are left out."""

    total: float
    kinds: dict[Kind, float]
    probes: int


def score(probes: Iterable[Probe], visible: Sequence[ProbedText], recalled: Sequence[ProbedText] = ()) -> Score:
    """Score probes: a probe by the share of its proved facts, a kind by the mean of its probes, the total by the mean of the kinds.

    `recalled` are texts that one recall could bring back: a fact is proved by any single visible or recalled text.
    """
    is_proved = fact_checker((*visible, *recalled))
    shares_by_kind: dict[Kind, list[float]] = {}
    for probe in probes:
        shares_by_kind.setdefault(probe.kind, []).append(sum(map(is_proved, probe.facts)) / len(probe.facts))
    kinds = {kind: sum(shares_by_kind[kind]) / len(shares_by_kind[kind]) for kind in KINDS if kind in shares_by_kind}
    total = sum(kinds.values()) / len(kinds) if kinds else 1.0
    return Score(round(total, 4), {kind: round(share, 4) for kind, share in kinds.items()}, sum(map(len, shares_by_kind.values())))


def answerable(probes: Iterable[Probe], texts: Sequence[ProbedText]) -> tuple[Probe, ...]:
    """Return the probes with only those facts that the whole recording proves; probes without such facts are left out."""
    is_proved = fact_checker(texts)
    checked = (structs.replace(probe, facts=tuple(filter(is_proved, probe.facts))) for probe in probes)
    return tuple(probe for probe in checked if probe.facts)


def fact_checker(texts: Sequence[ProbedText]) -> Callable[[Fact], bool]:
    """Return a function that tests whether one of the texts proves a fact; whitespace is normalised once."""
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
