"""Finds error lines, URLs and drive paths that are still visible: by identity in kept texts, by text search in changed ones."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from palimpsest.audit.entities import CACHED_CHARACTERS, TextCache, drives_of, errors_of, urls_of
from palimpsest.audit.visibility.visible import SENTENCE_CHARACTERS

_BLOCK: Final = 32
_LARGEST_BLOCK: Final = 400_000


class Quotes(NamedTuple):
    """The error lines, URLs and drive paths of a text."""

    errors: tuple[str, ...]
    urls: tuple[str, ...]
    drives: tuple[str, ...]


def _find_quotes(text: str) -> Quotes:
    return Quotes(tuple(errors_of(text)), tuple(urls_of(text)), tuple(drives_of(text)))


# A view is searched after each of its edits, and most of its texts stay the same.
_cached_quotes = TextCache(_find_quotes, 16_000_000)


def quotes_in(text: str) -> Quotes:
    """The error lines, URLs and drive paths of a text."""
    return _cached_quotes(text) if len(text) <= CACHED_CHARACTERS else _find_quotes(text)


def _quotes_of_block(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset([quote for text in texts for kind in quotes_in(text) for quote in kind])


_cached_block = TextCache(_quotes_of_block, 16_000_000)


def opening(text: str) -> str:
    """The first characters of a text, which stand for all of it."""
    return text[:SENTENCE_CHARACTERS]


class QuoteIndex:
    """Quotes of all visible texts; texts that an edit changed may contain a quote in part."""

    def __init__(self, texts: Sequence[str], changed_texts: Callable[[], Iterable[str]]) -> None:
        self._texts = tuple(texts)
        self._changed_texts = changed_texts

    @cached_property
    def _changed_text(self) -> str:
        return "\n".join(self._changed_texts())

    @cached_property
    def _visible_quotes(self) -> list[frozenset[str]]:
        parts = [self._texts[start : start + _BLOCK] for start in range(0, len(self._texts), _BLOCK)]
        return [_cached_block(part) if sum(map(len, part)) <= _LARGEST_BLOCK else _quotes_of_block(part) for part in parts]

    def missing(self, found: dict[str, str], brief: Callable[[str], str] = opening) -> dict[str, str]:
        """The entries of `found` that are no longer visible; `brief` shortens a quote for the search in changed texts."""
        if not found:
            return {}
        lost = set(found).difference(*self._visible_quotes)
        return {text: item for text, item in found.items() if text in lost and brief(text) not in self._changed_text}
