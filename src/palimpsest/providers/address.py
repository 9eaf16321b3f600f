"""Validates server addresses and header values before a request is sent."""

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from palimpsest.core.errors import BadInput


def checked_address(given: str, where: str) -> SplitResult:
    """Return the parts of a valid HTTP address. Raises `BadInput` for any other text; the message contains no password."""
    if not given.startswith(("http://", "https://")):
        raise BadInput(f"the address {_printable(given)!r} does not begin with http:// or https://", where=where)
    # `urlsplit` silently drops line breaks, which could change the host.
    if not given.isprintable() or " " in given:
        raise BadInput("the address has a space, a line break or a control character in it", where=where)
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname or "", parts.port
        if ":" not in host:
            host.encode("idna")
    except ValueError:
        # The original error is not chained, because it may contain a part of a password.
        raise BadInput(f"the address {_printable(given)!r} has an invalid host or port", where=where) from None
    if not host:
        raise BadInput(f"the address {_printable(given)!r} names no host", where=where)
    if parts.query or parts.fragment:
        raise BadInput(
            f"the address {without_credentials(parts)!r} must end with its path: what follows '?' or '#' has no place in it", where=where
        )
    return parts


def without_credentials(parts: SplitResult) -> str:
    """Return the address without user name, password, query and trailing slash."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def checked_header(value: str, name: str, where: str) -> str:
    """Return a valid header value without surrounding spaces. Raises `BadInput`, with `name` instead of the value, which may be secret."""
    stripped = value.strip()
    if not stripped.isascii() or not stripped.isprintable():
        raise BadInput(f"{name} contains a character that is invalid in a header; copy only the value", where=where)
    return stripped


def _printable(given: str) -> str:
    """Return the part of an invalid address that cannot contain a password."""
    scheme, mark, rest = given.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else given.rpartition("@")[2]


_BETA = "anthropic-beta"


def with_betas(headers: Mapping[str, str], betas: tuple[str, ...]) -> dict[str, str]:
    """Return the headers of a request to Anthropic with the beta values that its body needs; values of the user stay."""
    if not betas:
        return dict(headers)
    name = next((each for each in headers if each.lower() == _BETA), _BETA)
    given = [value for part in headers.get(name, "").split(",") if (value := part.strip())]
    return {**headers, name: ",".join(dict.fromkeys((*given, *betas)))}
