"""What the user said, found again by the words in it: passages of a few sentences, taken apart only when a claim comes near them."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import pairwise

from palimpsest.audit.constraints import binding_of
from palimpsest.audit.content import STOP, Meaning, clause_of, meaning_of, together
from palimpsest.audit.endless import shortened
from palimpsest.audit.polarity import clauses_of
from palimpsest.audit.sentences import prose_of, sentences_of
from palimpsest.audit.synonyms import concept

_KEY = re.compile(r"[a-z]{2,}|\d+|[\u3400-\u9fff]+")
_HEAD = 5
_MOST_LINES, _WINDOW = 8, 4
# A passage that shares less of the words of a claim is not taken apart.
_SHARED, _SHARED_SIGNS = 0.25, 0.09
# With fewer things in common two sentences may be about different matters.
_ABOUT = 2
# A question to somebody who shall do something is a request.
_REQUEST = re.compile(
    r"\b(?:can|could|would|will|won't|mind) you\b|\bwould you mind\b|\bplease\b|帮|麻烦|劳驾|请你|你能|你可以", re.IGNORECASE
)
_OTHERWISE = re.compile(r"\b(?:should|must|instead|ought|needs? to)\b|应该|应当|改成|改为|换成|得改", re.IGNORECASE)
_ASKING = ("?", "？", "吗", "呢")


class _Sentence:
    """One sentence, taken apart when somebody looks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()

    @cached_property
    def keys(self) -> set[str]:
        return keys_of(self.text)

    @property
    def clauses(self) -> tuple[Meaning, ...]:
        """Its clauses."""
        return _clauses(self.text)


@lru_cache(maxsize=4_000)
def _clauses(sentence: str) -> tuple[Meaning, ...]:
    """The clauses of a sentence, which many narratives are held against; those of a question that is no request are marked as such."""
    asks = sentence.endswith(_ASKING) and _REQUEST.search(sentence) is None
    texts = clauses_of(sentence)
    return tuple(clause_of(text, asks=asks, overtaken=any(map(_OTHERWISE.search, texts[place + 1 :]))) for place, text in enumerate(texts))


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
    def whole(self) -> str:
        """All of it in one text, with single blanks and without capitals."""
        return "\n".join(" ".join(text.casefold().split()) for text in self.texts)

    @cached_property
    def _lines(self) -> list[_Line]:
        """The lines of all messages; an empty one stands between two messages."""
        found: list[_Line] = []
        for text in self.texts:
            found += [_Line(line) for line in prose_of(shortened(text)).split("\n") if line.strip()]
            found.append(_Line(""))
        return found

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """In which lines a word, a number or a pair of signs stands."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(self._lines):
            for key in keys_of(line.text):
                found[key].append(place)
        return dict(found)

    def speaks_of(self, line: str) -> bool:
        """Whether some sentence in which something is demanded, allowed or forbidden has most of what a line is about."""
        about = meaning_of(line)
        if about.size < _ABOUT:
            return False
        found = (passage for passage in self.passages(line, wide=False) if binding_of(passage.text) is not None)
        return any(about.shared_with(together(passage.clauses)) >= max(_ABOUT, 0.5 * about.size) for passage in found)

    def passages(self, claim: str, *, wide: bool, names: Collection[str] = ()) -> Iterator[Passage]:
        """The passages that have these names and may say a claim, the likeliest first: sentences, and up to two lines if `wide`."""
        lines, keys = self._lines, keys_of(claim)
        scores: defaultdict[int, float] = defaultdict(float)
        # In order, for sums and ties must come out the same in every run.
        for key in sorted(keys):
            found = self._places.get(key, ())
            for place in found:
                # What stands everywhere tells nothing of where to look.
                scores[place] += len(found) ** -0.5
        if wide:
            for place, score in tuple(scores.items()):
                if place and lines[place - 1].text:
                    scores[place - 1] += score / 2
        least = sum(_SHARED if key.isascii() else _SHARED_SIGNS for key in keys)
        for place in nlargest(_MOST_LINES, scores, key=lambda place: (scores[place], place)):
            sentences = lines[place].sentences
            yield from (Passage((each,)) for each in sentences if len(each.keys & keys) >= least and _has_all((each,), names))
            if wide and place + 1 < len(lines):
                sentences = (*sentences, *lines[place + 1].sentences)
                if len(sentences) > 1:
                    yield from _windows(sentences, keys, least, names)


def _windows(sentences: Sequence[_Sentence], keys: set[str], least: float, names: Collection[str]) -> Iterator[Passage]:
    """Some sentences in a row that together share enough with a claim."""
    for start in range(max(1, len(sentences) - _WINDOW + 1)):
        window = sentences[start : start + _WINDOW]
        if _has_all(window, names) and len(keys & set().union(*(each.keys for each in window))) >= least:
            yield Passage(window)


def _has_all(sentences: Sequence[_Sentence], names: Collection[str]) -> bool:
    return all(any(name in sentence.lower for sentence in sentences) for name in names)


def keys_of(text: str) -> set[str]:
    """By what a text is looked up: its words, each for all that mean the same, its numbers, and pairs of Chinese signs."""
    found: set[str] = set()
    for run in _KEY.findall(text.lower()):
        if run[0] > "z":
            found.update(map("".join, pairwise(run)))
        elif run not in STOP:
            found.add(_key(run))
    return found


@lru_cache(maxsize=20_000)
def _key(word: str) -> str:
    same = concept(word)
    return same if same[0] == "=" else same[:_HEAD]
