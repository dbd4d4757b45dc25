"""Slow down who guesses passwords: django-axes counts, this says from where and what it answers."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

TOO_MANY_REQUESTS = 429
# One customer of a network holds this many bits of addresses of the newer kind.
BITS_OF_ONE_CLIENT = 64


def client_address(request: HttpRequest) -> str | None:
    """Return where a request comes from; behind a trusted proxy, what that proxy says.

    Of an IPv6 address it is the network, because one client can take any address in it.
    """
    named = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.TRUST_PROXY else ""
    # The proxy adds its client at the end; what stands before it, the client may have made up.
    for text in (named.rpartition(",")[2].strip(), request.META.get("REMOTE_ADDR", "")):
        with suppress(ValueError):
            return str(_client(ip_address(text)))
    return None


def _client(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    return IPv6Address(int(address) >> BITS_OF_ONE_CLIENT << BITS_OF_ONE_CLIENT)


def locked_out(
    request: HttpRequest, response: HttpResponse | None, credentials: Any
) -> HttpResponse:
    """Say how long to wait and what works meanwhile; the same for names that nobody has."""
    seconds = int(settings.AXES_COOLOFF_TIME.total_seconds())
    refusal = render(
        request, "access/locked_out.html", {"minutes": seconds // 60}, status=TOO_MANY_REQUESTS
    )
    refusal["Retry-After"] = str(seconds)
    return refusal
