"""Resolve names of servers for HTTP clients, and refuse addresses that may not be called."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from evaluators.model_calls.addresses import Networks, host_problem


class RefusedAddressError(OSError):
    """The host, or an address of its name, may not be called."""


def check_host(host: str, networks: Networks | None = None) -> None:
    """Raise RefusedAddressError for a host that may not be called by name."""
    if problem := host_problem(host.rstrip(".").lower(), networks):
        raise RefusedAddressError(problem)


class CheckedResolver(AbstractResolver):
    """Resolves names and refuses addresses that may not be called.

    The connection uses exactly the addresses that were checked here, so a name cannot point elsewhere
    a moment later. Of several addresses, those in private networks that are not open are left out: on most
    machines localhost is 127.0.0.1 and ::1.
    """

    def __init__(
        self, inner: AbstractResolver | None = None, networks: Networks | None = None
    ) -> None:
        """Resolve names with `inner`, by default as the machine does."""
        self._inner = inner or ThreadedResolver()
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name that may be called; raises RefusedAddressError."""
        addresses = await self._inner.resolve(host, port, family)
        for address in addresses:
            if problem := host_problem(address["host"]):
                raise RefusedAddressError(f"{host} has this address: {problem}")
        closed = [host_problem(address["host"], self._networks) for address in addresses]
        if addresses and all(closed):
            raise RefusedAddressError(f"{host} has this address: {closed[0]}")
        return [
            address for address, is_closed in zip(addresses, closed, strict=True) if not is_closed
        ]

    async def close(self) -> None:
        """Close the inner resolver."""
        await self._inner.close()
