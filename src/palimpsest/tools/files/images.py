"""Images that can be shown to a model: their format, by content and not by name, and their bounds."""

import struct
from typing import Final, NamedTuple

LARGEST_IMAGE: Final = 5_000_000
"""Bytes of an image; providers refuse larger ones, and with them the whole request."""
LONGEST_SIDE: Final = 8_000
"""Pixels of the longer side."""
# Start-of-frame markers of JPEG; the gaps are other kinds of segments.
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


class ImageFormat(NamedTuple):
    """The media type of an image and its size in pixels; a size of 0 is unknown."""

    media: str
    width: int = 0
    height: int = 0


def image_format(data: bytes) -> ImageFormat | None:
    """The format of an image that providers accept (PNG, JPEG, GIF, WebP), or `None` for other data."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return ImageFormat("image/png", *struct.unpack_from(">II", data, 16))
        if data.startswith((b"GIF87a", b"GIF89a")):
            return ImageFormat("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return ImageFormat("image/jpeg", *_jpeg_size(data))
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return ImageFormat("image/webp", *_webp_size(data))
    except struct.error:
        # The data ends within its header.
        return None
    return None


def image_problem(data: bytes) -> str:
    """Why an image cannot be shown, as the end of a sentence; empty if it can."""
    if len(data) > LARGEST_IMAGE:
        return f"has {len(data):,} bytes; images of at most {LARGEST_IMAGE:,} can be shown"
    found = image_format(data)
    if found is None:
        return "is no PNG, JPEG, GIF or WebP image, or a damaged one"
    if max(found.width, found.height) > LONGEST_SIDE:
        return f"has {found.width:,} x {found.height:,} pixels; a side may have at most {LONGEST_SIDE:,}"
    return ""


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the first frame; zeros if there is none."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], struct.unpack_from(">H", data, place + 2)[0]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        place += 2 + length
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            return 0, 0
