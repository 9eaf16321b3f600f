"""Finds and redacts secrets in texts."""

import re
from collections.abc import Iterator
from functools import cache
from typing import AnyStr, Final

from palimpsest.core.items import Value
from palimpsest.core.redaction.classes import NOT_INSIDE, VENDOR_CLASSES, SecretCandidate, SecretClass
from palimpsest.core.redaction.places import COOKIE_OPTION, PLACE_CLASSES, find_cookies
from palimpsest.core.tokens.patterns import lazy_pattern

WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LONG: Final = 15
# Where two classes find the same place, the first one names it: a vendor's prefix says more than the name of a key.
CLASSES: Final[tuple[SecretClass, ...]] = (*VENDOR_CLASSES, *PLACE_CLASSES)
# Classes whose form alone proves a secret; the others are guesses by the place.
CERTAIN_KINDS: Final = frozenset(each.kind for each in CLASSES if each.certain) | {"private_key"}
_END_OF_BARE: Final = ".,:)]}"
_MOST_LEAD: Final = 80
_MOST_BEFORE: Final = 200

_KEY_BEGIN: Final = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END: Final = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Matches the lines of a key whose end marker is missing.
_LINES: Final = lazy_pattern(r"(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/]{0,78}={0,2}(?=\s*(?:$|\n)))?")
_KEY_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{40}")
_LONGEST_KEY: Final = 20_000
# A line of a key whose beginning is cut off, and the lines of a key of PuTTY behind their number.
_BODY_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{40,78}")
_LAST_LINE: Final = lazy_pattern(r"[A-Za-z0-9+/]{1,78}={0,2}")
_PUTTY_LINES: Final = lazy_pattern(r"Private-Lines: [0-9]{1,3}(?:\s|\\[nr]){1,4}((?:[A-Za-z0-9+/]{1,76}={0,2}(?:\s|\\[nr]){0,4}){1,200})")
# The starts of each class as bytes; empty if one is not ASCII.
_STARTS: Final = tuple(
    (secret_class, tuple(start.encode() for start in secret_class.starts) if all(map(str.isascii, secret_class.starts)) else ())
    for secret_class in CLASSES
)
# One search for the starts of the classes without `run`, in lower case; used only for short texts, because long ones usually contain some.
_ANY_OTHER: Final = lazy_pattern(
    b"cookie| -b |" + b"|".join(re.escape(start.lower()) for each, starts in _STARTS if not each.run for start in starts)
)
# Options of commands, whose starts are the slowest to search for: one search finds all places of them. The cookies of `curl -b` count too.
_OPTION_HEAD: Final = 3
_OPTION: Final = re.compile(rb" -[a-z-] ?")
_OPTIONS: Final = tuple(
    (rank, start, secret_class.folded)
    for rank, (secret_class, starts) in enumerate(_STARTS)
    for start in starts
    if _OPTION.fullmatch(start)
)
_ANY_OPTION: Final = lazy_pattern(
    b" -[" + b"".join(sorted({start[2:3] for start in (COOKIE_OPTION, *(start for _, start, _ in _OPTIONS))})) + b"]"
)
# The other starts without `run`, each with the rank of its class, and those that are not ASCII.
_OTHERS: Final = tuple(
    (rank, start, secret_class.folded)
    for rank, (secret_class, starts) in enumerate(_STARTS)
    for start in (() if secret_class.run else starts)
    if not _OPTION.fullmatch(start)
)
_FOREIGN: Final = tuple((rank, start) for rank, (each, starts) in enumerate(_STARTS) if not starts for start in each.starts)
_FOREIGN_LETTERS: Final = frozenset(word[0] for _, word in _FOREIGN)
# Compiled with their first use: most processes need none of them.
_compiled: Final = cache(re.compile)
_SHORT: Final = 4096
_DIGITS: Final = b"0123456789"
_HEXADECIMAL: Final = b"0123456789abcdef-"
# Starts of classes with `run` that are hexadecimal themselves.
_HEXADECIMAL_STARTS: Final = tuple(
    start for each, starts in _STARTS if each.run for start in starts if not start.translate(None, _HEXADECIMAL) and b"-" in start
)
_BEFORE_HEXADECIMAL: Final = (b"", b".", b"/")
_WORD: Final = bytes(ord("a") if chr(byte) in WORD else ord(" ") for byte in range(256))
_SEPARATED: Final = bytes(byte if chr(byte).isalnum() and byte < 128 else ord(" ") for byte in range(256))
_LONG: Final = b"a" * LONG
_BEFORE: Final = 9
_HEAD: Final = 3


