"""Images and documents as base64, data URLs or bytes."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TypeAlias

from palimpsest.core.errors import MissingBlob
from palimpsest.core.items import Document, Image
from palimpsest.core.tokens.patterns import lazy_pattern

Fetch: TypeAlias = Callable[[str], bytes]

_DATA = "data:"
_ESCAPED = lazy_pattern(rb"%([0-9a-fA-F]{2})")
_NO_BASE64 = lazy_pattern(rb"[^a-zA-Z0-9+/]")
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def no_blobs(address: str) -> bytes:
    """The fetch function for callers without a blob store. Raises `MissingBlob`."""
    raise MissingBlob(f"the blob {address} is shown in the view and no store was given to read it from", where="encode")


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


def base64_of(part: Image | Document, fetch: Fetch) -> str:
    """The base64 of an inline part."""
    header, _, data = part.url.partition(",")
    if not part.blob and _is_base64(header):
        return data
    return b64encode(bytes_of(part, fetch)).decode()


def bytes_of(part: Image | Document, fetch: Fetch) -> bytes:
    """The bytes of an inline part."""
    if part.blob:
        return fetch(part.blob)
    header, _, data = part.url.partition(",")
    plain = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), data.encode())
    return _decoded(plain) if _is_base64(header) else plain


def url_of(part: Image | Document, fetch: Fetch) -> str:
    """The URL of a part: its own, or a data URL."""
    if part.url and not part.blob:
        return part.url
    return f"data:{media_of(part)};base64,{b64encode(fetch(part.blob)).decode()}"


def _is_data(url: str) -> bool:
    return url[: len(_DATA)].lower() == _DATA


def _is_base64(header: str) -> bool:
    return _is_data(header) and header.rstrip().lower().endswith(";base64")


def _decoded(data: bytes) -> bytes:
    # Padding is often missing, and invalid characters are skipped: a broken file is better than no request.
    bare = _NO_BASE64.sub(b"", data.replace(b"-", b"+").replace(b"_", b"/"))
    whole = bare[:-1] if len(bare) % 4 == 1 else bare
    return b64decode(whole + b"=" * (-len(whole) % 4))
