"""A sandbox of every kind that this machine offers."""

from __future__ import annotations

import os

import pytest

from tests.evaluators.sandbox.offers import make_sandbox, name_of, offers


@pytest.fixture(params=offers(), ids=name_of)
def offer(request):
    """Give every sandbox of this machine in turn."""
    return request.param


@pytest.fixture
def sandbox(offer):
    """Give every sandbox of this machine in turn, with narrow limits."""
    return make_sandbox(offer)


@pytest.fixture
def is_boxed(offer):
    """Tell whether programs see only what they need."""
    return offer.kind == "bubblewrap"


@pytest.fixture
def hides_files(offer):
    """Tell whether programs reach only what they need of the machine's files."""
    return offer.kind == "bubblewrap" or "files" in offer.closed


@pytest.fixture
def cuts_network(offer):
    """Tell whether programs have no network."""
    return offer.kind == "bubblewrap" or "network" in offer.closed


@pytest.fixture
def has_shared_memory(offer):
    """Tell whether programs may put what they share into /dev/shm, as locks between processes are."""
    return offer.kind == "bubblewrap" or "files" not in offer.closed or os.geteuid() == 0
