"""What a user interface is shown of replies that end with citation blocks: the text without them; the log keeps the whole."""

from collections.abc import Callable

from msgspec.structs import replace

from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.events.deltas import TextDelta
from palimpsest.core.items import Content, Text
from palimpsest.engine.loop.feed import Piece
from palimpsest.memory.showing.citations import CitationFilter, without_citations


class WithoutCitations:
    """Passes pieces of a feed on to `publish`, texts of replies without citation blocks, also of one that is cut off."""

    def __init__(self, publish: Callable[[Piece], None]) -> None:
        self._publish = publish
        self._filter = CitationFilter()

    def __call__(self, piece: Piece) -> None:
        """Pass one piece on; a delta of which nothing is shown is left out."""
        match piece:
            case TextDelta(text=text):
                if shown := self._filter.feed(text):
                    self._publish(TextDelta(shown))
            case Event(body=ModelReplied(purpose="turn") as body):
                if rest := self._filter.end():
                    self._publish(TextDelta(rest))
                self._filter = CitationFilter()
                self._publish(replace(piece, body=replace(body, parts=tuple(map(_uncited, body.parts)))))
            case _:
                self._publish(piece)


def _uncited(part: Content) -> Content:
    return replace(part, text=without_citations(part.text).text) if isinstance(part, Text) else part
