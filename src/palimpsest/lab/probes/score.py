"""Scores probes by rules alone: which facts stand in what a model sees, and which in one recall beside it."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import structs

from palimpsest.core.items import Value
from palimpsest.lab.probes.probes import KINDS, Changed, Ended, Fact, Held, Kind, Probe, Worded
from palimpsest.lab.probes.seen import Piece, ending_of

# A command is known by so much of its beginning.
_COMMAND: Final = 60
# A shorter line of output could stand anywhere.
_SHORTEST_NOTE: Final = 8


class Score(Value, frozen=True, omit_defaults=False):
    """The share of answers that could be given, from 0 to 1, by kind and over all kinds; one without questions is left out."""

    total: float
    kinds: dict[Kind, float]
    probes: int


def score(probes: Iterable[Probe], seen: Sequence[Piece], recalled: Sequence[Piece] = ()) -> Score:
    """A probe counts by the share of its facts that hold, a kind by the mean of its probes, and every kind the same.

    `recalled` are contents that one lookup could bring: a fact holds if one of them alone, or what is seen, proves it.
    """
    prove = prover((*seen, *recalled))
    found: dict[Kind, list[float]] = {}
    for probe in probes:
        found.setdefault(probe.kind, []).append(sum(map(prove, probe.facts)) / len(probe.facts))
    kinds = {kind: sum(found[kind]) / len(found[kind]) for kind in KINDS if kind in found}
    total = sum(kinds.values()) / len(kinds) if kinds else 1.0
    return Score(round(total, 4), {kind: round(share, 4) for kind, share in kinds.items()}, sum(map(len, found.values())))


def answerable(probes: Iterable[Probe], pieces: Sequence[Piece]) -> tuple[Probe, ...]:
    """The probes with those facts that somebody could know who had seen everything: what a file leaves out cannot be asked for."""
    prove = prover(pieces)
    left = (structs.replace(probe, facts=tuple(filter(prove, probe.facts))) for probe in probes)
    return tuple(probe for probe in left if probe.facts)


def prover(pieces: Sequence[Piece]) -> Callable[[Fact], bool]:
    """Whether one of some pieces proves a fact; blanks are made plain once for all questions."""
    plain = [_plain(piece.text) for piece in pieces]
    told = [(piece, text.replace("\\", "/")) for piece, text in zip(pieces, plain, strict=True) if not piece.result]
    events = {piece.event for piece in pieces if piece.result}

    def prove(fact: Fact) -> bool:
        match fact:
            case Worded(text=text):
                words = _plain(text)
                return any(words in each for each in plain)
            case Changed(path=path):
                ending = ending_of(path)
                return any(ending in text and _stands(ending, text) for _, text in told)
            case Ended():
                return fact.event in events or any(_tells(fact, piece.text, text) for piece, text in told)
            case Held(name=name, value=value):
                return any(name in piece.text and value in piece.text and _in_one_line(name, value, piece.text) for piece in pieces)

    return prove


def _tells(fact: Ended, text: str, plain: str) -> bool:
    """Whether a text tells how a command ended: by the line that sums it up, or by the command and its code in one line."""
    note = _slashed(fact.note)
    if len(note) >= _SHORTEST_NOTE and note in plain:
        return True
    if fact.exit is None:
        return False
    whole, code = _slashed(fact.command), str(fact.exit)
    command = whole[:_COMMAND]
    if command not in plain:
        return False
    # What is cut may go on in the text; a whole command must end there.
    alone = len(whole) > _COMMAND
    lines = (line for line in map(_slashed, text.split("\n")) if command in line and (alone or _stands(command, line)))
    if any(_stands(code, line.replace(command, " ")) for line in lines):
        return True
    # A command of several lines is told in one, or in as many as it has; the code stands before it.
    return "\n" in fact.command and _stands(code, plain.partition(command)[0].rpartition("- ")[2])


def _in_one_line(name: str, value: str, text: str) -> bool:
    return any(name in line and _stands(name, line) and _stands(value, line) for line in text.split("\n"))


def _stands(words: str, text: str) -> bool:
    """Whether words stand in a text by themselves, and not as a part of longer ones; Chinese parts no words."""
    return _alone(words).search(text) is not None


@lru_cache(maxsize=4_096)
def _alone(words: str) -> re.Pattern[str]:
    before = r"(?<![A-Za-z0-9_])" if words[:1].isascii() else ""
    after = r"(?![A-Za-z0-9_])(?!\.\d)" if words[-1:].isascii() else ""
    return re.compile(before + re.escape(words) + after)


def _slashed(text: str) -> str:
    """A text with plain blanks in which paths of all systems are written alike."""
    return _plain(text).replace("\\", "/")


def _plain(text: str) -> str:
    return " ".join(text.split())
