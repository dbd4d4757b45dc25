"""The servers for the rows, each started on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from tests.benchmarks.model_server import model_server
from tests.services.postgresql import FAST, PostgreSQL, postgresql
from tests.services.redis import RedisServer, redis_process

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
DATABASES = (SQLITE, POSTGRESQL)


@dataclass
class Servers:
    """Servers that live until the last row is measured."""

    stack: ExitStack
    _models: dict[float, str] = field(default_factory=dict)
    _numbers: int = 0

    @cached_property
    def postgresql(self) -> PostgreSQL:
        """Return a server that cleans up after itself, as one in production does."""
        return self.stack.enter_context(postgresql({**FAST, "autovacuum": "on"}))

    @cached_property
    def redis(self) -> RedisServer:
        """Return a broker."""
        return self.stack.enter_context(redis_process())

    def model(self, *, latency_s: float) -> str:
        """Return the address of a model that answers after so long."""
        if latency_s not in self._models:
            started = self.stack.enter_context(model_server(latency_s=latency_s))
            self._models[latency_s] = started.url
        return self._models[latency_s]

    @contextmanager
    def database(self, kind: str) -> Iterator[dict[str, str]]:
        """Give the variables that name an empty database, which is removed afterwards."""
        if kind == SQLITE:
            yield {}
            return
        self._numbers += 1
        name = f"bench-{self._numbers}"
        try:
            yield {"DATABASE_URL": self.postgresql.create(name)}
        finally:
            self.postgresql.drop(name)


@contextmanager
def servers() -> Iterator[Servers]:
    """Give servers and end them."""
    with ExitStack() as stack:
        yield Servers(stack)
