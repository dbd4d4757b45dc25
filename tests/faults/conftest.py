"""Installations for the tests of faults, and moments that chance picks."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator

import pytest

from tests.faults.installations import Installation, Workshop, workshop

SEED = "FAULTS_SEED"

# pytest explains the assertions of these modules in full, as it does in tests.
pytest.register_assert_rewrite("tests.faults.happenings", "tests.faults.ledger_checks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if "/tests/faults/" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def shared_workshop() -> Iterator[Workshop]:
    """Run the servers once."""
    with workshop() as shop:
        yield shop


@pytest.fixture
def chance() -> random.Random:
    """Pick moments and victims; what is printed when the test fails makes it pick the same again."""
    seed = os.environ.get(SEED) or secrets.token_hex(4)
    print(f"{SEED}={seed}")  # noqa: T201
    return random.Random(seed)


@pytest.fixture
def cluster(shared_workshop: Workshop) -> Iterator[Installation]:
    """Give a site on PostgreSQL and Redis with a run of 100 that waits for workers."""
    with shared_workshop.cluster() as site:
        yield site
        print(site.logs())  # noqa: T201


@pytest.fixture
def single(shared_workshop: Workshop) -> Iterator[Installation]:
    """Give a site on SQLite with a run of 100 that waits for its web process to start."""
    with shared_workshop.single() as site:
        yield site
        print(site.logs())  # noqa: T201
