"""Addresses of servers and values of headers, checked before anything is sent."""

from urllib.parse import SplitResult, urlsplit

from palimpsest.core.errors import BadInput


def checked_address(given: str, where: str) -> SplitResult:
    """The parts of an address that a request can be sent to."""
    if not given.startswith(("http://", "https://")):
        raise BadInput(f"the address {_named(given)!r} does not begin with http:// or https://", where=where)
    # `urlsplit` drops line breaks in silence, and then another host is asked than the one that was written.
    if not given.isprintable() or " " in given:
        raise BadInput("the address has a space, a line break or a control character in it", where=where)
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname or "", parts.port
        if ":" not in host:
            host.encode("idna")
    except ValueError:
        # The words of that error may repeat a part of a password.
        raise BadInput(f"the address {_named(given)!r} has a host or a port that cannot be", where=where) from None
    if not host:
        raise BadInput(f"the address {_named(given)!r} names no host", where=where)
    if parts.query or parts.fragment:
        raise BadInput(
            f"the address {without_credentials(parts)!r} must end with its path: what follows '?' or '#' has no place in it", where=where
        )
    return parts


def without_credentials(parts: SplitResult) -> str:
    """The address without a user's name, a password, a query or a slash at its end."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def checked_header(value: str, name: str, where: str) -> str:
    """A value that a header can carry, without the spaces round it; `name` is how it is called, for it is never shown itself."""
    stripped = value.strip()
    if not stripped.isascii() or not stripped.isprintable():
        raise BadInput(f"{name} has a character in it that no header can carry; copy it again, and only it", where=where)
    return stripped


def _named(given: str) -> str:
    """As much of an address that cannot be read as surely holds no password."""
    scheme, mark, rest = given.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else given.rpartition("@")[2]