def _starts_by_head() -> dict[bytes, list[tuple[int, bytes]]]:
    """Return the starts of the classes with `run` and their ranks, by the first letters and digits of the start, at most three.

    Those that may follow a letter or digit are under the empty head.
    """
    by_head: dict[bytes, list[tuple[int, bytes]]] = {}
    for rank, (secret_class, starts) in enumerate(_STARTS):
        for start in starts if secret_class.run else ():
            separate = secret_class.pattern.startswith(NOT_INSIDE) or not start[:1].isalnum()
            head = start.translate(_SEPARATED).split()[0][:_HEAD] if separate else b""
            by_head.setdefault(head, []).append((rank, start))
    return by_head


_BY_HEAD: Final = _starts_by_head()


class Secret(Value, frozen=True):
    """A secret in a text: its class, and its start and end index."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """Return all secrets in order; overlapping ones are merged, with the class that comes first in `CLASSES`."""
    # One byte per character, so that indexes stay valid; searching bytes is fast, and `lower` changes only ASCII letters.
    plain = text.encode("ascii", "replace")
    folded, run_starts = plain.lower(), _run_starts(_long_words(plain))
    # The dashes before a private key are in `_ANY_OTHER` too.
    if not run_starts and len(text) <= _SHORT and text.isascii() and not _ANY_OTHER.search(folded):
        return ()
    options: dict[bytes, list[int]] = {}
    for option in _ANY_OPTION.finditer(folded):
        options.setdefault(option[0], []).append(option.start())
    found = [(start, end, -1, "private_key") for start, end in _private_keys(text, plain)]
    found += [
        (start, end, len(CLASSES), "cookie") for start, end in find_cookies(text, folded, options.get(COOKIE_OPTION[:_OPTION_HEAD], ()))
    ]
    # The texts are searched here and not in a function, because most starts are in none.
    for rank, start, is_folded in _OTHERS:
        searched = folded if is_folded else plain
        if (place := searched.find(start)) >= 0:
            found += _spans(rank, text, searched, start, place)
    for rank, start, is_folded in _OPTIONS if options else ():
        searched = folded if is_folded else plain
        for place in options.get(start[:_OPTION_HEAD], ()):
            if searched.startswith(start, place):
                found += _spans(rank, text, searched, start, place, stop=place + len(start))
    for rank, starts in run_starts.items():
        for start in starts:
            found += _spans(rank, text, plain, start, plain.find(start))
    # One letter is found much faster than two.
    is_foreign = not text.isascii() and any(letter in text for letter in _FOREIGN_LETTERS)
    for rank, word in _FOREIGN if is_foreign else ():
        found += _spans(rank, text, text, word, text.find(word))
    return tuple(_merged(sorted(found)))


def _run_starts(words: bytes) -> dict[int, list[bytes]]:
    """Return the starts of classes with `run` that occur in the words, by the rank of their class."""
    # A start stands where letters and digits begin, so one pass over what begins there replaces a search for each start.
    heads = {part[:_HEAD] for part in words.translate(_SEPARATED).split()}
    heads |= {head[:2] for head in heads} | {b""}
    found: dict[int, list[bytes]] = {}
    for head in heads & _BY_HEAD.keys():
        for rank, start in _BY_HEAD[head]:
            if start in words:
                found.setdefault(rank, []).append(start)
    return found


def _long_words(plain: bytes) -> bytes:
    """Return all long words with the characters before them, joined: most secrets can only be there, and that is a small part of a text."""
    marked = plain.translate(_WORD)
    # A set, because the same ids and paths occur again and again.
    words: set[bytes] = set()
    start = marked.find(_LONG)
    while start >= 0:
        end = marked.find(b" ", start + LONG)
        if end < 0:
            end = len(marked)
        if plain[start:end].translate(None, _HEXADECIMAL):
            word = plain[max(0, start - _BEFORE) : end]
            # Names in small letters are most long words of a text, and no token is written like that.
            if not word.islower() or word.translate(None, _DIGITS) != word:
                words.add(word)
        elif plain[start - 1 : start] in _BEFORE_HEXADECIMAL or plain.startswith(_HEXADECIMAL_STARTS, start):
            # Digests and UUIDs are left out, because few starts begin in them; one before them ends with a dot or a slash.
            words.add(plain[max(0, start - _BEFORE) : end])
        start = marked.find(_LONG, end)
    return b" ".join(words)


def _spans(
    rank: int, text: str, searched: AnyStr, start: AnyStr, place: int, *, stop: int | None = None
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the secrets of the class of this rank that begin with a start, which stands first at `place`; nowhere if that is -1.

    Starts end before `stop`.
    """
    secret_class = CLASSES[rank]
    pattern = _compiled(secret_class.pattern)
    while place >= 0:
        match = pattern.match(text, place)
        span: tuple[int, int] | None = _accepted(secret_class, match) if match else None
        if span:
            yield span[0], span[1], rank, secret_class.kind
        place = searched.find(start, span[1] if span else place + 1, stop)


