"""Images and documents as base64, data URLs or bytes, and as blobs."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.core.items import Document, Image, Part
from palimpsest.core.ports import Blobs
from palimpsest.core.text import lazy_pattern

Fetch: TypeAlias = Callable[[str], bytes]

_DATA = "data:"
_ESCAPED = lazy_pattern(rb"%([0-9a-fA-F]{2})")
_NO_BASE64 = lazy_pattern(rb"[^a-zA-Z0-9+/]")
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def no_blobs(address: str) -> bytes:
    """The fetch function for callers without a blob store. Raises `BadInput`."""
    raise BadInput(f"the blob {address} is shown in the view and no store was given to read it from", where="encode")


class NotedFetch:
    """A fetch function that remembers why blobs could not be fetched, for the user."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._reasons: dict[str, str] = {}
        self._reported: set[str] = set()

    def __call__(self, address: str) -> bytes:
        """Return the bytes of a blob. Raises as the wrapped function does."""
        try:
            return self._fetch(address)
        except MissingBlob as error:
            self._reasons[address] = f"{error}; the request has a text in its place"
            raise

    def unreported(self) -> list[str]:
        """Return a sentence for each blob that could not be fetched, once in the life of this object."""
        new = [address for address in list(self._reasons) if address not in self._reported]
        self._reported.update(new)
        return [self._reasons[address] for address in new]


def blob_part(media: str, data: str, blobs: Blobs, name: str = "") -> Part | None:
    """An image or document from base64 text, stored as a blob; None if the text is empty or not base64."""
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not content:
        return None
    address = blobs.put(content)
    return Image(media or "image/png", address) if media.startswith("image/") or not media else Document(media, address, name=name)


def linked_part(url: str, blobs: Blobs) -> Part | None:
    """An image from a URL, which may be a data URL that contains the image; None for other schemes."""
    if not url.startswith("data:"):
        return Image("image/*", url=url) if url.startswith(("http://", "https://")) else None
    media, _, data = url[len("data:") :].partition(";base64,")
    return blob_part(media, data, blobs)


def is_inline(part: Image | Document) -> bool:
    """Whether the bytes themselves are sent, not only a URL."""
    return bool(part.blob) or _is_data(part.url)


def media_of(part: Image | Document) -> str:
    """The normalized media type; that of a data URL overrides the recorded one."""
    declared = part.media
    if not part.blob and _is_data(part.url):
        declared = part.url[len(_DATA) :].partition(",")[0] or declared
    media = declared.partition(";")[0].strip().lower() or part.media.lower()
    return _OTHER_NAMES.get(media, media)


def inlined(part: Image | Document, fetch: Fetch) -> Image | Document:
    """The part with a data URL in the place of its blob. Raises as `fetch` does."""
    if not part.blob:
        return part
    return replace(part, blob="", url=f"data:{media_of(part)};base64,{b64encode(fetch(part.blob)).decode()}")


def base64_of(part: Image | Document) -> str:
    """The base64 of an inline part."""
    header, _, data = part.url.partition(",")
    return data if _is_base64(header) else b64encode(bytes_of(part)).decode()


def bytes_of(part: Image | Document) -> bytes:
    """The bytes of an inline part."""
    header, _, data = part.url.partition(",")
    plain = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), data.encode())
    return _decoded(plain) if _is_base64(header) else plain


def _is_data(url: str) -> bool:
    return url[: len(_DATA)].lower() == _DATA


def _is_base64(header: str) -> bool:
    return _is_data(header) and header.rstrip().lower().endswith(";base64")


def _decoded(data: bytes) -> bytes:
    # Padding is often missing, and invalid characters are skipped: a broken file is better than no request.
    bare = _NO_BASE64.sub(b"", data.replace(b"-", b"+").replace(b"_", b"/"))
    whole = bare[:-1] if len(bare) % 4 == 1 else bare
    return b64decode(whole + b"=" * (-len(whole) % 4))
