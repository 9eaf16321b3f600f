"""What the events of OpenHands' server and of its SDK have in common."""

from collections.abc import Iterator
from typing import Protocol

from palimpsest.core.edits import Put
from palimpsest.core.items import Part, Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.parts import linked_part, parts_of
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, is_json, text


class EventConverter(Protocol):
    """Converts the events of a conversation."""

    def convert(self, events: list[object], start: int) -> Iterator[ReadEvent]:
        """The events from index `start` on; those before were read already."""
        ...


def message_parts(content: object, blobs: Blobs) -> tuple[Part, ...]:
    """The parts of a message, in which one image part may have several URLs."""
    if not isinstance(content, list):
        return parts_of(content, blobs)
    found: list[Part] = []
    for each in content:
        links = each.get("image_urls") if is_json(each) else None
        if isinstance(links, list):
            found += images(links, blobs)
        else:
            found += parts_of([each], blobs)
    return tuple(found)


def images(links: object, blobs: Blobs) -> list[Part]:
    """Images from their URLs."""
    listed = links if isinstance(links, list) else []
    return [part for link in listed if isinstance(link, str) and (part := linked_part(link, blobs)) is not None]


def summary_of(holder: Json) -> tuple[Put, ...]:
    """The summary of a condensation; empty if it has none."""
    summary = text(holder, "summary")
    return (Put("summary", Text(summary)),) if summary else ()


def first_text(*values: object) -> str:
    """The first non-empty text among some values; empty if there is none."""
    return next((value for value in values if isinstance(value, str) and value), "")


def source_of(event: object) -> str:
    """The source of an event; empty if it has none."""
    return text(event, "source") if is_json(event) else ""
