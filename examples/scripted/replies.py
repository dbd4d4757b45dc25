"""Which module answers a question, told by the form of the reply that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripted.asking import Asked
from scripted.dimensions import dimensions
from scripted.marking import Guide, mark
from scripted.metrics import metrics
from scripted.opinions import opinion
from scripted.preferences import preference
from scripted.votes import vote

# The part of a reply that only replies of this kind have.
KINDS = {"metrics": metrics, "dimensions": dimensions, "bracket": vote, "hits": opinion}


def read_reply(asked: Asked, guides: Mapping[str, Guide]) -> dict[str, Any] | None:
    """Return what the guide of the case makes of the answer; None without a guide or form for it."""
    guide = guides.get(asked.case)
    if guide is not None and "better" in asked.parts():
        return preference(asked, guide)
    answer = next((KINDS[part] for part in KINDS if part in asked.parts()), None)
    return None if guide is None or answer is None else answer(asked, mark(guide, asked))
