"""Decides whether a text, path, command, message or quotation is visible to the model, in any of the forms that count."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec

from palimpsest.audit.entities import (
    CACHED_CHARACTERS,
    MOST_CACHED_BYTES,
    NUMBER_STARTS,
    SHORTEST_CACHED,
    TextCache,
    argument_texts,
    bytes_of_tokens,
    distinct_tokens,
    drives_of,
    errors_of,
    has_grouped_number,
    number_of,
    numbers_of,
    trimmed,
    urls_of,
)
from palimpsest.core.items import Content, Item, Text, ToolCall, text_of
from palimpsest.core.view import shown

COMMAND_CHARACTERS: Final = 60
OPENING_CHARACTERS: Final = 40
SENTENCE_CHARACTERS: Final = 60


_LONG_CALL: Final = 4_000
_LONGEST_CALL: Final = 100_000
_BLOCK: Final = 32
_LARGEST_BLOCK: Final = 400_000
T = TypeVar("T")


class _TextTokens(NamedTuple):
    """Tokens of a text as they are compared, and its numbers in normalized form."""

    tokens: frozenset[str]
    numbers: frozenset[str]


def _tokens_of_text(text: str) -> _TextTokens:
    parts = distinct_tokens(text)
    tokens = frozenset(map(trimmed, parts))
    if has_grouped_number(text):
        return _TextTokens(tokens, frozenset(numbers_of(text)) - tokens)
    return _TextTokens(tokens, frozenset([number_of(part) for part in parts if part[0] in NUMBER_STARTS and not part.isdecimal()]) - tokens)


# A view is searched after each of its edits, and most of its texts stay the same.
_cached_tokens = TextCache(_tokens_of_text, MOST_CACHED_BYTES, lambda found: bytes_of_tokens(*found))


class _TokenBlock(NamedTuple):
    """Tokens of a block of texts, the last two parts of its paths, and its normalized numbers."""

    tokens: frozenset[str]
    endings: frozenset[str]
    numbers: frozenset[str]


def _block_of(texts: tuple[str, ...]) -> _TokenBlock:
    token_sets = [_cached_tokens(text) if SHORTEST_CACHED <= len(text) <= CACHED_CHARACTERS else _tokens_of_text(text) for text in texts]
    tokens = frozenset().union(*[entry.tokens for entry in token_sets])
    # A folder may be written with or without a slash at its end.
    paths = [token.rstrip("/") for token in tokens if "/" in token]
    endings = frozenset([last_two_parts(path) for path in paths if "/" in path])
    return _TokenBlock(tokens.union(paths), endings, frozenset().union(*[entry.numbers for entry in token_sets]))


# An edit does not change the blocks before it; 64 blocks are a view of 2,000 items, and views before and after an edit are compared.
_MOST_BLOCKS: Final = 2 * 64
_cached_token_block = TextCache(_block_of, MOST_CACHED_BYTES, lambda block: bytes_of_tokens(*block), _MOST_BLOCKS)


def _in_blocks(texts: tuple[str, ...], index: Callable[[tuple[str, ...]], T], cached: Callable[[tuple[str, ...]], T]) -> list[T]:
    """Index texts in blocks of 32; blocks of more than 400,000 characters are not cached."""
    parts = [texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK)]
    return [cached(part) if sum(map(len, part)) <= _LARGEST_BLOCK else index(part) for part in parts]


class VisibleText:
    """All visible texts, indexed so that many searches are cheap."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)

    @cached_property
    def text(self) -> str:
        """All texts, joined by line breaks."""
        return "\n".join(self._texts)

    @cached_property
    def _blocks(self) -> list[_TokenBlock]:
        return _in_blocks(self._texts, _block_of, _cached_token_block)

    def missing_tokens(self, tokens: set[str]) -> set[str]:
        """The tokens, as they are compared, that are not visible."""
        return tokens.difference(*[block.tokens for block in self._blocks])

    def missing_numbers(self, numbers: set[str]) -> set[str]:
        """The numbers that are not visible, with or without signs and separators."""
        return self.missing_tokens(numbers).difference(*[block.numbers for block in self._blocks])

    def missing_endings(self, endings: set[str]) -> set[str]:
        """The endings of two parts that no visible path has."""
        return endings.difference(*[block.endings for block in self._blocks])

    @cached_property
    def _plain(self) -> str:
        return " ".join(self.text.split())

    def shows_path(self, path: str) -> bool:
        """Whether a path is visible as written or by its last two parts."""
        plain = path.removeprefix("./").rstrip("/")
        ending = last_two_parts(plain) if "/" in plain else ""
        for block in self._blocks:
            if plain in block.tokens or ending in block.endings:
                return True
        # A path with blanks, Chinese or backslashes is no single token, so that the text is searched.
        return not _is_token(plain) and (plain in self.text or last_two_parts(plain) in self.text)

    def shows_command(self, command: str) -> bool:
        """Whether the first 60 characters of a command are visible."""
        return self.contains(command.strip()[:COMMAND_CHARACTERS])

    def shows_message(self, text: str, item_id: str) -> bool:
        """Whether a message is visible whole, or by its id and first 40 characters."""
        if self.contains(text.strip()):
            return True
        return item_id in self.text and self.contains(text.strip()[:OPENING_CHARACTERS])

    def contains(self, words: str) -> bool:
        """Whether a text is visible, in any line wrapping."""
        if words in self.text:
            return True
        # White space may have been normalized in either text.
        return " ".join(words.split()) in self._plain


