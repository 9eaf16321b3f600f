"""How text becomes words: for the index, for a query, and for the marks in a snippet."""

import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

# A word is a run of letters and digits, without case and accents. So `foo_bar`, `foo.bar` and `foo-bar` are two words each: `bar` finds
# them, and `foo_bar` as a query is the phrase of both words, side by side. Each Chinese, Japanese or Korean character is a word of its
# own, and a query of several is a phrase: this needs no dictionary and finds words of any length.
_CJK_RANGES = (
    "\u1100-\u11ff\u3040-\u312f\u3131-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U000323af"
)
_CJK = re.compile(f"([{_CJK_RANGES}])")
_WORD = re.compile(r"[^\W_]+")
_TERM = re.compile(r'-?"[^"]*"\*?|[^\s"]+')
_NOT = re.compile(r'-(?=["\w])')
_SPACE = re.compile(r"\s+")


class Phrase(Struct, frozen=True):
    """Words that stand side by side; with `prefix` the last one may go on."""

    words: tuple[str, ...]
    prefix: bool = False

    @property
    def match(self) -> str:
        """The phrase in the words of FTS5; a word holds no quote, so nothing can break out."""
        return f'"{" ".join(self.words)}"{"*" if self.prefix else ""}'


class Query(Struct, frozen=True):
    """What must be there, and what must not."""

    wanted: tuple[Phrase, ...] = ()
    unwanted: tuple[Phrase, ...] = ()

    @property
    def match(self) -> str:
        """The query in the words of FTS5; empty when there is nothing to look for."""
        wanted = " AND ".join(phrase.match for phrase in self.wanted)
        unwanted = " OR ".join(phrase.match for phrase in self.unwanted)
        return f"({wanted}) NOT ({unwanted})" if wanted and unwanted else wanted


def spaced(text: str) -> str:
    """The text with each CJK character standing alone, as the index takes it."""
    if text.isascii():
        return text
    return _CJK.sub(r" \1 ", unicodedata.normalize("NFC", text))


def read_query(query: str) -> Query:
    """Words, "quoted phrases", prefix* and -not; whatever is no syntax is taken as words."""
    if query.count('"') % 2:
        query = " ".join(query.rsplit('"', 1))
    wanted: list[Phrase] = []
    unwanted: list[Phrase] = []
    for term in _TERM.findall(query):
        without = _NOT.match(term) is not None
        phrase = Phrase(tuple(_WORD.findall(folded(spaced(term)))), prefix=term.endswith("*"))
        if phrase.words:
            (unwanted if without else wanted).append(phrase)
    # A query of options only, such as -rf, means them as words.
    return Query(tuple(wanted), tuple(unwanted)) if wanted else Query(tuple(unwanted))


class _Letters(dict[int, str]):
    """Each letter without case and accents, one for one, so that places in a folded text are places in the text."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = letter if _CJK.match(letter) else unicodedata.normalize("NFD", letter)[0].lower()
        self[code] = plain if len(plain) == 1 else letter
        return self[code]


_LETTERS = _Letters()


def folded(text: str) -> str:
    """The text without case and accents, of the same length."""
    return text.lower() if text.isascii() else text.translate(_LETTERS)


def places(phrases: tuple[Phrase, ...], text: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Where the phrases stand in a folded text, from left to right."""
    pattern = "|".join(_pattern(phrase) for phrase in phrases)
    end = len(text) if stop is None else stop
    for found in re.compile(pattern).finditer(text, start, end):
        first = found.start()
        if first == 0 or not text[first - 1].isalnum() or _CJK.match(text[first]) or _CJK.match(text[first - 1]):
            yield found.span()


def _pattern(phrase: Phrase) -> str:
    parts = [phrase.words[0]]
    for before, word in zip(phrase.words, phrase.words[1:], strict=False):
        parts.append(r"[\W_]*" if _CJK.match(before[-1]) or _CJK.match(word[0]) else r"[\W_]+")
        parts.append(word)
    last = phrase.words[-1][-1]
    # What comes before the first word is looked at by hand: a pattern that begins with a letter is found several times faster.
    end = r"[^\W_]*" if phrase.prefix and not _CJK.match(last) else "" if _CJK.match(last) else rf"(?=[\W_{_CJK_RANGES}]|$)"
    return "".join(parts) + end


def snippet(phrases: tuple[Phrase, ...], text: str, marks: tuple[str, str] = ("[", "]"), width: int = 160) -> str:
    """About `width` characters round the first place where a phrase stands, on one line, each place marked."""
    plain = folded(text)
    first = next(places(phrases, plain), (0, 0))[0] if phrases else 0
    start = _edge(text, max(0, first - width // 3)) if first > width // 3 else 0
    stop = min(len(text), start + width)
    pieces: list[str] = ["…" if start else ""]
    at = start
    for begin, end in places(phrases, plain, start, stop) if phrases else ():
        pieces += [text[at:begin], marks[0], text[begin:end], marks[1]]
        at = end
    pieces += [text[at:stop], "…" if stop < len(text) else ""]
    return _SPACE.sub(" ", "".join(pieces)).strip()


def _edge(text: str, at: int) -> int:
    """The next beginning of a word, if it is near."""
    space = _SPACE.search(text, at, at + 20)
    return space.end() if space else at
