"""Which notes and summaries of sessions a reply cites, and the citation blocks and plan tags that are taken out of what is shown."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from palimpsest.agent.feed import Piece
from palimpsest.core.deltas import TextDelta
from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.items import Content, Text, Value
from palimpsest.core.text import PLAN_TAG

CITATION: Final = "oai-mem-citation"
_OPEN, _CLOSE = f"<{CITATION}>", f"</{CITATION}>"
# Characters at the end of a text that may be anything: a comparison ends with `<` too.
_AMBIGUOUS: Final = 2
_IDS: Final = re.compile(r"<(rollout_ids|thread_ids)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ENTRY: Final = re.compile(r"^(?P<path>[^\s|:]+):\d+(?:-\d+)?\|", re.MULTILINE)
# A name in brackets, as notes are shown.
_NAMED: Final = re.compile(r"\[([a-z0-9_]{3,60})\]")
_STEMS: Final = re.compile(r"\[([A-Za-z0-9_.-]{3,200})\]")


class Uncited(Value, frozen=True):
    """A text without citation blocks, the ids that they name, once each, and the paths of their entries."""

    text: str
    ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def without_citations(text: str) -> Uncited:
    """Return a reply without its citation blocks; one that is cut off ends with the text, also in the middle of its opening tag."""
    shown: list[str] = []
    blocks: list[str] = []
    rest = text
    while (start := rest.find(_OPEN)) >= 0:
        shown.append(rest[:start])
        inner, closed, rest = rest[start + len(_OPEN) :].partition(_CLOSE)
        blocks.append(inner)
        if not closed:
            rest = ""
    shown.append(rest[: len(rest) - _torn_tag(rest)])
    found = "\n".join(blocks)
    ids = dict.fromkeys(line.strip() for _, lines in _IDS.findall(found) for line in lines.splitlines() if _UUID.fullmatch(line.strip()))
    paths = dict.fromkeys(match["path"] for match in _ENTRY.finditer(found))
    return Uncited("".join(shown).rstrip() if blocks else "".join(shown), tuple(ids), tuple(paths))


def cited_notes(text: str, names: Iterable[str]) -> frozenset[str]:
    """Return which of these notes a reply cites: by their name in brackets, as they are shown, or by their file in a citation block."""
    known = frozenset(names)
    files = {path.rpartition("/")[2].removesuffix(".md") for path in without_citations(text).paths}
    return known & ({*_NAMED.findall(text)} | files)


def cited_summaries(text: str, summaries: Mapping[str, str]) -> frozenset[str]:
    """Return which sessions of these, given with the stems of their summaries, a reply cites.

    By the id of the session in a citation block, which an imported session has at the end of its own, by the file of the summary there, or
    by its stem in brackets, as SUMMARY.md shows it.
    """
    found = without_citations(text)
    stems = {*_STEMS.findall(text), *(path.rpartition("/")[2].removesuffix(".md") for path in found.paths)}
    # A session of this program has an id of another form, which counts only if there is such a session.
    named = {line.strip() for _, lines in _IDS.findall(text) for line in lines.splitlines()}
    return frozenset(session for session, stem in summaries.items() if stem in stems or session in named or session.endswith(found.ids))


def _torn_tag(text: str) -> int:
    """Return how many characters at the end of a text are the beginning of the opening tag, beyond what could be something else."""
    return next((size for size in range(min(len(text), len(_OPEN) - 1), _AMBIGUOUS, -1) if _OPEN.startswith(text[-size:])), 0)


class CitationFilter:
    """Takes citation blocks out of a reply that arrives in pieces. A block that is still open at the end is not shown."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False

    def feed(self, piece: str) -> str:
        """Return what can be shown after one more piece; what may be the beginning of a tag waits for the next."""
        self._held += piece
        shown = ""
        while True:
            tag = _CLOSE if self._inside else _OPEN
            start = self._held.find(tag)
            if start < 0:
                break
            shown += "" if self._inside else self._held[:start]
            self._held, self._inside = self._held[start + len(tag) :], not self._inside
        keep = next((size for size in range(min(len(self._held), len(tag) - 1), 0, -1) if tag.startswith(self._held[-size:])), 0)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown + ("" if self._inside else ready)

    def end(self) -> str:
        """Return what was held back and is no block after all: nothing of an open block, nor of a tag that was cut off."""
        held, self._held = self._held, ""
        return "" if self._inside or len(held) > _AMBIGUOUS else held


_PLAN_TAGS: Final = (f"<{PLAN_TAG}>\n", f"\n</{PLAN_TAG}>", f"<{PLAN_TAG}>", f"</{PLAN_TAG}>")


class WithoutPlanTags:
    """Takes the tags of a proposed plan out of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what can be shown; the beginning of what may be a tag is held back."""
        text = _without_plan_tags(self._held + text)
        held = max((size for tag in _PLAN_TAGS for size in range(1, len(tag)) if text.endswith(tag[:size])), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """Return what was held back, which is no tag."""
        rest, self._held = self._held, ""
        return rest


def _without_plan_tags(text: str) -> str:
    for tag in _PLAN_TAGS:
        text = text.replace(tag, "")
    return text


class WithoutCitations:
    """Passes pieces of a feed on to `publish`, texts of replies without citation blocks and plan tags, also of one that is cut off."""

    def __init__(self, publish: Callable[[Piece], None]) -> None:
        self._publish = publish
        self._filter = CitationFilter()
        self._plan = WithoutPlanTags()

    def __call__(self, piece: Piece) -> None:
        """Pass one piece on; a delta of which nothing is shown is left out."""
        match piece:
            case TextDelta(text=text):
                if shown := self._plan.feed(self._filter.feed(text)):
                    self._publish(TextDelta(shown))
            case Event(body=ModelReplied(purpose="turn") as body):
                if rest := self._plan.feed(self._filter.end()) + self._plan.end():
                    self._publish(TextDelta(rest))
                self._filter = CitationFilter()
                self._publish(replace(piece, body=replace(body, parts=tuple(map(_uncited, body.parts)))))
            case _:
                self._publish(piece)


def _uncited(part: Content) -> Content:
    return replace(part, text=_without_plan_tags(without_citations(part.text).text)) if isinstance(part, Text) else part
