"""Decides whether a text, path, command or quotation is visible to the model, with known file texts and an index of results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec

from palimpsest.audit.commands import FileAccess
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
    names_of,
    names_used,
    number_of,
    numbers_of,
    trimmed,
    urls_of,
)
from palimpsest.audit.fold_texts import FILE_TEXT
from palimpsest.audit.tool_calls import Action, action_of, changes_of, result_text, with_change
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, Value, answered_calls, pairs_of, text_of
from palimpsest.core.plans import Use
from palimpsest.core.text import lazy_pattern
from palimpsest.core.view import is_readable, shown

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
    def _token_blocks(self) -> list[_TokenBlock]:
        return _in_blocks(self._texts, _block_of, _cached_token_block)

    def missing_tokens(self, tokens: set[str]) -> set[str]:
        """The tokens, as they are compared, that are not visible."""
        return tokens.difference(*[block.tokens for block in self._token_blocks])

    def missing_numbers(self, numbers: set[str]) -> set[str]:
        """The numbers that are not visible, with or without signs and separators."""
        return self.missing_tokens(numbers).difference(*[block.numbers for block in self._token_blocks])

    def missing_endings(self, endings: set[str]) -> set[str]:
        """The endings of two parts that no visible path has."""
        return endings.difference(*[block.endings for block in self._token_blocks])

    @cached_property
    def _plain(self) -> str:
        return " ".join(self.text.split())

    def shows_path(self, path: str) -> bool:
        """Whether a path is visible as written or by its last two parts."""
        plain = path.removeprefix("./").rstrip("/")
        ending = last_two_parts(plain) if "/" in plain else ""
        for block in self._token_blocks:
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


class ResultIndex:
    """Index of the results of a view; built once and then extended as results arrive."""

    def __init__(self) -> None:
        # By name the ids of results in view order, so that first and newest are the ends.
        self._names: dict[str, list[str]] = {}
        self._reads: dict[str, list[tuple[str, FileAccess]]] = {}
        self._errors: dict[str, list[str]] = {}
        # By id; only replies of 0.1.0 have several calls with one id.
        self.pending_calls: dict[str, list[ToolCall]] = {}

    def add(self, item_id: str, use: Use, call: ToolCall | None, names: Iterable[str], action: Action | None) -> None:
        """Add a result; names in acknowledgements are not indexed."""
        if use.kind != "acknowledgement":
            for name in names:
                self._names.setdefault(name, []).append(item_id)
        if action is None or call is None:
            return
        if use.kind == "read":
            for access in action.paths:
                self._reads.setdefault(normalized_path(access.path), []).append((item_id, access))
        if use.failed:
            self._errors.setdefault(command_key(call, action), []).append(item_id)

    def take_call(self, call_id: str) -> ToolCall | None:
        """Remove and return the oldest pending call with this id; `None` if there is none."""
        calls = self.pending_calls.pop(call_id, None)
        if not calls:
            return None
        if len(calls) > 1:
            self.pending_calls[call_id] = calls[1:]
        return calls[0]

    def hide(self, item_id: str, names: Iterable[str]) -> None:
        """Remove the names of a masked result; it still counts as a read or as an open error."""
        for name in names:
            ids = self._names.get(name)
            if ids and item_id in ids:
                ids.remove(item_id)
                if not ids:
                    del self._names[name]

    def results_naming(self, names: Iterable[str]) -> set[str]:
        """The ids of the first and newest result that show each of the names."""
        found: set[str] = set()
        for name in names:
            ids = self._names.get(name)
            if ids:
                found.update((ids[0], ids[-1]))
        return found

    def superseded(self, action: Action) -> list[str]:
        """The ids of reads that an action makes out of date: of files that it changes, or reads again."""
        found: list[str] = []
        for access in action.paths:
            path = normalized_path(access.path)
            if access.changes or action.kind == "read":
                reads = self._reads.get(path, ())
                found += [name for name, earlier in reads if access.changes or _rereads(access, earlier)]
            if access.how == "remove":
                # Removing a folder removes the files in it.
                below = f"{path.rstrip('/')}/"
                found += [name for read, reads in self._reads.items() if read.startswith(below) for name, _ in reads]
        return found

    def resolved_errors(self, call: ToolCall, action: Action) -> list[str]:
        """Remove and return the ids of errors that a success of the same command resolves."""
        return self._errors.pop(command_key(call, action), [])


def _rereads(later: FileAccess, earlier: FileAccess) -> bool:
    return later.whole or (later.first, later.last) == (earlier.first, earlier.last)


def normalized_path(path: str) -> str:
    """The path as it is compared, without a leading `./`."""
    return path.removeprefix("./")


def command_key(call: ToolCall, action: Action) -> str:
    """The key by which calls are the same command: the command line, the path, or else all arguments."""
    about = action.command or (normalized_path(action.paths[0].path) if action.paths else call.args)
    return f"{call.tool} {about}"


def names_in_reply(parts: Iterable[Content], names_of_part: Callable[[Content], Iterable[str]] = names_used) -> dict[str, None]:
    """The names and paths in the texts and calls of a reply."""
    found: dict[str, None] = {}
    for part in parts:
        found.update(dict.fromkeys(names_of_part(part)))
        if isinstance(part, ToolCall):
            found.update((normalized_path(access.path), None) for access in action_of(part).paths)
    return found


def names_in_result(result: ToolResult, action: Action | None) -> tuple[str, ...]:
    """The names and paths in a result, and the paths of its call."""
    names = dict.fromkeys(names_of(result_text(result)))
    if action is not None:
        names.update((normalized_path(access.path), None) for access in action.paths)
    return tuple(names)


def results_in(items: Iterable[Item]) -> Iterable[tuple[Item, ToolResult, ToolCall | None]]:
    """The results of a view with their calls."""
    items = tuple(items)
    calls = answered_calls(items)
    for item in items:
        if isinstance(item.content, ToolResult):
            yield item, item.content, calls.get(item.id)


def calls_by_id(contents: Iterable[Content]) -> dict[str, list[ToolCall]]:
    """Calls by id, in order."""
    calls: dict[str, list[ToolCall]] = {}
    for content in contents:
        if isinstance(content, ToolCall):
            calls.setdefault(content.call_id, []).append(content)
    return calls


def index_results(
    items: Iterable[Item],
    uses: Mapping[str, Use],
    cached_names: dict[str, tuple[str, ...]],
    names_of_result: Callable[[ToolResult, Action | None], tuple[str, ...]] = names_in_result,
) -> ResultIndex:
    """Index the results of a view; `cached_names` caches the names of each result by item id."""
    items = tuple(items)
    index = ResultIndex()
    answered = {call.id for call, _ in pairs_of(items)}
    index.pending_calls = calls_by_id(item.content for item in items if item.id not in answered)
    for item, result, call in results_in(items):
        use = uses.get(item.id)
        if use is None:
            continue
        action = action_of(call) if call is not None else None
        names: tuple[str, ...] = ()
        if is_readable(item):
            if item.id not in cached_names:
                cached_names[item.id] = names_of_result(result, action)
            names = cached_names[item.id]
        index.add(item.id, use, call, names, action)
    return index


# Line numbers as programs print them before the lines of a file.
_LINE_NUMBER: Final = lazy_pattern(r" *\d+(?:→|\t|: )")


class KnownText(Value, frozen=True):
    """The text of a file, or of the part of it that was read, after the last recorded edit.

    items: ids of the items that showed it: a call and its result, or a text that a fold wrote.
    is_shown: those items show exactly this text; false if it was edited later.
    in_call: the text stands in the arguments of the call, which wrote it, and not in the result.
    edits: edits and writes of the file so far.
    touched: id of the newest item about the file.
    """

    text: str
    items: tuple[str, ...]
    is_shown: bool
    in_call: bool
    edits: int
    touched: str


def known_texts(items: Iterable[Item]) -> dict[str, KnownText]:
    """Return the files whose text follows from some items of a view, masked ones included, by path.

    A file is not known after a change that does not fit its text, after a command that changes it, and if its result was cut.
    """
    items = tuple(items)
    calls = {result.id: call for call, result in pairs_of(items)}
    known: dict[str, KnownText] = {}
    for item in items:
        call = calls.get(item.id)
        if call is not None and isinstance(call.content, ToolCall) and isinstance(item.content, ToolResult):
            if not item.content.error:
                _take_result(known, call.content, (call.id, item.id), item.content)
        elif item.kind == "summary" and item.source.startswith(FILE_TEXT) and isinstance(item.content, Text):
            path, text = item.source.removeprefix(FILE_TEXT), item.content.text.partition("\n")[2]
            known[path] = KnownText(text, (item.id,), is_shown=True, in_call=False, edits=1, touched=item.id)
    return known


def changed_paths(items: Iterable[Item]) -> dict[str, str]:
    """Return the files that calls among some items changed, the one that was changed last comes last, with the id of that result."""
    changed: dict[str, str] = {}
    for call, result in pairs_of(tuple(items)):
        if not isinstance(call.content, ToolCall) or not isinstance(result.content, ToolResult) or result.content.error:
            continue
        for access in action_of(call.content).paths:
            if access.changes:
                path = normalized_path(access.path)
                changed.pop(path, None)
                changed[path] = result.id
    return changed


def _take_result(known: dict[str, KnownText], call: ToolCall, ids: tuple[str, str], result: ToolResult) -> None:
    action = action_of(call)
    changes = changes_of(call) if action.kind in ("edit", "write") else ()
    changed = {normalized_path(change.path) for change in changes}
    for access in action.paths:
        path = normalized_path(access.path)
        if access.changes and path not in changed:
            known.pop(path, None)
        elif action.kind == "read" and not result.blob and len(action.paths) == 1:
            earlier = known.get(path)
            edits = earlier.edits if earlier is not None else 0
            known[path] = KnownText(
                without_line_numbers(result_text(result)), ids, is_shown=True, in_call=False, edits=edits, touched=ids[1]
            )
    for change in changes:
        path = normalized_path(change.path)
        earlier = known.get(path)
        edits = earlier.edits + 1 if earlier is not None else 1
        if not change.old:
            known[path] = KnownText(change.new, ids, is_shown=True, in_call=True, edits=edits, touched=ids[1])
        elif earlier is not None and (text := with_change(earlier.text, change)) is not None:
            known[path] = KnownText(text, earlier.items, is_shown=False, in_call=earlier.in_call, edits=edits, touched=ids[1])
        else:
            known.pop(path, None)


def without_line_numbers(text: str) -> str:
    """Return the lines of a file without the numbers that a program printed before them, and without what it printed after the last one."""
    lines = text.splitlines()
    if not lines or _LINE_NUMBER.match(lines[0]) is None:
        return text
    found: list[str] = []
    for line in lines:
        number = _LINE_NUMBER.match(line)
        if number is None:
            break
        found.append(line[number.end() :])
    return "\n".join(found)