def last_two_parts(path: str) -> str:
    """The last two parts of a path."""
    sign = "\\" if "\\" in path and "/" not in path else "/"
    return sign.join(path.rsplit(sign, 2)[-2:])


def _is_token(path: str) -> bool:
    return list(distinct_tokens(path)) == [path]


def readable_text(content: Content) -> str:
    """The readable text of a content, without JSON quoting."""
    if not isinstance(content, ToolCall):
        return text_of(content)
    size = len(content.args)
    text_of_call = _cached_call_text if size <= _LONG_CALL else _cached_long_call_text if size <= _LONGEST_CALL else _call_text
    return text_of_call(content)


def _call_text(call: ToolCall) -> str:
    return "\n".join((call.tool, *argument_texts(call)))


# Readers of a view ask for the same calls after each edit.
_cached_call_text = lru_cache(maxsize=1_024)(_call_text)
_cached_long_call_text = lru_cache(maxsize=128)(_call_text)


def texts_of(items: Iterable[Item]) -> Iterator[str]:
    """The texts that the model reads of the items."""
    for item in items:
        content = shown(item)
        if isinstance(content, Text):
            yield content.text
        elif content is not None:
            yield readable_text(content)


def strings_in(body: bytes | str) -> Iterator[str]:
    """Every string in a request body, including those in JSON inside strings, which is how arguments are sent."""
    try:
        yield from _strings(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        yield body if isinstance(body, str) else body.decode("utf-8", "replace")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:2] == '{"':
            try:
                yield from _strings(msgspec.json.decode(value))
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)


class Quotes(NamedTuple):
    """The error lines, URLs and drive paths of a text."""

    errors: tuple[str, ...]
    urls: tuple[str, ...]
    drives: tuple[str, ...]


def _find_quotes(text: str) -> Quotes:
    return Quotes(tuple(errors_of(text)), tuple(urls_of(text)), tuple(drives_of(text)))


_cached_quotes = TextCache(_find_quotes, MOST_CACHED_BYTES, lambda quotes: bytes_of_tokens(*quotes))


def quotes_in(text: str) -> Quotes:
    """The error lines, URLs and drive paths of a text."""
    return _cached_quotes(text) if SHORTEST_CACHED <= len(text) <= CACHED_CHARACTERS else _find_quotes(text)


def _quotes_of_block(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset([quote for text in texts for kind in quotes_in(text) for quote in kind])


_cached_quote_block = TextCache(_quotes_of_block, MOST_CACHED_BYTES, bytes_of_tokens, _MOST_BLOCKS)


def opening(text: str) -> str:
    """The first characters of a text, which stand for all of it."""
    return text[:SENTENCE_CHARACTERS]


class QuoteIndex:
    """Error lines, URLs and drive paths of all visible texts; texts that an edit changed may contain one in part."""

    def __init__(self, texts: Sequence[str], changed_texts: Callable[[], Iterable[str]]) -> None:
        self._texts = tuple(texts)
        self._changed_texts = changed_texts

    @cached_property
    def _changed_text(self) -> str:
        return "\n".join(self._changed_texts())

    @cached_property
    def _visible_quotes(self) -> list[frozenset[str]]:
        return _in_blocks(self._texts, _quotes_of_block, _cached_quote_block)

    def missing(self, found: dict[str, str], brief: Callable[[str], str] = opening) -> dict[str, str]:
        """The entries of `found` that are no longer visible; `brief` shortens a quote for the search in changed texts."""
        if not found:
            return {}
        lost = set(found).difference(*self._visible_quotes)
        return {text: item for text, item in found.items() if text in lost and brief(text) not in self._changed_text}
