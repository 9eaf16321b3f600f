"""Chooses sentences by what they add to those chosen before, for their size in tokens, and writes them as lines by session."""

import math
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING, Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.digest.sentences import Sentence
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.selection import one_line

# The value of a sentence: how relevant its unit is, how much of the query it has, and which numbers and names it brings that no chosen
# sentence has. Chosen with the open cases of three levels in sight; `docs/memory-evaluation.md` says how.
RELEVANCE, COVER, NUMBERS, NAMES = 0.6, 0.5, 1.0, 0.6
_MOST_NUMBERS, _MOST_NAMES = 2, 3
# The relevance of a sentence that brings neither number nor name counts this share.
_WITHOUT_FACT: Final = 0.5
# Numbers with fewer digits are stated by chance.
_TELLING_DIGITS: Final = 2
# Longer sentences cost more of the budget: a value is divided by the tokens to this power.
_SIZE_POWER: Final = 0.3


class Offer(Value, frozen=True, eq=False):
    """A sentence that may be chosen: the number of its unit, its place there, the relevance of the unit from 0 to 1, its size in tokens.

    cover: the share of the term weights of the query that it has.
    question: what it answers, if it is too short to say anything without; empty for others. The size is that with the question.
    """

    unit: int
    place: int
    sentence: Sentence
    question: str
    relevance: float
    cover: float
    size: int


class SentenceChoice:
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

        A number is shown where it was stated on the latest day. `newer` is, by place among the offers, the place of one that gives a newer
        value: it is chosen first, and named in the older line.
        """
        newest = self._newest(offers)
        # Values only fall while sentences are chosen, so that the value of a sentence is computed again only when it leads.
        heap = [(-self._value(offer), place) for place, offer in enumerate(offers)]
        heapify(heap)
        while heap:
            value, place = heappop(heap)
            offer = offers[place]
            current = -self._value(offer)
            if current >= 0:
                continue
            if (current > value and heap and heap[0] < (current, place)) or self._take_newest(offer, newest):
                heappush(heap, (-self._value(offer), place))
            elif place not in newer:
                self._take(offer)
            elif self._take(offers[newer[place]]):
                self._take(offer, f" (later [{self._index.units[offers[newer[place]].unit].id}])")

    def _newest(self, offers: Sequence[Offer]) -> dict[str, Offer]:
        """Return the sentence of the latest day that states a number, the most valuable one of that day."""
        found: dict[str, tuple[tuple[str, float], Offer]] = {}
        for offer in offers:
            rank = (self._day(offer), self._value(offer))
            for number in offer.sentence.numbers:
                if sum(map(str.isdigit, number)) >= _TELLING_DIGITS and (number not in found or rank > found[number][0]):
                    found[number] = (rank, offer)
        return {number: offer for number, (_, offer) in found.items()}

    def _take_newest(self, offer: Offer, newest: Mapping[str, Offer]) -> bool:
        """Take the sentences of later days that state the new numbers of a sentence; return whether there was one."""
        later = {newest[number].unit: newest[number] for number in sorted(offer.sentence.numbers - self._stated) if number in newest}
        taken = [self._take(each) for each in later.values() if self._day(each) > self._day(offer)]
        return any(taken)

    def _day(self, offer: Offer) -> str:
        return self._index.units[offer.unit].date[:10]

    def _value(self, offer: Offer) -> float:
        numbers = min(len(offer.sentence.numbers - self._stated), _MOST_NUMBERS) / _MOST_NUMBERS
        names = min(len(offer.sentence.names - self._stated), _MOST_NAMES) / _MOST_NAMES
        relevance = offer.relevance if numbers or names else offer.relevance * _WITHOUT_FACT
        value = RELEVANCE * relevance + COVER * offer.cover + NUMBERS * numbers + NAMES * names
        return value / math.pow(max(1, offer.size), _SIZE_POWER)

    def _take(self, offer: Offer, remark: str = "") -> bool:
        """Add a sentence, with a remark behind it, if it is new and fits; return whether it is shown."""
        if offer.place in self.chosen.get(offer.unit, ()):
            return True
        asked = offer.question if offer.question not in self._texts else ""
        text = f"({asked}) {offer.sentence.text}" if asked else offer.sentence.text
        if text in self._texts:
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
        self.chosen.setdefault(offer.unit, {})[offer.place] = text + remark
        self._texts.update((text, asked) if asked else (text,))
        self._stated |= offer.sentence.numbers | offer.sentence.names
        return True

    def lines(self) -> tuple[list[str], list[int]]:
        """Return the lines, and the numbers of their units in the same order; what has a remark comes last.

        The first line of a session has the whole id and the date, the others the end of their id.
        """
        lines: list[str] = []
        order: list[int] = []
        for units in (self.chosen.keys() - self.remarks.keys(), self.chosen.keys() & self.remarks.keys()):
            for numbers in self._by_session(units):
                leads = (self._lead(number, self._heading(number) if number == numbers[0] else "") for number in numbers)
                lines += [" ".join((lead, *self._in_order(number))) for lead, number in zip(leads, numbers, strict=True)]
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
        return " ".join(part for part in (f"[{unit.id}]", unit.date) if part)

    def _lead(self, number: int, heading: str = "") -> str:
        """Return what stands before the sentences of a unit: its heading or the end of its id, who speaks, and a remark."""
        unit = self._index.units[number]
        short = unit.id.removeprefix(unit.session) if unit.session and unit.id.startswith(f"{unit.session}:") else unit.id
        remark = self.remarks.get(number, "")
        speaker = f"{unit.who or unit.role}{f' ({remark})' if remark else ''}".strip()
        return one_line(f"{heading or f'[{short}]'} {speaker}" + (":" if speaker else ""))
