"""Long texts and images that the user pasted: the input line shows a short mark, and the message has the text or the image."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from palimpsest.core.items import Text

LONGEST_INLINE: Final = 1_000
MOST_LINES_INLINE: Final = 8
# Characters of one paste that a message contains itself; a longer one goes to a file.
LONGEST_SENT: Final = 100_000
# Characters of one paste, and bytes of one image.
LONGEST_PASTE: Final = 8_000_000
LARGEST_IMAGE: Final = 10_000_000
MEDIA: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_MARK: Final = re.compile(r"\[(?:pasted #(\d{1,6}), [\d,]+ (?:lines|characters)|image #(\d{1,6}))\]")
_LONGEST_PATH: Final = 4_096


class PastedImage(NamedTuple):
    """An image: its media type and its bytes."""

    media: str
    data: bytes


MessagePart: TypeAlias = str | Text | PastedImage


def texts_of(parts: Iterable[MessagePart]) -> Iterator[str]:
    """Yield the texts among the parts of a message."""
    return (part if isinstance(part, str) else part.text for part in parts if not isinstance(part, PastedImage))


class Attachments:
    """The pasted texts and images of one message by their marks."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._images: dict[int, PastedImage] = {}

    def __bool__(self) -> bool:
        """Whether anything is attached."""
        return bool(self._texts or self._images)

    def folded(self, text: str) -> str:
        """Return what the input line shows for a pasted text: itself, a mark if it is long, or a mark if it is the path of an image."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        image = _image_at(text)
        if image is not None:
            return self.image(image)
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_INLINE and lines <= MOST_LINES_INLINE:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text[:LONGEST_PASTE]
        return f"[pasted #{number}, {lines:,} lines]" if lines > 1 else f"[pasted #{number}, {len(text):,} characters]"

    def image(self, image: PastedImage) -> str:
        """Keep an image and return its mark."""
        number = len(self._images) + 1
        self._images[number] = image
        return f"[image #{number}]"

    def files(self, line: str, keep: Callable[[str, bytes], str]) -> None:
        """Write the longest texts of a message to files by `keep`, which returns the path; the message then names the file."""
        for mark in _MARK.finditer(line):
            number = int(mark[1] or 0)
            text = self._texts.get(number, "")
            if len(text) > LONGEST_SENT:
                lines = text.count("\n") + 1
                path = keep(f"pasted-{number}.txt", text.encode("utf-8", "replace"))
                self._texts[number] = f"[the text that I pasted has {lines:,} lines and is in the file {path}; read it in parts]"

    def unfolded(self, line: str) -> str:
        """Return an input line with each mark of a text replaced by the text. Marks of no paste are the user's own words."""
        return "".join(texts_of(self.parts(line, keep_images=True)))

    def parts(self, line: str, *, keep_images: bool = False) -> Iterator[MessagePart]:
        """Yield the texts and images of a message in order. With `keep_images` the marks of images stay in the text.

        A text that begins with a paste is marked as attached: its beginning is nothing that the user typed.
        """
        for place, part in enumerate(self._parts(line, keep_images=keep_images)):
            first = _MARK.match(line.lstrip()) if place == 0 else None
            is_pasted = first is not None and first[1] is not None and int(first[1]) in self._texts
            yield Text(part, attached=True) if is_pasted and isinstance(part, str) else part

    def _parts(self, line: str, *, keep_images: bool) -> Iterator[str | PastedImage]:
        end = 0
        pending = ""
        for mark in _MARK.finditer(line):
            pending += line[end : mark.start()]
            end = mark.end()
            image = None if mark[2] is None or keep_images else self._images.get(int(mark[2]))
            if image is None:
                pending += self._texts.get(int(mark[1]), mark[0]) if mark[1] is not None else mark[0]
                continue
            if pending.strip():
                yield pending
            pending = ""
            yield image
        pending += line[end:]
        if pending.strip():
            yield pending

    def clear(self) -> None:
        """Drop all: their message was sent."""
        self._texts.clear()
        self._images.clear()


def _image_at(text: str) -> PastedImage | None:
    """Return the image of a file whose path was pasted or dropped, perhaps in quotes; `None` if it is something else."""
    if len(text) > _LONGEST_PATH or "\n" in text.strip():
        return None
    try:
        words = shlex.split(text.strip())
    except ValueError:
        return None
    path = Path(words[0].removeprefix("file://")).expanduser() if len(words) == 1 else None
    media = None if path is None else MEDIA.get(path.suffix.lower())
    if path is None or media is None:
        return None
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_IMAGE + 1)
    except OSError:
        return None
    return PastedImage(media, data) if data and len(data) <= LARGEST_IMAGE else None
