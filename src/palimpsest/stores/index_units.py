"""Search units and session figures that the index stores of events, the query syntax, and snippets with highlighted matches."""

import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct, structs

from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    Interrupted,
    ModelReplied,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    ProfileChanged,
    Rewound,
    SessionOpened,
    Titled,
    UserSaid,
    ViewEdited,
    all_items_of,
    items_of,
)
from palimpsest.core.items import text_of
from palimpsest.core.ledger import ChildrenProjection, LedgerProjection
from palimpsest.core.ports import SessionRow, UnitKind

_TITLE_CHARS = 80
# The largest number that SQLite can store.
_LARGEST_NUMBER = 2**63 - 1


class SearchUnit(Struct, frozen=True, gc=False):
    """One searchable text of an event; `item` is the id of the item in the view, or empty if it is none."""

    item: str
    kind: UnitKind
    text: str


def search_units(event: Event) -> Iterator[SearchUnit]:
    """Yield the searchable texts of an event; stated heads are left out, because they are alike in all sessions."""
    body = event.body
    match body:
        case NotesTaken():
            yield SearchUnit("", "note", body.text)
        case NoteSaved() | NoteForgotten():
            yield SearchUnit("", "note", f"{body.name} {body.reason}")
        case Titled():
            yield SearchUnit("", "title", " ".join((body.title, *body.tags)))
        case _:
            heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
            yield from (SearchUnit(item.id, item.kind, text) for item in all_items_of(event)[heads:] if (text := text_of(item.content)))


class SessionRowBuilder:
    """Computes the row of a session in the list from its events; starts from an earlier row."""

    def __init__(self, row: SessionRow) -> None:
        self._start = row
        self._changes: dict[str, object] = {}
        self.title, self.model, self.updated = row.title, row.model, row.updated
        self.events, self.turns = row.events, row.turns
        self._ledger = LedgerProjection(row.ledger)
        self._children = ChildrenProjection()
        self._children.start_from(row.children)
        self.context = row.context

    @property
    def row(self) -> SessionRow:
        """The row after the events so far."""
        ledger = self._ledger.value()
        return structs.replace(
            self._start,
            **self._changes,
            title=self.title,
            model=self.model,
            updated=self.updated,
            events=self.events,
            turns=self.turns,
            tokens=min(_LARGEST_NUMBER, ledger.usage.total),
            context=self.context,
            ledger=ledger,
            counted=None,
            children=tuple(structs.replace(child, text="") for child in self._children.value()),
        )

    def add(self, event: Event) -> None:
        """Add one event."""
        if self.events == 0:
            self._changes["created"] = event.at
        self.events += 1
        self.updated = max(self.updated, event.at)
        self._add_context(event)
        self._ledger.take(event)
        self._children.take(event)
        match event.body:
            case SessionOpened() as body:
                self._changes |= {"origin": body.origin, "cwd": body.cwd, "profile": body.profile, "base": body.base, "opener": body.opener}
                self.model = body.model
            case UserSaid() as body:
                self.turns += not body.steering
                if not self.title:
                    self.title = _first_line(" ".join(text_of(part) for part in body.parts))
            case CallStarted(model=model, purpose=purpose) if purpose == TURN:
                self.model = model
            case ModelReplied() | Interrupted() as body:
                if body.purpose == TURN:
                    self.model = body.model or self.model
            case ModelSwitched() as body:
                self.model = body.model
            case ProfileChanged() as body:
                self._changes["profile"] = body.profile
            case Titled() as body:
                self.title = body.title
            case _:
                pass

    def _add_context(self, event: Event) -> None:
        """Follow the size of the next request as far as it was reported; what came since is counted with the view."""
        body = event.body
        match body:
            case ModelReplied(purpose=purpose, usage=usage) if purpose == TURN and usage.prompt:
                self.context = min(_LARGEST_NUMBER, usage.total)
            case ViewEdited(tokens_after=tokens) if tokens:
                self.context = min(_LARGEST_NUMBER, tokens)
            case SessionOpened(base=base):
                self.context = 0 if base is None else None
            case ViewEdited() | EditUndone():
                self.context = None
            case Rewound() | ModelSwitched() | ProfileChanged():
                self.context = None if self.context else self.context
            case _ if self.context is not None and items_of(event.seq, body):
                self.context = None
            case _:
                pass


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE_CHARS else f"{line[: _TITLE_CHARS - 1]}…"


