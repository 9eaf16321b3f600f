"""Takes secrets out of texts that leave the log: notes, questions to models, exports."""

import re
from collections.abc import Iterator
from typing import AnyStr, Final

from palimpsest.core.items import Value
from palimpsest.core.secret_classes import CLASSES, LONG, WORD, SecretClass

_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A key whose end was cut off: what looks like its lines.
_LINES: Final = re.compile(r"(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\[nr]){0,4}[A-Za-z0-9+/]{0,78}={0,2}(?=\s*(?:$|\n)))?")
_LONGEST_KEY: Final = 20_000
# The starts of each class as bytes; none where one is not ASCII.
_STARTS: Final = tuple(
    (each, tuple(start.encode() for start in each.starts) if all(start.isascii() for start in each.starts) else ()) for each in CLASSES
)
# One look for the starts of all classes whose secrets are long words: most texts have none of them.
_ANY_RUN: Final = re.compile(b"|".join(re.escape(start) for each, starts in _STARTS if each.run for start in starts))
# The same for the others, in small letters; only short texts are worth this look, for long ones have some of them.
_ANY_OTHER: Final = re.compile(b"|".join(re.escape(start.lower()) for each, starts in _STARTS if not each.run for start in starts))
_SHORT: Final = 4096
_WORD: Final = bytes(ord("a") if chr(byte) in WORD else ord(" ") for byte in range(256))
_LONG: Final = b"a" * LONG
_BEFORE: Final = 8


class Secret(Value, frozen=True):
    """A secret in a text: its class, where it starts and where it ends."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """All secrets in order; where two overlap they are one, of the class that is looked for first."""
    # One byte for each character, so that every place stays where it was; bytes are searched fast, and fold ASCII letters only.
    plain = text.encode("ascii", "replace")
    folded, words = plain.lower(), _long_words(plain)
    words = words if _ANY_RUN.search(words) else b""
    # The dashes before a private key are a start too.
    if not words and len(text) <= _SHORT and text.isascii() and not _ANY_OTHER.search(folded):
        return ()
    found = [(start, end, -1, "private_key") for start, end in _private_keys(text)]
    for rank, (secret_class, starts) in enumerate(_STARTS):
        if not starts:
            if not any(start[0] in text for start in secret_class.starts):
                continue
            spans = _spans(secret_class, text, text, secret_class.starts)
        elif not secret_class.run or (words and any(start in words for start in starts)):
            spans = _spans(secret_class, text, folded if secret_class.folded else plain, starts)
        else:
            continue
        found += [(start, end, rank, secret_class.kind) for start, end in spans]
    return tuple(_merged(sorted(found)))


def _long_words(plain: bytes) -> bytes:
    """All long words with a little of what stands before them: most secrets can only be there, and that is little of a text."""
    marked = plain.translate(_WORD)
    # The same ids and paths occur again and again.
    words: set[bytes] = set()
    start = marked.find(_LONG)
    while start >= 0:
        end = marked.find(b" ", start + len(_LONG))
        if end < 0:
            end = len(marked)
        words.add(plain[max(0, start - _BEFORE) : end])
        start = marked.find(_LONG, end)
    return b" ".join(words)


def _spans(secret_class: SecretClass, text: str, searched: AnyStr, starts: tuple[AnyStr, ...]) -> Iterator[tuple[int, int]]:
    pattern = secret_class.pattern
    group = min(1, pattern.groups)
    for opening in starts:
        place = searched.find(opening)
        while place >= 0:
            match = pattern.match(text, place)
            if match:
                yield match.span(group)
            place = searched.find(opening, match.end() if match else place + 1)


def redact(text: str) -> str:
    """The text with each secret replaced by `[REDACTED:<class>]`; redacting again changes nothing."""
    while found := find_secrets(text):
        # What stood beside a secret may be one itself once that is gone, so look again; each time fewer letters are left.
        parts: list[str] = []
        place = 0
        for secret in found:
            parts += [text[place : secret.start], f"[REDACTED:{secret.kind}]"]
            place = secret.end
        text = "".join((*parts, text[place:]))
    return text


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    begin = _BEGIN.search(text) if "-----BEGIN " in text else None
    while begin:
        after = _BEGIN.search(text, begin.end())
        stop = min(begin.end() + _LONGEST_KEY, after.start() if after else len(text))
        rest = _END.search(text, begin.end(), stop) or _LINES.match(text, begin.end(), stop)
        if rest:
            yield begin.start(), rest.end()
        begin = after


def _merged(found: list[tuple[int, int, int, str]]) -> Iterator[Secret]:
    """Overlapping finds as one, from the first start to the last end."""
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
