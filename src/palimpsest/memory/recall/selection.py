"""Turns ranked units into lines within a token budget: near-duplicates once, questions with their answers, the rest counted."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RecallHit
from palimpsest.memory.recall.units import RecallUnit

# Tokens of one call of the recall tool.
RECALL_TOKENS: Final = 4_096
# Shared terms, as a share of the terms of both, from which two units say the same.
NEAR_DUPLICATE: Final = 0.8
_SPACE: Final = re.compile(r"\s+")
_QUERY_CHARACTERS: Final = 60
# A line that is cut to fit is at least this long, else it says nothing.
_SHORTEST_CUT_TOKENS: Final = 24


class RecalledLines(Value, frozen=True):
    """Recalled lines, best first, with their evidence ids; `left_out` units did not fit, `duplicates` said what a line says already."""

    lines: tuple[str, ...]
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    tokens: int
    left_out: int = 0
    duplicates: int = 0

    @property
    def text(self) -> str:
        """The lines as one text; empty if nothing was recalled."""
        return "\n".join(self.lines)


def select(
    index: RecallIndex, hits: Sequence[RecallHit], query: str, *, tokens: int = RECALL_TOKENS, most: int | None = None, factor: float = 1.0
) -> RecalledLines:
    """Return the best hits that fit a budget of tokens, at most `most` of them; the last line counts what was left out.

    A unit that follows a question brings the question. A hit that does not fit is left out, and smaller ones behind it may still fit;
    the first is cut instead. `factor` is the token factor of the model.
    """
    chosen = _Choice(index, tokens, most, factor, query)
    for hit in hits:
        chosen.offer(hit)
    return chosen.result()


class _Choice:
    """Lines chosen so far, and the tokens that are left for others."""

    def __init__(self, index: RecallIndex, tokens: int, most: int | None, factor: float, query: str) -> None:
        self._index = index
        self._factor = factor
        self._query = query
        self._most = most
        self._left = tokens - self._size(more_line(9_999, query))
        self._lines: list[str] = []
        self._chosen: dict[str, float] = {}
        self._terms: list[frozenset[str]] = []
        self._left_out: set[str] = set()
        self._duplicates: set[str] = set()

    def _size(self, line: str) -> int:
        # The line break counts too.
        return estimate(line + "\n", self._factor)

    def offer(self, hit: RecallHit) -> None:
        """Take a hit, with the question before it, if it is new and fits."""
        if hit.unit.id in self._chosen:
            return
        number = self._index.numbers[hit.unit.id]
        found = frozenset(self._index.sequences[number])
        if any(_similar(found, other) for other in self._terms):
            self._duplicates.add(hit.unit.id)
            return
        if self._most is not None and len(self._chosen) >= self._most:
            self._left_out.add(hit.unit.id)
            return
        for units in self._with_question(number):
            lines = [line_of(unit, hit.remark if unit.id == hit.unit.id else "") for unit in units]
            size = sum(map(self._size, lines))
            if size <= self._left:
                self._take(units, lines, size, hit.score)
                return
        if not self._chosen and (line := self._cut(line_of(hit.unit, hit.remark))):
            self._take([hit.unit], [line], self._size(line), hit.score)
            return
        self._left_out.add(hit.unit.id)

    def _with_question(self, number: int) -> Iterator[list[RecallUnit]]:
        """Yield the unit with the question that it follows, if there is one that was not taken, then the unit alone."""
        before = self._index.previous[number]
        unit = self._index.units[number]
        room = self._most is None or len(self._chosen) + 2 <= self._most
        if room and before >= 0 and self._index.asks[before] and before not in self._index.hidden:
            question = self._index.units[before]
            if question.id not in self._chosen and question.id not in self._duplicates:
                yield [question, unit]
        yield [unit]

    def _take(self, units: Sequence[RecallUnit], lines: Sequence[str], size: int, score: float) -> None:
        self._lines += lines
        self._left -= size
        for unit in units:
            self._chosen[unit.id] = score
            self._terms.append(frozenset(self._index.sequences[self._index.numbers[unit.id]]))
            # A question that did not fit before may come with its answer.
            self._left_out.discard(unit.id)

    def _cut(self, line: str) -> str:
        """Return the beginning of a line that fits what is left; empty if that is too little."""
        if self._left < _SHORTEST_CUT_TOKENS:
            return ""
        low, high = 0, len(line)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._size(line[:middle] + "…") <= self._left else (low, middle - 1)
        return line[:low] + "…"

    def result(self) -> RecalledLines:
        """Return the lines, with one that counts what was left out."""
        left_out = len(self._left_out)
        lines = [*self._lines, more_line(left_out, self._query)] if left_out and self._lines else self._lines
        tokens = estimate("\n".join(lines), self._factor) if lines else 0
        return RecalledLines(
            tuple(lines), tuple(self._chosen), tuple(self._chosen.values()), tokens, left_out=left_out, duplicates=len(self._duplicates)
        )


def line_of(unit: RecallUnit, remark: str = "") -> str:
    """Return the line of a unit: its id, date, a remark about it, person or role, and text; line breaks become spaces."""
    speaker = unit.who or unit.role
    head = " ".join(part for part in (f"[{unit.id}]", unit.date, f"({remark})" if remark else "") if part)
    return one_line(f"{head} {speaker}: {unit.text}" if speaker else f"{head} {unit.text}")


def one_line(text: str) -> str:
    """Return a text without line breaks: runs of white space become one space."""
    return _SPACE.sub(" ", text).strip()


def more_line(count: int, query: str) -> str:
    """Return the line that says how many units were left out, and how to get them."""
    short = query if len(query) <= _QUERY_CHARACTERS else query[: _QUERY_CHARACTERS - 1] + "…"
    return f"+{count} more, recall({json.dumps(_SPACE.sub(' ', short).strip(), ensure_ascii=False)})"


def _similar(first: frozenset[str], second: frozenset[str]) -> bool:
    shared = len(first & second)
    return shared > 0 and shared >= NEAR_DUPLICATE * len(first | second)
