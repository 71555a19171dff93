"""Addresses that no provider has. A name that leads to one is found out when the connection is made."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where clouds hand a machine its credentials; the link-local 169.254.169.254 is the common one. By their own manuals:
# AWS over IPv6, Alibaba, Oracle, Azure.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")))
# An IPv4 address in the last 32 bits: RFC 6052 (NAT64), RFC 4291, 2.5.5.1 (IPv4-compatible).
_ENDS_IN_IPV4 = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))


def is_forbidden_address(host: str) -> bool:
    """Whether `host`, however it is written, is link-local, multicast, unspecified, reserved or a metadata service.

    False for a name: what it leads to is for the connection to see.
    """
    address = _literal(host)
    return address is not None and any(_is_forbidden(one) for one in _meant(address))


def _literal(host: str) -> Address | None:
    text = host.split("%", 1)[0].strip("[]").rstrip(".")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))  # 2852039166, 0xa9fea9fe, 169.254.43518
    except (OSError, ValueError):
        return None


def _meant(address: Address) -> Iterator[Address]:
    """The address, and those that are reached by way of it."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        within = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if any(address in network for network in _ENDS_IN_IPV4) and int(address) > 0xFFFF:
            within.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        yield from (one for one in within if one is not None)


def _is_forbidden(address: Address) -> bool:
    reserved = address.version == 4 and address.is_reserved
    return address.is_link_local or address.is_multicast or address.is_unspecified or reserved or address in _METADATA
