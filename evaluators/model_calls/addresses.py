"""Decide which addresses may be called: never those of cloud metadata services, which give out secrets."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks = Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]

METADATA_HOSTS = (
    "metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.com",
    "metadata.azure.internal", "metadata.tencentyun.com", "instance-data", "instance-data.ec2.internal",
)  # fmt: skip
# Metadata services outside the link-local range: Alibaba, Azure's host, EC2 and Google over IPv6,
# Oracle.
METADATA_NETWORKS = tuple(
    ipaddress.ip_network(known)
    for known in (
        "100.100.100.200", "168.63.129.16", "fd00:ec2::/32", "fd20:ce::254", "192.0.0.192",
    )
)  # fmt: skip
# IPv6 networks that contain an IPv4 address, and the number of bits after it: compatible, mapped,
# translated (SIIT, NAT64 and its local prefix), and 6to4.
EMBEDDING_NETWORKS = tuple(
    (ipaddress.ip_network(network), after)
    for network, after in (
        ("::/96", 0), ("::ffff:0:0/96", 0), ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0), ("64:ff9b:1::/48", 0), ("2002::/16", 80),
    )
)  # fmt: skip
LOCAL_TRANSLATION = ipaddress.ip_network("64:ff9b:1::/48")
BROADCAST = ipaddress.ip_address("255.255.255.255")
LOOPBACK = ipaddress.ip_address("::1")


def address_problem(
    url: str, *, may_have_query: bool = False, networks: Networks | None = None
) -> str:
    """Return why a URL must not be called, "" if it may; a base URL has no query.

    Private addresses must be in one of `networks`; None allows all.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "This is not a URL: it has no readable host or port."
    if parts.scheme not in ("http", "https") or not host:
        example = "agent.example.com/answer" if may_have_query else "api.openai.com/v1"
        return f"Write a URL that starts with http:// or https://, such as https://{example}."
    if parts.username or parts.password:
        return "Leave user and password out of the URL; a key has its own field."
    if may_have_query and (parts.fragment or any(sign.isspace() for sign in url)):
        return "Write scheme, host, path and query, without # and spaces."
    if not may_have_query and (parts.query or parts.fragment or any(map(str.isspace, url))):
        return "Write only scheme, host and path, without ?, # and spaces."
    try:
        # Clients normalize a host before they look it up: 169。254。169。254 is an address too.
        plain = host if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError:
        return "This is not a URL: its host is not a name that can be looked up."
    if "%" in plain and ":" not in plain:
        return "This is not a URL: a host is written without %."
    return host_problem(plain.rstrip(".").lower(), networks)


def host_problem(host: str, networks: Networks | None = None) -> str:
    """Return why a name or an address must not be called, "" if it may.

    Private addresses must be in one of `networks`; None allows all.
    """
    refused = f"{host} is a link-local or cloud metadata address. These are never called."
    if host in METADATA_HOSTS:
        return refused
    address = _address(host)
    addresses = [] if address is None else [address, *_embedded(address)]
    if any(
        candidate.is_link_local or any(candidate in network for network in METADATA_NETWORKS)
        for candidate in addresses
    ):
        return refused
    if any(
        candidate.is_unspecified or candidate.is_multicast or candidate == BROADCAST
        for candidate in addresses
    ):
        return f"{host} is not the address of one server."
    called = addresses[1:] or addresses
    if networks is not None and any(
        not candidate.is_global and not any(candidate in network for network in networks)
        for candidate in called
    ):
        return (
            f"{host} is in a private network that the operator of this site has not opened to targets "
            "(EVALSITE_TARGET_NETWORKS)."
        )
    return ""


def _address(host: str) -> Address | None:
    """Return the address of a host in any form that resolvers read, None for a name."""
    try:
        address: Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            # Also reads 2852039166, 0xa9fea9fe and 169.254.43518, as resolvers do.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return address


def _embedded(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses that a gateway may reach for an IPv6 address."""
    if not isinstance(address, ipaddress.IPv6Address) or address == LOOPBACK:
        return
    for network, after in EMBEDDING_NETWORKS:
        if address in network:
            yield ipaddress.IPv4Address(int(address) >> after & 0xFFFFFFFF)
    if address in LOCAL_TRANSLATION:
        # RFC 6052: after a prefix of less than 96 bits, the address is split around bits 64 to 71.
        number = int(address)
        without_gap = number >> 64 << 56 | number & 0xFFFFFFFFFFFFFF
        numbers = {without_gap >> 120 - 32 - prefix & 0xFFFFFFFF for prefix in (48, 56, 64)}
        yield from (ipaddress.IPv4Address(embedded) for embedded in numbers if embedded)
    if address.teredo:
        yield from address.teredo
