"""Pictures and files as the text that goes over a wire: base64, data URLs, and the bytes behind an address."""

from base64 import b64encode
from collections.abc import Callable
from typing import TypeAlias

from palimpsest.core.errors import MissingBlob
from palimpsest.core.items import Document, Image

Fetch: TypeAlias = Callable[[str], bytes]


def no_blobs(address: str) -> bytes:
    """The fetch of somebody who has no blob store."""
    raise MissingBlob(f"the blob {address} is shown in the view and no store was given to read it from", where="encode")


def base64_of(part: Image | Document, fetch: Fetch) -> tuple[str, str] | None:
    """Media type and base64 of what is sent inline, or `None` for a URL that the provider fetches itself."""
    if part.blob:
        return part.media, b64encode(fetch(part.blob)).decode()
    if not part.url.startswith("data:"):
        return None
    header, _, data = part.url.partition(",")
    return header[len("data:") :].partition(";")[0] or part.media, data


def url_of(part: Image | Document, fetch: Fetch) -> str:
    """A URL of the part: its own, or one that holds the bytes."""
    if part.url and not part.blob:
        return part.url
    return f"data:{part.media};base64,{b64encode(fetch(part.blob)).decode()}"
