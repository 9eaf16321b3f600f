"""Chooses sentences by what they add to those chosen before, for their size in tokens, and writes them as lines by session."""

import math
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING, Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.selection import one_line
from palimpsest.memory.recall.texts.sentences import Sentence

# The value of a sentence: how relevant its unit is, and which numbers and names it brings that no chosen sentence has. Chosen on half of
# the cases of three levels; `docs/memory.md` has the scores of both halves.
RELEVANCE, NUMBERS, NAMES = 0.6, 1.0, 0.6
_MOST_NUMBERS, _MOST_NAMES = 2, 3
# The relevance of a sentence that brings neither number nor name counts this share.
_WITHOUT_FACT: Final = 0.5
# Longer sentences cost more of the budget: a value is divided by the tokens to this power.
_SIZE_POWER: Final = 0.3


class Offer(Value, frozen=True, eq=False):
    """A sentence that may be chosen: the number of its unit, its place there, the relevance of the unit from 0 to 1, its size in tokens.

    text: the sentence as it is shown, with the question that it answers if it is short.
    """

    unit: int
    place: int
    sentence: Sentence
    text: str
    relevance: float
    size: int


class Choice:
    """Sentences chosen so far, what they state, and the tokens that are left.

    `chosen` has the texts by unit and place; `remarks` what the line of a unit has to say about it, by unit.
    """

    def __init__(self, index: RecallIndex, remarks: Mapping[int, str], tokens: int, factor: float) -> None:
        self.chosen: dict[int, dict[int, str]] = {}
        self.remarks = remarks
        self._index = index
        self._left = tokens
        self._factor = factor
        self._stated: set[str] = set()
        self._texts: set[str] = set()
        self._headed: set[tuple[int, bool]] = set()

    def fill(self, offers: Sequence[Offer], newer: Mapping[int, int] = EMPTY_MAPPING) -> None:
        """Choose the most valuable sentence that fits, again and again, until none does.

        `newer` is, by place among the offers, the place of one that gives a newer value: it is chosen first, and named in the older line.
        """
        # Values only fall while sentences are chosen, so that the value of a sentence is computed again only when it leads.
        heap = [(-self._value(offer), place) for place, offer in enumerate(offers)]
        heapify(heap)
        while heap:
            value, place = heappop(heap)
            offer = offers[place]
            current = -self._value(offer)
            if current >= 0:
                continue
            if current > value and heap and heap[0] < (current, place):
                heappush(heap, (current, place))
            elif place not in newer:
                self._take(offer)
            elif self._take(offers[newer[place]]):
                self._take(offer, f" (later [{self._index.units[offers[newer[place]].unit].id}])")

    def _value(self, offer: Offer) -> float:
        numbers = min(len(offer.sentence.numbers - self._stated), _MOST_NUMBERS) / _MOST_NUMBERS
        names = min(len(offer.sentence.names - self._stated), _MOST_NAMES) / _MOST_NAMES
        relevance = offer.relevance if numbers or names else offer.relevance * _WITHOUT_FACT
        return (RELEVANCE * relevance + NUMBERS * numbers + NAMES * names) / math.pow(max(1, offer.size), _SIZE_POWER)

    def _take(self, offer: Offer, remark: str = "") -> bool:
        """Add a sentence, with a remark behind it, if it is new and fits; return whether it is shown."""
        if offer.place in self.chosen.get(offer.unit, ()):
            return True
        if offer.text in self._texts:
            return False
        size = offer.size + (estimate(remark, self._factor) if remark else 0)
        group = (self._index.sessions[offer.unit], offer.unit in self.remarks)
        if offer.unit not in self.chosen:
            size += estimate(self._lead(offer.unit) + "\n", self._factor)
        if group not in self._headed:
            size += estimate(self._heading(offer.unit) + "\n", self._factor)
        if size > self._left:
            return False
        self._left -= size
        self._headed.add(group)
        self.chosen.setdefault(offer.unit, {})[offer.place] = offer.text + remark
        self._texts.add(offer.text)
        self._stated |= offer.sentence.numbers | offer.sentence.names
        return True

    def lines(self) -> tuple[list[str], list[int]]:
        """Return the lines with their headings, and the numbers of their units in the same order; what has a remark comes last."""
        lines: list[str] = []
        order: list[int] = []
        for units in (self.chosen.keys() - self.remarks.keys(), self.chosen.keys() & self.remarks.keys()):
            for numbers in self._by_session(units):
                lines.append(self._heading(numbers[0]))
                lines += [" ".join((self._lead(number), *self._in_order(number))) for number in numbers]
                order += numbers
        return lines, order

    def _in_order(self, number: int) -> list[str]:
        found = self.chosen[number]
        return [found[place] for place in sorted(found)]

    def _by_session(self, units: set[int]) -> list[list[int]]:
        """Return units by session, the session with the newest date first, else the one that was added last."""
        groups: dict[int, list[int]] = {}
        for number in sorted(units):
            groups.setdefault(self._index.sessions[number], []).append(number)
        return sorted(groups.values(), key=lambda numbers: (self._index.units[numbers[0]].date, numbers[0]), reverse=True)

    def _heading(self, number: int) -> str:
        unit = self._index.units[number]
        return " ".join(part for part in (f"[{unit.session or unit.id}]", unit.date) if part)

    def _lead(self, number: int) -> str:
        """Return what stands before the sentences of a unit: the end of its id, who speaks, and what is to be known about it."""
        unit = self._index.units[number]
        short = unit.id.removeprefix(unit.session) if unit.session and unit.id.startswith(f"{unit.session}:") else unit.id
        remark = self.remarks.get(number, "")
        return one_line(f"[{short}] {unit.who or unit.role}{f' ({remark})' if remark else ''}".rstrip() + ":")
