"""Names of agents' hosts looked up, and refused where they lead to a link-local or metadata address."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from evaluators.judging.addresses import host_problem


class RefusedAddressError(OSError):
    """A host, or an address its name leads to, may not be called."""


def check_host(host: str) -> None:
    """Raise RefusedAddressError for a host that may not be called, whoever its name leads to."""
    if problem := host_problem(host.rstrip(".").lower()):
        raise RefusedAddressError(problem)


class CheckedResolver(AbstractResolver):
    """Looks names up and refuses them for any address that may not be called.

    The connection is made to the very addresses that were checked here, so that a name cannot lead
    elsewhere a moment later.
    """

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        """Look names up as the machine does, unless told otherwise."""
        self._inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises RefusedAddressError."""
        found = await self._inner.resolve(host, port, family)
        for one in found:
            if problem := host_problem(one["host"]):
                raise RefusedAddressError(f"{host} leads there: {problem}")
        return found

    async def close(self) -> None:
        """Close what looks names up."""
        await self._inner.close()
