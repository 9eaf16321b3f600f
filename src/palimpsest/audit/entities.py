"""Entities in a text (paths, identifiers, numbers, errors, URLs, ids), and user messages told apart from added context."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from palimpsest.audit.tool_calls import args_of
from palimpsest.core.items import Content, Item, Text, ToolCall
from palimpsest.core.text import lazy_pattern

SHORTEST_NAME = 6
_LONGEST_NAME = 200
_LONGEST_LINE = 160
_LONGEST_SEARCHED = 1_000
_LONGEST_NAMED = 50_000

# Bytes of a token; every other byte, those of Chinese included, separates tokens.
_INSIDE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./~@+-"
_SEPARATED = bytes(byte if byte in _INSIDE else 0x20 for byte in range(256))
_ENDS = ".-+@"
_URL = lazy_pattern(r"https?://[^\s\"'<>`\\|\]})，。；、）】」》\u4e00-\u9fff]+")
_ADDRESS = lazy_pattern(r"://[^\s\"'<>`\\|\]})，。；、）】」》\u4e00-\u9fff]+")
_PORT = lazy_pattern(r":\d{2,5}/[^\s\"'<>`\\|\]})]*")
_ESCAPE = lazy_pattern(r"\\u[0-9a-fA-F]{4}")
# Starts after the drive letter, because the search is much faster for rare characters.
_DRIVE = lazy_pattern(r":\\(?<=\b[A-Za-z]:\\)[^\s\"'<>|*?:，。；）]+")
_NUMBER = lazy_pattern(r"[+-]?\d[\d_]*(?:\.\d+)*")
_HEX = lazy_pattern(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}")
_UUID_LENGTH = 36
_UUID = lazy_pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Plain substrings are searched first, which is much faster than any pattern.
_ERRORS = {
    "rror": lazy_pattern(r"rror(?:(?<=Error)\b|(?<=\berror)(?:\[\w+\])?(?: TS\d+)?:)"),
    "xception": lazy_pattern(r"xception(?<=Exception)\b"),
    "FAIL": lazy_pattern(r"FAIL(?<=\bFAIL)(?:ED|URE)?\b"),
    "panic": lazy_pattern(r"panic(?<=\bpanic)"),
    "atal": lazy_pattern(r"atal(?:(?<=\bfatal)|(?<=\bFatal))\b"),
    "ERROR:": lazy_pattern(r"ERROR:(?<=\bERROR:)"),
} | {word: lazy_pattern(f"{word}[:：]") for word in ("错误", "失败", "异常")}
_ERROR_NAME = lazy_pattern(r"ERROR(?<=\bERROR)\b")
_MOST_ERRORS = 50
_EXTENSION_LIST = (
    "py pyi ipynb js jsx mjs cjs ts tsx mts vue svelte go rs c h cc cpp hpp cxx java kt kts scala rb php cs swift m mm lua pl r jl ex "
    "exs erl hs ml clj dart zig sh bash zsh fish ps1 bat sql html htm css scss sass less json jsonl json5 jsonc yaml yml toml ini cfg "
    "conf env lock md mdx rst txt log csv tsv xml svg png jpg jpeg gif pdf proto graphql tf gradle cmake mk patch diff snap pen traj"
)
_EXTENSIONS = frozenset(_EXTENSION_LIST.split())
_IDENTIFIER_SIGN = lazy_pattern(r"[_./0-9]")
_LETTER = lazy_pattern(r"[A-Za-z]")
_TOP = ("/", "~/", "./", "../")
# Results for longer texts are not cached, to bound memory.
CACHED_CHARACTERS = 20_000


TokenKind: TypeAlias = Literal["path", "name", "number", "id"]


Result = TypeVar("Result")
Key = TypeVar("Key", bound="str | tuple[str, ...]")


class TextCache(Generic[Key, Result]):
    """Remembers the results of a function for texts or tuples of texts, in at most `most_bytes` bytes and `most_entries` entries.

    Texts and results are counted; `size_of` returns the bytes of a result. A cache lives as long as the process and is shared by all
    sessions, so that a count of entries alone would be no bound. When the newer half is full the older half is dropped; a result that is
    found in the older half moves to the newer one, so that the results in use stay.
    """

    def __init__(
        self, function: Callable[[Key], Result], most_bytes: int, size_of: Callable[[Result], int], most_entries: int = 1_000_000
    ) -> None:
        self._function = function
        self._half_bytes = most_bytes // 2
        self._half_entries = most_entries // 2
        self._size_of = size_of
        self._newer: dict[Key, Result] = {}
        self._older: dict[Key, Result] = {}
        self._newer_bytes = 0

    def __call__(self, key: Key) -> Result:
        """What the function returns for a text, computed at most once while it is remembered."""
        try:
            return self._newer[key]
        except KeyError:
            pass
        # Another thread may replace the halves meanwhile.
        older = self._older
        result = older[key] if key in older else self._function(key)
        size = _ENTRY_BYTES + _bytes_of(key) + self._size_of(result)
        if size <= self._half_bytes:
            if self._newer_bytes + size > self._half_bytes or len(self._newer) >= self._half_entries:
                self._older, self._newer, self._newer_bytes = self._newer, {}, 0
            self._newer[key] = result
            self._newer_bytes += size
        return result


# Bytes of one cache: what the texts of a view of 200,000 tokens need.
MOST_CACHED_BYTES: Final = 8_000_000
# Bytes of the place of an entry in a dictionary, with its hash and the free places beside it.
_ENTRY_BYTES: Final = 100
# Bytes of a short string, as the tokens of a text are.
_TOKEN_BYTES: Final = 64
# Results for shorter texts are not cached: computing one takes a few microseconds, and it needs ten times the memory of its text.
SHORTEST_CACHED: Final = 128


def _bytes_of(key: str | tuple[str, ...]) -> int:
    return key.__sizeof__() if isinstance(key, str) else sum(text.__sizeof__() for text in key)


def bytes_of_tokens(*collections: frozenset[str] | tuple[str, ...]) -> int:
    """Bytes of collections of tokens, each of which is counted as a string of its own."""
    return sum(tokens.__sizeof__() + _TOKEN_BYTES * len(tokens) for tokens in collections)


def distinct_tokens(text: str) -> dict[str, None]:
    """The distinct tokens of a text in order: candidates for names, paths and numbers. Much faster than a pattern."""
    return dict.fromkeys(all_tokens(text))


def all_tokens(text: str) -> list[str]:
    """All tokens of a text, with repetitions."""
    return text.encode("utf-8", "replace").translate(_SEPARATED).decode("ascii").split()


def names_of(text: str) -> list[str]:
    """The distinct identifiers and paths of a text: 6 characters or more, with `_ . /`, a digit or an inner capital."""
    return list(_cached_names(text) if SHORTEST_CACHED <= len(text) <= _LONGEST_NAMED else _find_names(text))


def _find_names(text: str) -> tuple[str, ...]:
    if "://" in text:
        text = _URL.sub(" ", text)
    # Lower-case words name nothing and are most of a text.
    candidates = (trimmed(token) for token in distinct_tokens(text) if not (token.isalpha() and token.islower()))
    return tuple(dict.fromkeys(name for name in candidates if len(name) >= SHORTEST_NAME and is_name(name)))


# Names of a result are needed when it arrives, and again when a fold hides it.
_cached_names = TextCache(_find_names, MOST_CACHED_BYTES, bytes_of_tokens)


def names_used(part: Content) -> list[str]:
    """The names that the model uses in a text or in a call."""
    match part:
        case Text():
            return names_of(part.text)
        case ToolCall():
            return names_of("\n".join(argument_texts(part)))
        case _:
            return []


def is_name(token: str) -> bool:
    """Whether a trimmed token is an identifier or a path."""
    if len(token) < SHORTEST_NAME or len(token) > _LONGEST_NAME:
        return False
    if token.isalpha():
        # An inner capital distinguishes `useState` from `Either`; upper-case words are headings more often than constants.
        return not token.islower() and not token.isupper() and not token[1:].islower()
    return _IDENTIFIER_SIGN.search(token) is not None and _LETTER.search(token) is not None


def is_path(token: str) -> bool:
    """Whether a trimmed token names a file or a folder."""
    if len(token) > _LONGEST_NAME * 2 or token.endswith("//"):
        return False
    _, slash, last = token.rstrip("/").rpartition("/")
    stem, dot, ending = last.rpartition(".")
    if dot and ending.lower() in _EXTENSIONS and (stem or slash):
        return True
    if not slash:
        return False
    if dot and stem and 1 <= len(ending) <= 5 and ending.isalnum() and not ending.isdigit():
        return True
    deep = token.count("/")
    return _LETTER.search(token) is not None and (deep >= 2 or (deep == 1 and token.startswith(_TOP[1:]) and len(token) > 3))


def drives_of(text: str) -> list[str]:
    """The paths of a text that start with a drive letter."""
    if ":\\" not in text:
        return []
    return [text[found.start() - 1 : found.end()].rstrip(".,;:!)]}`") for found in _DRIVE.finditer(text)]


def numbers_of(text: str) -> list[str]:
    """The distinct numbers of a text, without signs and thousands separators."""
    if "," in text:
        text = _THOUSANDS.sub("", text)
    return list(dict.fromkeys([number for token in distinct_tokens(text) if token[0] in NUMBER_STARTS and (number := number_of(token))]))


# First characters of tokens that may be numbers.
NUMBER_STARTS = "+-.0123456789"
_THOUSANDS = lazy_pattern(r",(?<=\d,)(?=\d{3}(?!\d))")


def has_grouped_number(text: str) -> bool:
    """Whether a text may contain a number with thousands separators."""
    return "," in text and _THOUSANDS.search(text) is not None


def all_tokens_ungrouped(text: str) -> list[str]:
    """All tokens of a text after its thousands separators are removed."""
    return all_tokens(_THOUSANDS.sub("", text) if "," in text else text)


def number_of(token: str) -> str:
    """The number that a token is, or an empty string."""
    if token.isdecimal():
        return token
    plain = token.strip("+-./@~")
    return plain if _NUMBER.fullmatch(plain) else ""


def errors_of(text: str) -> list[str]:
    """The distinct lines of a text that report an error, cut to 160 characters, at most 50."""
    words = [word for word in _ERRORS if word in text]
    if not words:
        return []
    found: dict[int, str] = {}
    for word in words:
        found.update(_lines_with(_ERRORS[word], text))
    if "ERROR" in text:
        found.update((start, line) for start, line in _lines_with(_ERROR_NAME, text) if any(word in line for word in words))
    return list(dict.fromkeys(found[start].strip()[:_LONGEST_LINE] for start in sorted(found)))[:_MOST_ERRORS]


def _lines_with(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """The first matching lines with their offset; matches far into a line are skipped."""
    place, seen = 0, set[str]()
    while len(seen) < _MOST_ERRORS and (match := pattern.search(text, place)) is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : end if end >= 0 else len(text)]
        if match.end() - start <= _LONGEST_SEARCHED:
            yield start, line
            seen.add(line.strip()[:_LONGEST_LINE])
        place = start + len(line)


def urls_of(text: str) -> list[str]:
    """The distinct URLs of a text."""
    return list(dict.fromkeys(url.rstrip(".,;:!?") for url in _URL.findall(text))) if "://" in text else []


def token_kind(name: str) -> TokenKind | None:
    """The kind of entity that a trimmed token names, if any; the token is no number."""
    # Two slashes start a comment, or follow the scheme of a URL.
    if name.startswith("//") or (name.isalpha() and (name.islower() or len(name) < SHORTEST_NAME)):
        return None
    if ("/" in name or "." in name) and is_path(name):
        return "path"
    if name.isalnum() and not name.isalpha() and _HEX.fullmatch(name) is not None:
        return "id"
    if len(name) == _UUID_LENGTH and _UUID.fullmatch(name) is not None:
        return "id"
    return "name" if is_name(name) else None


def without_addresses(text: str) -> str:
    """The text without URLs, drive paths and JSON escapes, parts of which look like paths and names."""
    if "://" in text:
        text = _ADDRESS.sub(" ", text)
    if ":\\" in text:
        text = _DRIVE.sub(" ", text)
    if ":" in text:
        text = _PORT.sub(" ", text)
    return _ESCAPE.sub(" ", text) if "\\u" in text else text


def argument_texts(call: ToolCall) -> Iterator[str]:
    """The texts in the arguments of a call, without JSON quoting."""
    args = args_of(call)
    if args:
        yield from _strings(args.values())
    elif call.args not in ("", "{}"):
        yield call.args


def _strings(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
        elif isinstance(value, list):
            yield from _strings(value)
        elif isinstance(value, dict):
            yield from _strings(value.values())


def trimmed(token: str) -> str:
    """The token without punctuation around it."""
    name = token.rstrip(_ENDS).lstrip("-+@")
    return name.removeprefix("./")


# Opening and closing text of context in imported messages; our own items have a kind instead.
_TAGS = (
    ("# agents.md instructions for ", "</instructions>"),
    ("<environment_context>", "</environment_context>"),
    ("<skill>", "</skill>"),
    ("<user_shell_command>", "</user_shell_command>"),
    ("<turn_aborted>", "</turn_aborted>"),
    ("<subagent_notification>", "</subagent_notification>"),
    ("<hook_prompt", "</hook_prompt>"),
    ("<user_instructions>", "</user_instructions>"),
    ("<recommended_plugins>", "</recommended_plugins>"),
)
_EXTERNAL = "<external_"
_LONGEST = max(len(start) for start, _ in _TAGS)


def is_turn_boundary(item: Item) -> bool:
    """Whether an item is a real user message; its kind decides, never its text."""
    return item.kind in ("user", "steering")


def is_context_text(text: str, *, session_tags_open: bool = False) -> bool:
    """Whether an imported text is context: it starts and ends with the tags of one.

    With `session_tags_open` the opening tag is enough for instructions and environment, as in older files.
    """
    body = text.strip()
    start, end = _ascii_lower(body[:_LONGEST]), _ascii_lower(body[-64:])
    for number, (opening, closing) in enumerate(_TAGS):
        if start.startswith(opening):
            return end.endswith(closing) or (session_tags_open and number < 2)
    if start.startswith(_EXTERNAL):
        name = body[1 : body.find(">")] if ">" in body else ""
        return bool(name) and " " not in name and _ascii_lower(body).endswith(_ascii_lower(f"</{name}>"))
    return False


def is_real_user_message(texts: Iterable[str], *, session_tags_open: bool = False) -> bool:
    """Whether an imported message was typed by the user: none of its parts is context."""
    return not any(is_context_text(text, session_tags_open=session_tags_open) for text in texts)


def _ascii_lower(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
