"""Which requests the gateway takes: those of programs of this machine, not those of web pages, and none that it has sent itself."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

LOOP_HEADER: Final = "x-pal-gateway"
"""Header of forwarded requests: the gateways that a request passed, so that one that comes back is known."""
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# What a browser says of a request that no page of another site has made.
_OWN_SITES: Final = frozenset({"", "none", "same-origin"})
# What a page may send to another site without asking it, but for the forms that upload files, which are sent with an `Origin`.
_OF_PAGES: Final = frozenset({"text/plain", "application/x-www-form-urlencoded"})
_JSON: Final = "application/json"
_LONGEST_WAY: Final = 16


class DoorRefusal(NamedTuple):
    """The status and the sentence with which a request is refused."""

    status: int
    message: str


class Door:
    """The door of one gateway; `name` is its own in the header of the requests that it sends on."""

    def __init__(self) -> None:
        self.name = uuid4().hex

    def refusal(self, headers: Mapping[str, str], *, is_conversation: bool) -> DoorRefusal | None:
        """Return why a request is not taken, or `None`."""
        host = headers.get("host", "").lower()
        if _host(f"//{host}") not in _LOCAL_HOSTS:
            # A page of another site that has its name resolve to this machine.
            return DoorRefusal(403, "this gateway answers programs of this machine only; use 127.0.0.1 as its host")
        # A page of another program of this machine, on another port, is no program either.
        if values_of(headers, "origin") - {f"http://{host}"} or values_of(headers, "sec-fetch-site") - _OWN_SITES:
            return DoorRefusal(403, "this gateway answers programs of this machine only, and not web pages")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _OF_PAGES or (is_conversation and kind not in ("", _JSON)):
            return DoorRefusal(415, f"the content type of a request must be {_JSON}, not {kind[:80]}")
        passed = self._passed(headers)
        if self.name in passed:
            return DoorRefusal(
                508, "this gateway would send the request to itself; give it the address of the provider as --anthropic or --openai"
            )
        if len(passed) >= _LONGEST_WAY:
            return DoorRefusal(508, f"the request has passed {len(passed)} gateways")
        return None

    def marked(self, headers: Mapping[str, str]) -> tuple[bytes, bytes]:
        """Return the header that says by which gateways a request has come, this one included."""
        return LOOP_HEADER.encode(), ", ".join((*self._passed(headers), self.name)).encode()

    def _passed(self, headers: Mapping[str, str]) -> list[str]:
        return [name for name in headers.get(LOOP_HEADER, "").replace(",", " ").split() if name.isalnum()]


def values_of(headers: Mapping[str, str], name: str) -> set[str]:
    """Return what all headers of a name say, in lower case: a request may have more than one, of which others read the last."""
    return {value.strip().lower() for key, value in headers.items() if key.lower() == name}


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
