"""What the user said, found again by the words in it: passages of a few sentences, taken apart only when a claim comes near them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from palimpsest.audit.constraints import binding_of
from palimpsest.audit.content import Meaning, meaning_of
from palimpsest.audit.deeds import stem
from palimpsest.audit.polarity import clauses_of
from palimpsest.audit.sentences import prose_of, sentences_of

_KEY = re.compile(r"[a-z]{2,}|[\u3400-\u9fff]+")
_HEAD = 5
_MOST_LINES, _WINDOW = 40, 4
_ASKING = ("?", "？", "吗", "呢")


class _Sentence:
    """One sentence, taken apart when somebody looks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()

    @cached_property
    def clauses(self) -> list[Meaning]:
        """Its clauses; those of a question that is no request are marked as such."""
        asks = self.text.endswith(_ASKING) and binding_of(self.text) is None
        return [meaning_of(clause, asks=asks) for clause in clauses_of(self.text)]


class Passage:
    """Some sentences of one message."""

    def __init__(self, sentences: Sequence[_Sentence]) -> None:
        self.text = " ".join(sentence.text for sentence in sentences)
        self.clauses = [clause for sentence in sentences for clause in sentence.clauses]


class _Line:
    """One line of a message, parted when somebody looks."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def sentences(self) -> tuple[_Sentence, ...]:
        return tuple(map(_Sentence, sentences_of(self.text))) if self.text else ()


class Said:
    """All that the user said."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    @cached_property
    def _lines(self) -> list[_Line]:
        """The lines of all messages; an empty one stands between two messages."""
        found: list[_Line] = []
        for text in self.texts:
            found += [_Line(line) for line in prose_of(text).split("\n") if line.strip()]
            found.append(_Line(""))
        return found

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """In which lines a beginning of a word or a pair of signs stands."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        heads: dict[str, str] = {}
        for place, line in enumerate(self._lines):
            keys: set[str] = set()
            for run in _KEY.findall(line.text.lower()):
                if run[0] > "z":
                    keys.update(map("".join, pairwise(run)))
                    continue
                head = heads.get(run)
                if head is None:
                    head = heads[run] = stem(run)[:_HEAD]
                keys.add(head)
            for key in keys:
                found[key].append(place)
        return dict(found)

    def passages(self, claim: Meaning, most: float, *, wide: bool) -> Iterator[Passage]:
        """The passages that may say a claim, the likeliest first: single sentences, or up to two lines if `wide`."""
        lines, places = self._lines, self._places
        keys = {word[:_HEAD] for word in claim.words if word.isalpha()} | {gram for gram in claim.grams if len(gram) > 1}
        least = most * claim.size - (claim.size - len(keys))
        counts = Counter(place for key in keys for place in places.get(key, ()))
        if wide:
            counts += Counter({place - 1: count for place, count in counts.items() if place and lines[place - 1].text})
        candidates = counts if least > 0 else range(len(lines))
        likely = [place for place in candidates if counts[place] >= least]
        likely.sort(key=lambda place: -counts[place])
        for place in likely[:_MOST_LINES]:
            sentences = lines[place].sentences
            yield from (Passage((each,)) for each in sentences if _shares(each.lower, keys) >= least)
            if wide and place + 1 < len(lines):
                sentences = (*sentences, *lines[place + 1].sentences)
                for start in range(max(1, len(sentences) - _WINDOW + 1)):
                    window = sentences[start : start + _WINDOW]
                    if sum(_shares(each.lower, keys) for each in window) >= least:
                        yield Passage(window)


def _shares(text: str, keys: Iterable[str]) -> int:
    return sum(key in text for key in keys)
