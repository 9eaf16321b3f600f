"""What events of both generations of OpenHands share: their order, their pictures and their words."""

from collections.abc import Iterator
from typing import Protocol

from palimpsest.core.edits import Put
from palimpsest.core.items import Part, Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.parts import linked_part, parts_of
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, is_json, text


class Telling(Protocol):
    """Turns events into facts."""

    def tell(self, events: list[object], start: int) -> Iterator[ReadEvent]:
        """The facts of the events from `start` on; those before it were told already."""
        ...


def shown_parts(content: object, blobs: Blobs) -> tuple[Part, ...]:
    """The parts of a message, where one picture may have several addresses."""
    if not isinstance(content, list):
        return parts_of(content, blobs)
    found: list[Part] = []
    for each in content:
        links = each.get("image_urls") if is_json(each) else None
        if isinstance(links, list):
            found += pictures(links, blobs)
        else:
            found += parts_of([each], blobs)
    return tuple(found)


def pictures(links: object, blobs: Blobs) -> list[Part]:
    """Pictures by their addresses."""
    listed = links if isinstance(links, list) else []
    return [part for link in listed if isinstance(link, str) and (part := linked_part(link, blobs)) is not None]


def summary_of(holder: Json) -> tuple[Put, ...]:
    """The summary that stands for what is forgotten, if there is one."""
    summary = text(holder, "summary")
    return (Put("summary", Text(summary)),) if summary else ()


def words(*values: object) -> str:
    """The first text among some values."""
    return next((value for value in values if isinstance(value, str) and value), "")


def source_of(event: object) -> str:
    """Who an event comes from."""
    return text(event, "source") if is_json(event) else ""
