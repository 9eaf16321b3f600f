"""Lines and addresses that still show: looked for as they are in what was there before, and letter by letter in what an edit brought."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from palimpsest.audit.entities import CACHED_CHARACTERS, drives_of, errors_of, urls_of
from palimpsest.audit.visibility.visible import SENTENCE_CHARACTERS

_BLOCK: Final = 32
_LARGEST_BLOCK: Final = 400_000


class Quotes(NamedTuple):
    """The errors, the addresses and the paths on drives of a text."""

    errors: tuple[str, ...]
    urls: tuple[str, ...]
    drives: tuple[str, ...]


def _find_quotes(text: str) -> Quotes:
    return Quotes(tuple(errors_of(text)), tuple(urls_of(text)), tuple(drives_of(text)))


# A view is looked at again after each of its edits, and most of its texts are the same.
_cached_quotes = lru_cache(maxsize=2_048)(_find_quotes)


def quotes_in(text: str) -> Quotes:
    """What a text tells that somebody may quote."""
    return _cached_quotes(text) if len(text) <= CACHED_CHARACTERS else _find_quotes(text)


def _quotes_of_block(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset([quote for text in texts for some in quotes_in(text) for quote in some])


_cached_block = lru_cache(maxsize=64)(_quotes_of_block)


def opening(text: str) -> str:
    """As much of a text as counts for all of it."""
    return text[:SENTENCE_CHARACTERS]


class QuoteIndex:
    """The errors, addresses and drives of all texts that show, and the few texts that an edit brought, which may tell them in part."""

    def __init__(self, texts: Sequence[str], brought: Callable[[], Iterable[str]]) -> None:
        self._texts = tuple(texts)
        self._changed_texts = brought

    @cached_property
    def _changed_text(self) -> str:
        return "\n".join(self._changed_texts())

    @cached_property
    def _visible_quotes(self) -> list[frozenset[str]]:
        parts = [self._texts[start : start + _BLOCK] for start in range(0, len(self._texts), _BLOCK)]
        return [_cached_block(part) if sum(map(len, part)) <= _LARGEST_BLOCK else _quotes_of_block(part) for part in parts]

    def missing(self, found: dict[str, str], brief: Callable[[str], str] = opening) -> dict[str, str]:
        """Those of some lines, addresses or paths that do not show any more; what an edit brought may tell them in brief."""
        if not found:
            return {}
        lost = set(found).difference(*self._visible_quotes)
        return {text: item for text, item in found.items() if text in lost and brief(text) not in self._changed_text}