# A word is a run of letters and digits; case and accents are ignored. `foo_bar`, `foo.bar` and `foo-bar` are two words each, so that `bar`
# finds them; as a query they are a phrase. Each Chinese, Japanese or Korean character is a word of its own, and several are a phrase:
# this needs no dictionary and finds words of any length.
_CJK_RANGES = (
    "\u1100-\u11ff\u3040-\u312f\u3131-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U000323af"
)
_CJK = re.compile(f"([{_CJK_RANGES}])")
_WORD = re.compile(r"[^\W_]+")
_TERM = re.compile(r'-?"[^"]*"\*?|[^\s"]+')
_NOT = re.compile(r'-(?=["\w])')
_SPACE = re.compile(r"\s+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class Phrase(Struct, frozen=True):
    """Consecutive words; with `prefix` the last one may be the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False

    @property
    def match(self) -> str:
        """The phrase in FTS5 syntax; words have no quotes, so that nothing needs escaping."""
        return f'"{" ".join(self.words)}"{"*" if self.prefix else ""}'


class Query(Struct, frozen=True):
    """Phrases that a text must contain, and phrases that it must not."""

    wanted: tuple[Phrase, ...] = ()
    unwanted: tuple[Phrase, ...] = ()

    @property
    def match(self) -> str:
        """The query in FTS5 syntax; empty if there is nothing to search for."""
        wanted = " AND ".join(phrase.match for phrase in self.wanted)
        unwanted = " OR ".join(phrase.match for phrase in self.unwanted)
        return f"({wanted}) NOT ({unwanted})" if wanted and unwanted else wanted


def separate_cjk(text: str) -> str:
    """Put spaces around each CJK character, so that the index takes it for a word."""
    if text.isascii():
        return text
    return _CJK.sub(r" \1 ", unicodedata.normalize("NFC", text))


def read_query(query: str) -> Query:
    """Parse a query of words, "quoted phrases", prefix* and -not; everything else counts as words."""
    if query.count('"') % 2:
        query = " ".join(query.rsplit('"', 1))
    wanted: list[Phrase] = []
    unwanted: list[Phrase] = []
    for term in _TERM.findall(query):
        negated = _NOT.match(term) is not None
        phrase = Phrase(tuple(_WORD.findall(normalized(separate_cjk(term)))), prefix=term.endswith("*"))
        if phrase.words:
            (unwanted if negated else wanted).append(phrase)
    # A query of negated terms only, such as -rf, searches for them.
    return Query(tuple(wanted), tuple(unwanted)) if wanted else Query(tuple(unwanted))


class _NormalizedLetters(dict[int, str]):
    """Maps each letter to one letter without case and accents, so that offsets in a normalized text are offsets in the text."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = letter if _CJK.match(letter) else unicodedata.normalize("NFD", letter)[0].lower()
        self[code] = plain if len(plain) == 1 else letter
        return self[code]


_NORMALIZED = _NormalizedLetters()


def normalized(text: str) -> str:
    """Return the text in lower case and without accents, of the same length."""
    if text.isascii():
        return text.lower()
    # Long texts have few other letters; looking up each of their letters would take three times as long.
    return _NOT_ASCII.sub(lambda run: run[0].translate(_NORMALIZED), text).lower()


def phrase_spans(phrases: tuple[Phrase, ...], text: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield start and end of each phrase in a normalized text, from left to right."""
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
    # The character before the first word is checked in Python: a pattern that begins with a letter is several times faster.
    end = r"[^\W_]*" if phrase.prefix and not _CJK.match(last) else "" if _CJK.match(last) else rf"(?=[\W_{_CJK_RANGES}]|$)"
    return "".join(parts) + end


def snippet(phrases: tuple[Phrase, ...], text: str, marks: tuple[str, str] = ("[", "]"), width: int = 160) -> str:
    """Return about `width` characters around the first match in one line, with each match between the marks."""
    plain = normalized(text)
    first = next(phrase_spans(phrases, plain), (0, 0))[0] if phrases else 0
    start = _next_word_start(text, max(0, first - width // 3)) if first > width // 3 else 0
    stop = min(len(text), start + width)
    pieces: list[str] = ["…" if start else ""]
    at = start
    for begin, end in phrase_spans(phrases, plain, start, stop) if phrases else ():
        pieces += [text[at:begin], marks[0], text[begin:end], marks[1]]
        at = end
    pieces += [text[at:stop], "…" if stop < len(text) else ""]
    return _SPACE.sub(" ", "".join(pieces)).strip()


def _next_word_start(text: str, at: int) -> int:
    """Return the start of the next word if it is within 20 characters, else `at`."""
    space = _SPACE.search(text, at, at + 20)
    return space.end() if space else at
