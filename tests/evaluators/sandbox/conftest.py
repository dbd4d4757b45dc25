"""A sandbox of every kind that this machine offers."""

from __future__ import annotations

import pytest

from tests.evaluators.sandbox.offers import make_sandbox, offers


@pytest.fixture(params=offers(), ids=lambda offer: offer.kind)
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