def _accepted(secret_class: SecretClass, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the span of the secret in a match; none if the judge of the class takes it for something else."""
    groups, text = match.groupdict(), match.string
    group = next((name for name in ("value", "bare") if groups.get(name)), 0)
    start, end = match.span(group)
    while secret_class.lead and start > match.start() - _MOST_LEAD and start and text[start - 1] in secret_class.lead:
        start -= 1
    if group == "bare":
        end = start + len(match["bare"].rstrip(_END_OF_BARE))
    before = text[max(0, match.start() - _MOST_BEFORE) : match.start()].rpartition("\n")[2]
    if not secret_class.judge(SecretCandidate(text[start:end], before, groups.get("name") or "", groups.get("quote") or "")):
        return None
    rest = _compiled(secret_class.rest).match(text, end) if secret_class.rest and end == match.end() else None
    return start, rest.end() if rest else end


def redact(text: str) -> str:
    """Return the text with each secret replaced by `[REDACTED:<class>]`; redacting again changes nothing."""
    while found := find_secrets(text):
        # Without a secret, the text beside it may match another class, so search again until nothing is found.
        parts: list[str] = []
        place = 0
        for secret in found:
            parts += [text[place : secret.start], f"[REDACTED:{secret.kind}]"]
            place = secret.end
        text = "".join((*parts, text[place:]))
    return text


def _private_keys(text: str, plain: bytes) -> Iterator[tuple[int, int]]:
    for putty in _PUTTY_LINES.finditer(text) if b"Private-Lines: " in plain else ():
        lines = putty[1].partition("Private-MAC")[0].rstrip()
        yield putty.start(1), putty.start(1) + len(lines)
    if b"PRIVATE KEY" not in plain:
        return
    begin = _KEY_BEGIN.search(text)
    while begin:
        after = _KEY_BEGIN.search(text, begin.end())
        stop = min(begin.end() + _LONGEST_KEY, after.start() if after else len(text))
        rest = _KEY_END.search(text, begin.end(), stop) or _LINES.match(text, begin.end(), stop)
        # A form without a key, as documents show it, is no secret.
        if rest and _KEY_LINE.search(text, begin.end(), rest.end()):
            yield begin.start(), rest.end()
        begin = after
    yield from _cut_keys(text)


def _cut_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines before an end marker, which stand alone where the beginning of a key was cut off."""
    for end in _KEY_END.finditer(text):
        start = place = end.start()
        # Upwards, line by line: the last line of a key may be short, the others are full.
        while place > end.start() - _LONGEST_KEY and place > 0:
            above = text.rfind("\n", 0, place - 1) + 1
            line = text[above : place - 1].strip()
            if not (_BODY_LINE.fullmatch(line) or (start == end.start() and _LAST_LINE.fullmatch(line))):
                break
            start = place = above
        if _KEY_LINE.search(text, start, end.start()):
            yield start, end.end()


def _merged(found: list[tuple[int, int, int, str]]) -> Iterator[Secret]:
    """Yield the findings with overlapping ones merged."""
    if not found:
        return
    start, end, rank, kind = found[0]
    for other_start, other_end, other_rank, other_kind in found[1:]:
        if other_start >= end:
            yield Secret(kind, start, end)
            start, end, rank, kind = other_start, other_end, other_rank, other_kind
        else:
            end = max(end, other_end)
            if other_rank < rank:
                rank, kind = other_rank, other_kind
    yield Secret(kind, start, end)
