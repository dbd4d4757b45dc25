"""Which addresses may be called: never those from which a cloud hands out its secrets."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_HOSTS = (
    "metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.com",
    "metadata.azure.internal", "metadata.tencentyun.com", "instance-data", "instance-data.ec2.internal",
)  # fmt: skip
# Metadata services outside the link-local range: Alibaba, Azure's host, EC2 and Google over IPv6,
# Oracle.
METADATA_ADDRESSES = (
    "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "192.0.0.192",
)  # fmt: skip
# IPv6 networks whose last 32 bits are an IPv4 address: translated (NAT64) and compatible.
EMBEDDING_NETWORKS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))
LOOPBACK = ipaddress.ip_address("::1")


def address_problem(url: str, *, may_have_query: bool = False) -> str:
    """Return in one sentence why a URL cannot be called, "" when it can; a base URL has no query."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "This is not a URL: it has no readable host or port."
    if parts.scheme not in ("http", "https") or not host:
        return (
            "Write a URL that starts with http:// or https://, such as https://api.openai.com/v1."
        )
    if parts.username or parts.password:
        return "Leave user and password out of the URL; a key has its own field."
    if may_have_query and (parts.fragment or any(sign.isspace() for sign in url)):
        return "Write scheme, host, path and query, without # and blanks."
    if not may_have_query and (parts.query or parts.fragment or any(map(str.isspace, url))):
        return "Write only scheme, host and path, without ?, # and blanks."
    try:
        # As clients spell a host before they look it up: 169。254。169。254 is an address, too.
        plain = host if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError:
        return "This is not a URL: its host is no name that can be looked up."
    if "%" in plain and ":" not in plain:
        return "This is not a URL: a host is written without %."
    return host_problem(plain.rstrip(".").lower())


def host_problem(host: str) -> str:
    """Return why a name or an address, as it was looked up too, cannot be called, "" when it can."""
    refused = f"{host} is a link-local or cloud metadata address. Nothing is called there."
    if host in METADATA_HOSTS:
        return refused
    address = _address(host)
    if address is None:
        return ""
    is_metadata = any(address == ipaddress.ip_address(known) for known in METADATA_ADDRESSES)
    if address.is_link_local or is_metadata:
        return refused
    if address.is_unspecified or address.is_multicast:
        return f"{host} is not the address of one server."
    return ""


def _address(host: str) -> Address | None:
    """Return the address a host spells in any form that resolvers read, None for a name."""
    try:
        address: Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            # Also reads 2852039166, 0xa9fea9fe and 169.254.43518, as resolvers do.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(address, ipaddress.IPv6Address):
        if address != LOOPBACK and any(address in network for network in EMBEDDING_NETWORKS):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address
