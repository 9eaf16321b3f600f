"""Which network addresses a page may be fetched from: public ones only, checked after the name was resolved."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

from palimpsest.tools.tool import ToolError, one_line

IpAddress: TypeAlias = IPv4Address | IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
# Addresses that stand for an IPv4 address, which the network behind them would connect to.
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Older versions of Python count these as global: protocol assignments, where one cloud has its metadata, and NAT64 of a local network.
_PROTOCOL: Final = IPv4Network("192.0.0.0/24")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")


async def resolved(host: str, port: int) -> Sequence[str]:
    """All addresses of a host name, as the system resolves it. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: IpAddress) -> bool:
    """Whether an address is reachable by everyone.

    Not public are private, loopback, link-local, shared, reserved and multicast addresses, among them those of the metadata services of
    clouds, and IPv6 addresses that stand for such an IPv4 address.
    """
    if isinstance(address, IPv6Address):
        embedded = _embedded(address)
        if embedded is not None:
            return is_public(embedded)
        if address.is_site_local or address in _LOCAL_NAT64:
            return False
    elif address in _PROTOCOL:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour


async def checked_address(host: str, port: int, resolver: Resolver, allowed: Callable[[IpAddress], bool]) -> IpAddress:
    """The address to connect to. All addresses of the name must be allowed, because the connection could go to any of them.

    The caller connects to this very address: a second look-up could return another one. Raises `ToolError`.
    """
    name = one_line(host, 200)
    try:
        addresses = [ip_address(text.partition("%")[0]) for text in await resolver(host, port)]
    except (OSError, ValueError, UnicodeError) as error:
        raise ToolError(f"the host {name} cannot be found: {one_line(str(error))}", where=name) from error
    if not addresses:
        raise ToolError(f"the host {name} has no address", where=name)
    refused = next((address for address in addresses if not allowed(address)), None)
    if refused is not None:
        raise ToolError(
            f"the host {name} is at {refused}, which is no public address; pages of private networks are not fetched", where=name
        )
    return addresses[0]
