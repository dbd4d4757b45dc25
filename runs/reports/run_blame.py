"""What broke a run whose first executions all ended alike: whose fault, what helps, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from evaluators.models import LanguageModel
from runs.models import Run
from runs.plan import Cause

NEW_RUN = "This run keeps what it began with, so start a new one afterwards."
GOES_ON = "Then run what is left."
# By the status a server answered with, else by the class of the error: whose page, and what helps.
OF_STATUS = {
    "401": ("model", f"Enter a key that the server accepts. {GOES_ON}"),
    "402": ("model", f"Pay for the account behind the key, or enter another key. {GOES_ON}"),
    "403": ("model", f"Enter a key that may use this model. {GOES_ON}"),
    "404": ("model", f"Correct the model id or the address. {NEW_RUN}"),
    "429": ("model", f"Enter a key that has quota left, or lower its limits. {GOES_ON}"),
}
OF_CAUSE = {
    Cause.REFUSED: ("target", f"Correct the parameters sent to the model. {NEW_RUN}"),
    Cause.RATE_LIMITED: ("model", f"Lower its concurrency or requests per minute. {GOES_ON}"),
    Cause.TIMEOUT: ("model", f"Give it more time to answer. {GOES_ON}"),
    Cause.SERVER_ERROR: ("model", f"Wait until its server is well. {GOES_ON}"),
    Cause.CONNECTION: ("model", f"Start the server at its address. {GOES_ON}"),
    Cause.BAD_REPLY: ("model", f"Test the language model to see what it answers. {GOES_ON}"),
}
OWN_TIMEOUT = ("target", f"Give the target more time. {NEW_RUN}")
OTHERWISE = ("target", f"Put the target right. {GOES_ON}")


@dataclass(frozen=True, slots=True)
class Blame:
    """What helps, and the page where; `url` is "" when what is to blame is not there any more."""

    remedy: str
    url: str
    action: str


def blame_of(run: Run, error: str) -> Blame:
    """Return what helps against the error that every first execution ended in."""
    target = run.snapshot["target"]
    slug = target["model"]
    who, remedy = _found(error, target["config"]) if slug else OTHERWISE
    if who == "target":
        url = reverse("runs:target", args=[run.target_id]) if run.target_id else ""
        return Blame(remedy, url, "Open the target")
    known = LanguageModel.objects.filter(slug=slug).exists()
    url = reverse("evaluators:language-model", args=[slug]) if known else ""
    return Blame(remedy, url, "Open the language model")


def _found(error: str, config: Mapping[str, Any]) -> tuple[str, str]:
    status = re.search(r"\((\d{3})\)", error)
    if status and status[1] in OF_STATUS and Cause.REFUSED.label in error:
        return OF_STATUS[status[1]]
    if f"{Cause.TIMEOUT.label}: " in error and config.get("timeout_s"):
        return OWN_TIMEOUT
    cause = next((cause for cause in OF_CAUSE if f"{cause.label}: " in error), None)
    return OTHERWISE if cause is None else OF_CAUSE[cause]
