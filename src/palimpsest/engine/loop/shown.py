"""What a user interface is shown of replies with citation blocks and the tags of a proposed plan: the text without; the log keeps both."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.events.deltas import TextDelta
from palimpsest.core.format.tags import PLAN_TAG
from palimpsest.core.items import Content, Text
from palimpsest.engine.loop.feed import Piece
from palimpsest.memory.showing.citations import CitationFilter, without_citations

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
